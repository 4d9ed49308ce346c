"""The diagram of docs/phases.md, drawn from the table of phases.

python -m tests.member.phase_diagram < docs/phases.md > new.md && mv new.md docs/phases.md
"""

import sys
from collections.abc import Iterator

from cluster.member.phase import PHASES, PhaseName
from tests.consensus.state_diagram import redrawn, state_diagram


def phase_diagram() -> str:
    """The phases of a member."""
    return state_diagram(_lines())


def _lines() -> Iterator[str]:
    yield f"[*] --> {PhaseName.REPAIRING.name}: the log is damaged"
    yield f"[*] --> {PhaseName.REPLICATING.name}: a standby has a newer snapshot"
    yield f"[*] --> {PhaseName.STARTING.name}"
    for old, exits in PHASES.items():
        for new, reason in exits.items():
            yield f"{old.name} --> {new.name}: {reason}"
    yield f"{PhaseName.CLOSED.name} --> [*]"
    yield f"note right of {PhaseName.CLOSED.name}"
    yield "    entered from any phase when the member is ended, or its cluster is"
    yield "end note"


if __name__ == "__main__":
    sys.stdout.write(redrawn(sys.stdin.read(), phase_diagram()))
