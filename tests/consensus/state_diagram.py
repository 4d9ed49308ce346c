"""The diagram of docs/election.md, drawn from the election's table of transitions.

python -m tests.consensus.state_diagram < docs/election.md > new.md && mv new.md docs/election.md
"""

import re
import sys
from collections.abc import Iterable, Iterator

from cluster.consensus.election import TRANSITIONS

_DIAGRAM = re.compile(r"```mermaid\n.*?```\n", re.DOTALL)


def state_diagram(lines: Iterable[str]) -> str:
    """A state diagram as a Mermaid block of Markdown."""
    return "\n".join(["```mermaid", "stateDiagram-v2", *(f"    {line}" for line in lines), "```", ""])


def redrawn(text: str, diagram: str) -> str:
    """The document with its first diagram replaced."""
    return _DIAGRAM.sub(lambda _: diagram, text, count=1)


def election_diagram() -> str:
    """The states of an election."""
    return state_diagram(_lines())


def _lines() -> Iterator[str]:
    yield "[*] --> INIT"
    for old, exits in TRANSITIONS.items():
        for new, reason in exits.items():
            yield f"{old.name} --> {new.name}: {reason}"
        if not exits:
            yield f"{old.name} --> [*]"
    yield "note right of INIT"
    yield "    whatever goes wrong in any state leads back here"
    yield "end note"


if __name__ == "__main__":
    sys.stdout.write(redrawn(sys.stdin.read(), election_diagram()))
