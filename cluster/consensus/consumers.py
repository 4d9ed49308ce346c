"""Consumer groups, on every member: how far in the log the readers of each are (protocol/consumer.py).

A report is the open of a session: its principal has group and position. It counts when it is committed, so
there is nothing to undo, and all of it follows from the log. A group's position never falls. A report of a
lower position is refused before it is in the log: who had a group earlier cannot move it back.

A group that reported nothing for as long as its last report says is forgotten when a group reports, by the
time of that entry, so on all members. From that time on it keeps no log, either. What a leader writes into a
report is what is configured and how far it has seen cluster time jump; where that is more than the last
reports of other groups say, it counts for those, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cluster.consensus.context import ConsensusModuleContext
from cluster.consensus.module import UncommittedEntries
from cluster.protocol.consumer import Consumer, ConsumerPrincipal
from cluster.protocol.shares import beyond_share, principal_text
from cluster.protocol.snapshot import SnapshotConsumer


@dataclass(slots=True)
class _Group:
    """``reported_at`` and ``retention`` are in the unit of the cluster's time."""

    principal: bytes
    position: int
    reported_at: int
    retention: int

    def is_expired(self, cluster_time: int, retention: int) -> bool:
        """Where ``retention`` is what the report that is taken at this time says."""
        return cluster_time - self.reported_at > max(self.retention, retention)


class _Report(NamedTuple):
    named: ConsumerPrincipal
    consumer: Consumer
    timestamp: int


class ConsumerTable:
    """All consumer groups of one member."""

    def __init__(self, context: ConsensusModuleContext) -> None:
        self.jumped = 0  # cluster time, as far as this member has seen it
        self._context = context
        self._groups: dict[str, _Group] = {}
        self.changes = 0  # how often any of them has
        self._uncommitted: UncommittedEntries[_Report] = UncommittedEntries()

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def retention(self) -> int:
        """What a leader writes into a report."""
        return self._context.cluster_duration(self._context.consumer_retention_ns) + self.jumped

    # ---- may it be reported: asked by a leader

    def is_undecided(self, group: str) -> bool:
        """Whether a report of the group is appended and not committed."""
        return any(report.consumer.group == group for report in self._uncommitted)

    def is_anothers(self, group: str, principal: bytes, cluster_time: int) -> bool:
        """Whether another principal has reported the group first."""
        known = self._kept(group, cluster_time)
        return known is not None and known.principal != principal

    def _kept(self, group: str, cluster_time: int) -> _Group | None:
        known = self._groups.get(group)
        return None if known is None or known.is_expired(cluster_time, self.retention) else known

    def refusal(self, consumer: Consumer, principal: bytes, commit_position: int, cluster_time: int) -> str:
        """Why the principal, whose the group is, cannot report it so; empty when it can."""
        known = self._kept(consumer.group, cluster_time)
        said = f"consumer group {consumer.group}"
        if consumer.position > commit_position:
            return f"{said}: position {consumer.position} is beyond the commit position {commit_position}"
        if known is None:
            whose = {report.consumer.group: report.named.principal for report in self._uncommitted}
            for name, group in self._groups.items():
                if not group.is_expired(cluster_time, self.retention):
                    whose[name] = group.principal
            if (free := self._context.consumers_max - len(whose)) <= 0:
                return f"{said}: {len(whose)} groups are kept, as many as consumers_max allows"
            taken = list(whose.values()).count(principal)
            if principal and (why := beyond_share(taken, free)):
                return f"{said}: principal {principal_text(principal)} {why} (consumers_max)"
        elif consumer.position < known.position:
            return f"{said}: position {consumer.position} is before {known.position}, which the group is at"
        return ""

    # ---- what a leader appends

    def append_open(self, encoded_principal: bytes, log_position: int, timestamp: int) -> None:
        """A session's open is appended; without a group in its principal it changes nothing."""
        report = _report(encoded_principal, timestamp)
        if report is not None:
            self._uncommitted.add(log_position, report)

    def sweep(self, commit_position: int) -> None:
        for report in self._uncommitted.sweep(commit_position):
            self._take(report)

    def restore_uncommitted(self, commit_position: int) -> None:
        """What is not committed was never reported."""
        self._uncommitted.take_uncommitted(commit_position)

    # ---- what is in the log

    def on_open(self, encoded_principal: bytes, timestamp: int) -> None:
        """A session's open is committed."""
        report = _report(encoded_principal, timestamp)
        if report is not None:
            self._take(report)

    def _take(self, report: _Report) -> None:
        named, consumer = report.named, report.consumer
        self._groups = {
            name: group
            for name, group in self._groups.items()
            if not group.is_expired(report.timestamp, named.retention)
        }
        known = self._groups.setdefault(
            consumer.group, _Group(named.principal, consumer.position, report.timestamp, named.retention)
        )
        known.position = max(known.position, consumer.position)
        known.reported_at, known.retention = report.timestamp, named.retention
        self.changes += 1

    def position_of(self, encoded_principal: bytes) -> int | None:
        """Where the group is that the principal names; None without one."""
        consumer = ConsumerPrincipal.decode(encoded_principal).consumer
        known = None if consumer is None else self._groups.get(consumer.group)
        return None if known is None else known.position

    def positions(self) -> dict[str, int]:
        """Of each group by its name."""
        return {name: group.position for name, group in self._groups.items()}

    def slowest(self, cluster_time: int) -> Consumer | None:
        """The group that needs most of the log, with its position; None where none is kept any more."""
        live = (
            (group.position, name)
            for name, group in self._groups.items()
            if not group.is_expired(cluster_time - self.jumped, group.retention)
        )
        first = min(live, default=None)
        return None if first is None else Consumer(first[1], first[0])

    # ---- snapshots

    def records(self) -> Iterator[SnapshotConsumer]:
        """All groups, in an order that is the same on every member."""
        for name, group in sorted(self._groups.items()):
            yield SnapshotConsumer(
                position=group.position,
                reported_at=group.reported_at,
                retention=group.retention,
                group=name.encode(),
                encoded_principal=group.principal,
            )

    def load(self, records: list[SnapshotConsumer], log_position: int) -> None:
        """Begin from a snapshot at ``log_position``; later positions are of another log."""
        self.changes += 1
        for record in records:
            self._groups[record.group.decode()] = _Group(
                record.encoded_principal,
                min(record.position, log_position),
                record.reported_at,
                record.retention,
            )


def _report(encoded_principal: bytes, timestamp: int) -> _Report | None:
    named = ConsumerPrincipal.decode(encoded_principal)
    return None if named.consumer is None else _Report(named, named.consumer, timestamp)
