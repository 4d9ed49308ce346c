"""The diagram of docs/election.md, drawn from the election's table of transitions.

python -m cluster.consensus.state_diagram < docs/election.md > new.md && mv new.md docs/election.md
"""

import re
import sys
from collections.abc import Iterator

from cluster.consensus.election import TRANSITIONS

_DIAGRAM = re.compile(r"```mermaid\n.*?```\n", re.DOTALL)


def diagram() -> str:
    """The state diagram as a Mermaid block of Markdown."""
    return "\n".join(["```mermaid", "stateDiagram-v2", *(f"    {line}" for line in _lines()), "```", ""])


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


def with_diagram(text: str) -> str:
    """The document with its diagram drawn anew."""
    return _DIAGRAM.sub(lambda _: diagram(), text, count=1)


if __name__ == "__main__":
    sys.stdout.write(with_diagram(sys.stdin.read()))
