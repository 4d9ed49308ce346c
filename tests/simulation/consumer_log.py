"""I-25: what the committed log says of consumer groups, and what of the log they must find."""

from __future__ import annotations

import re
from typing import NamedTuple

from cluster.protocol.consumer import ConsumerPrincipal
from tests.simulation.violation import require

FASTEST = 1.25  # of cluster time, clocks that run a tenth fast and are made up for
SKEW_MS = 4_000  # by which it jumps without a leader's notice
_PURGED = re.compile(r"the log begins at (\d+) now, (\d+) before")


class LoggedReport(NamedTuple):
    """One report, by the open that brought it: its entry's ``end``; how long the world had ``lasted``."""

    end: int
    group: str
    position: int
    timestamp: int
    retention: int
    lasted: float

    def is_kept(self, timestamp: int, retention: int, lasted: float) -> bool:
        """Whether a report that is taken at this time, with its retention, finds this one."""
        return min(timestamp - self.timestamp, lasted) <= max(self.retention, retention)


class LoggedGroups:
    """All of one log."""

    def __init__(self) -> None:
        self._reports: list[LoggedReport] = []
        self._at_open: dict[int, int] = {}  # by session: where its group was then
        self.world_ms = 0  # for how long the world has lasted

    @property
    def lasted(self) -> float:
        """No more than so much cluster time can have passed since the world began, but by jumps."""
        return self.world_ms * FASTEST + SKEW_MS

    def has(self, session_id: int) -> bool:
        """Whether the session made a report."""
        return session_id in self._at_open

    def on_open(
        self, session_id: int, encoded_principal: bytes, timestamp: int, position: int, end: int
    ) -> None:
        named = ConsumerPrincipal.decode(encoded_principal)
        consumer = named.consumer
        if consumer is None:
            return
        where = f"consumer group {consumer.group}, reported by session {session_id} at {position}"
        require(consumer.position <= position, "I-25", f"{where}: {consumer.position} is not written yet")
        known = self._groups_at(position, timestamp, named.retention).get(consumer.group)
        require(
            known is None or consumer.position >= known.position,
            "I-25",
            f"{where}: falls to {consumer.position}, {known}",
        )
        report = LoggedReport(end, consumer.group, consumer.position, timestamp, named.retention, self.lasted)
        self._reports.append(report)
        self._at_open[session_id] = consumer.position

    def _groups_at(self, log_position: int, timestamp: int, retention: int = 0) -> dict[str, LoggedReport]:
        """The last report of each group before a place in the log, without those too old at a time.

        ``retention`` is that of the report that is taken at this time. Each report forgets those that are
        too old for it, also where the next leader would keep them for longer. No jump of a clock makes a
        report older than the world.
        """
        groups: dict[str, LoggedReport] = {}
        for report in self._reports:
            if report.end <= log_position:
                groups = _kept(groups, report.timestamp, report.retention, report.lasted)
                groups[report.group] = report
        return _kept(groups, timestamp, retention, self.lasted)

    # -- what readers are told --

    def check_answer(self, session_id: int, group: str, told: int) -> None:
        """Who reported was told where the group is: there, or where somebody else has brought it since."""
        at_open = self._at_open.get(session_id)
        highest = max((report.position for report in self._reports if report.group == group), default=-1)
        require(
            at_open is not None and at_open <= told <= highest,
            "I-25",
            f"session {session_id} is told that group {group} is at {told}, it has reported {at_open}",
        )

    # -- what members drop --

    def check_purge(self, whose: str, event: str, commit_position: int, cluster_time: int, hold: int) -> None:
        """A member that has dropped log has kept what it knows to be needed."""
        found = _PURGED.fullmatch(event)
        if found is None:
            return
        begin = int(found[1])
        for group in self._groups_at(commit_position, cluster_time).values():
            needed = max(group.position, commit_position - hold)
            require(
                begin <= needed,
                "I-25",
                f"{whose} dropped its log before {begin}, group {group.group} needs it from {needed} on",
            )


def _kept(
    groups: dict[str, LoggedReport], timestamp: int, retention: int, lasted: float
) -> dict[str, LoggedReport]:
    return {name: last for name, last in groups.items() if last.is_kept(timestamp, retention, lasted)}
