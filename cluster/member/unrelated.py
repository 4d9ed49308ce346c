"""Members that are configured but belong to another cluster or history: nothing that they send counts.

What comes over the link of such a member is dropped, except what identifies it (``HEARD_OF_ALL``). It is
reported once for each member and reason. A new link is judged again: it may lead to another directory.
"""

from collections.abc import Iterator
from typing import Final

from cluster.errors import ClusterError
from cluster.member.reporter import Reporter
from cluster.protocol.link import PromiseStatement
from cluster.protocol.link_histories import TermEvents

# Messages that say who a member is, and so are heard of everybody: template id and schema id.
HEARD_OF_ALL: Final = frozenset({PromiseStatement.KIND, TermEvents.KIND})

REPORTED_MAX: Final = 64  # lines: a member with a new reason each time is not reported for ever


class Unrelated:
    """The members whose present links lead to another cluster, or to another history of this one."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._reasons: dict[int, str] = {}  # by member id
        self._new: list[int] = []
        self._reported: set[tuple[int, str]] = set()

    def add(self, member_id: int, reason: str) -> None:
        """Count the member as unrelated until its link is down."""
        if member_id not in self._reasons:
            self._new.append(member_id)
        self._reasons[member_id] = reason
        if (member_id, reason) not in self._reported and len(self._reported) < REPORTED_MAX:
            self._reported.add((member_id, reason))
            self._reporter.error(ClusterError(f"member {member_id} is not counted: {reason}"))

    def take_new(self) -> list[int]:
        """Those that were added since the last call."""
        new, self._new = self._new, []
        return new

    def remove(self, member_id: int) -> None:
        """Its link is down: what comes next over it is judged for itself."""
        self._reasons.pop(member_id, None)

    def __contains__(self, member_id: int) -> bool:
        return member_id in self._reasons

    def __iter__(self) -> Iterator[int]:
        return iter(self._reasons)
