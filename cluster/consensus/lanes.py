"""Lanes, on every member: how many rows of which batch each has in the log (protocol/lane.py).

    SessionOpenEvent of a later batch   rows begin at 0, from here on
                     of the same batch  rows stay, another session holds the lane
    messages of the holder              counted by the kernels, in the session's slot
    SessionCloseEvent of the holder     the slot's count is added to the lane's

All of it follows from the log, and outlives sessions. What a leader appends changes a lane when it is
committed, and until then nobody else opens that lane. So there is nothing to undo, and what a lane has when a
session's open is committed is exactly what lies before that open. A lane that a session holds is opened by
another only after the holder's close: the order of the log fences the holder off.

An application that opened no lane for a while is forgotten when another opens one: by the time of that
entry, and the retention that its leader has written there, so on all members. That retention is what is
configured and, in addition, how far the leader has seen cluster time jump. An application that no session
writes for is forgotten at once by the open of a session with the partition FORGET.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from cluster.consensus.context import NULL_VALUE, ConsensusModuleContext
from cluster.consensus.module import UncommittedEntries
from cluster.log.session_table import SessionTable
from cluster.protocol.lane import (
    REGISTRATION,
    Lane,
    LanePrincipal,
    LaneStanding,
    registered_text,
    unknown_text,
)
from cluster.protocol.shares import FREE_MULTIPLE, beyond_share, principal_text
from cluster.protocol.snapshot import SnapshotLane


class _State:
    """One lane. ``rows`` are those before its holder's open, or all of them when nobody holds it."""

    __slots__ = ("batch", "begin", "end", "first_session_id", "holder_id", "partitions", "rows")

    def __init__(self, lane: Lane, session_id: int, log_position: int) -> None:
        self.batch = lane.batch
        self.partitions = lane.partitions
        self.rows = 0
        self.first_session_id = self.holder_id = session_id
        self.begin = self.end = log_position


@dataclass(eq=False, slots=True)
class _Application:
    """Whose it is, its lanes by partition, and the cluster time at which one was opened last."""

    principal: bytes
    opened_at: int = 0
    lanes: dict[int, _State] = field(default_factory=dict)

    @property
    def is_taken(self) -> bool:
        return any(state.holder_id != NULL_VALUE for state in self.lanes.values())


class _Opened(NamedTuple):
    session_id: int
    lane: Lane
    principal: bytes
    retention: int
    log_position: int
    timestamp: int


def _opened(session_id: int, encoded_principal: bytes, log_position: int, timestamp: int) -> _Opened | None:
    """None for a session without a lane."""
    principal, lane, retention = LanePrincipal.decode(encoded_principal)
    if lane is None:
        return None
    return _Opened(session_id, lane, principal, retention, log_position, timestamp)


class LaneTable:
    """All lanes. ``table`` has the counts of the sessions that hold them."""

    def __init__(self, context: ConsensusModuleContext, table: SessionTable) -> None:
        self.jumped = 0  # cluster time, as far as this member has seen it
        self._context = context
        self._table = table
        self._applications: dict[str, _Application] = {}  # the one that was opened last stands last
        self._by_session: dict[int, _State] = {}
        self._count = 0
        self._uncommitted: UncommittedEntries[_Opened | int] = UncommittedEntries()

    def __len__(self) -> int:
        return self._count

    @property
    def retention(self) -> int:
        """What a leader writes into an open."""
        return self._context.cluster_duration(self._context.lane_retention_ns) + self.jumped

    # ---- may it be opened: asked by a leader

    def is_undecided(self, lane: Lane) -> bool:
        """Whether an open is appended and not committed on which this one depends."""
        is_known = lane.application in self._applications
        return any(
            opened.lane.application == lane.application
            and (
                not is_known
                or opened.lane.partition == lane.partition
                or min(opened.lane.partition, lane.partition) < 0  # about all lanes of the application
            )
            for opened in self._uncommitted
            if isinstance(opened, _Opened)
        )

    def is_anothers(self, lane: Lane, principal: bytes) -> bool:
        """Whether another principal has opened lanes of the application."""
        known = self._applications.get(lane.application)
        return known is not None and known.principal != principal

    def refusal(self, lane: Lane, principal: bytes, timestamp: int) -> str:
        """Why the principal, whose the application is, cannot open the lane; empty when it can."""
        if lane.is_known and lane.application not in self._applications and not self.is_undecided(lane):
            return unknown_text(lane)
        if lane.is_forgetting:
            return self._unfinished(lane.application)
        lanes = self._lanes_of(lane.application)
        state, registered = lanes.get(lane.partition), lanes.get(REGISTRATION)
        if registered is not None and lane.batch <= registered.batch:
            return self._registered(lane, registered)
        if state is not None and lane.batch < state.batch:
            return f"lane {lane}: batch {lane.batch} is older than {state.batch}, which the lane is at"
        if lane.is_registration and lanes:
            return self._unlike(lane, lanes)
        if state is None and (why := self._fullness(lane.application, principal, timestamp)):
            return f"lane {lane}: {why}"
        return ""

    def _lanes_of(self, application: str) -> dict[int, _State]:
        known = self._applications.get(application)
        return {} if known is None else known.lanes

    def _unfinished(self, application: str) -> str:
        """Why the application cannot be forgotten; empty when it can."""
        known = self._applications.get(application)
        if known is None:
            return f"application {application} has no lanes"
        ids = [state.holder_id for _, state in sorted(known.lanes.items()) if state.holder_id != NULL_VALUE]
        return (
            f"application {application} is not finished: session {ids[0]} holds a lane of it" if ids else ""
        )

    @staticmethod
    def _registered(lane: Lane, registered: _State) -> str:
        is_same = lane.is_registration and lane.batch == registered.batch
        if is_same and lane.partitions != registered.partitions:
            return (
                f"batch {lane.batch} of {lane.application} was registered with {registered.partitions} "
                f"partitions, not with {lane.partitions}"
            )
        return registered_text(lane, registered.batch)

    def _unlike(self, lane: Lane, lanes: dict[int, _State]) -> str:
        """Where the rows of the batch are others than those that are to be registered."""
        of_batch = sorted(lanes.items())
        rows = {partition: self._rows(state) for partition, state in of_batch if state.batch == lane.batch}
        beyond = next(
            (partition for partition in rows if partition >= lane.partitions and rows[partition]), None
        )
        has = f"batch {lane.batch} of {lane.application} has"
        if beyond is not None:
            return (
                f"{has} {rows[beyond]} rows in partition {beyond}, "
                f"which one of {lane.partitions} partitions has not"
            )
        if (total := sum(rows.values())) != lane.rows:
            return f"{has} {total} rows in the log, and is to be registered with {lane.rows}"
        return ""

    def _rows(self, state: _State) -> int:
        """With those of the holder that are appended."""
        slot = self._table.slot_of(state.holder_id)
        return state.rows + (int(self._table.slots["appended"][slot]) if slot >= 0 else 0)

    def _fullness(self, application: str, principal: bytes, timestamp: int) -> str:
        """Why no lane more of the application is kept for the principal; empty when one is."""
        opened = [entry.principal for entry in self._uncommitted if isinstance(entry, _Opened)]
        expired = self._expired(application, timestamp - self.retention)
        forgotten = sum(len(self._applications[name].lanes) for name in expired)
        taken = self._count + len(opened) - forgotten
        free = self._context.lanes_max - taken
        if free <= 0:
            return f"{taken} lanes are kept, as many as lanes_max allows"
        if not principal or self._count + len(opened) < FREE_MULTIPLE * free:
            return ""
        whose = (len(known.lanes) for known in self._applications.values() if known.principal == principal)
        why = beyond_share(sum(whose) + opened.count(principal), free)
        return why and f"principal {principal_text(principal)} {why} (lanes_max)"

    def _expired(self, application: str, since: int) -> list[str]:
        """Those that an open of ``application`` drops."""
        applications = self._applications.items()
        old = takewhile(lambda item: item[1].opened_at < since, applications)
        return [name for name, known in old if not known.is_taken and name != application]

    def holder_ids(self, lane: Lane) -> list[int]:
        """Sessions that are to be closed before the lane is opened: a registration ends those of all."""
        lanes = self._lanes_of(lane.application)
        states = [state for p, state in sorted(lanes.items()) if lane.is_registration or p == lane.partition]
        return [state.holder_id for state in states if state.holder_id != NULL_VALUE]

    # ---- what a leader appends

    def append_open(
        self, session_id: int, encoded_principal: bytes, log_position: int, timestamp: int
    ) -> None:
        """A session's open is appended; without a lane in its principal it changes nothing."""
        opened = _opened(session_id, encoded_principal, log_position, timestamp)
        if opened is not None:
            self._uncommitted.add(log_position, opened)

    def append_close(self, session_id: int, log_position: int) -> None:
        """A session's close is appended."""
        self._uncommitted.add(log_position, session_id)

    def sweep(self, commit_position: int) -> None:
        """Messages before the commit position are counted, and the slots of closed sessions still there."""
        for entry in self._uncommitted.sweep(commit_position):
            if isinstance(entry, _Opened):
                self._open(entry)
            else:
                self.on_close(entry)

    def restore_uncommitted(self, commit_position: int) -> None:
        """What is not committed was never written."""
        self._uncommitted.take_uncommitted(commit_position)

    # ---- what is in the log

    def on_open(self, session_id: int, encoded_principal: bytes, log_position: int, timestamp: int) -> None:
        """A session's open that ends at ``log_position`` is committed."""
        opened = _opened(session_id, encoded_principal, log_position, timestamp)
        if opened is not None:
            self._open(opened)

    def _open(self, opened: _Opened) -> None:
        lane = opened.lane
        for name in self._expired(lane.application, opened.timestamp - opened.retention):
            self._count -= len(self._applications.pop(name).lanes)
        if lane.is_forgetting:
            if lane.application in self._applications and not self._unfinished(lane.application):
                self._count -= len(self._applications.pop(lane.application).lanes)
            return
        known = self._applications.pop(lane.application, None) or _Application(opened.principal)
        self._applications[lane.application] = known
        known.opened_at = opened.timestamp
        state = known.lanes.get(lane.partition)
        self._count += state is None
        if state is None or state.batch != lane.batch:
            state = known.lanes[lane.partition] = _State(lane, opened.session_id, opened.log_position)
        state.holder_id = opened.session_id
        self._by_session[opened.session_id] = state

    def on_close(self, session_id: int) -> None:
        """A session's close is committed; its slot is still in the table."""
        state = self._by_session.pop(session_id, None)
        if state is None or state.holder_id != session_id:
            return
        row = self._table.slots[self._table.slot_of(session_id)]
        if row["committed"]:
            state.rows += int(row["committed"])
            state.end = int(row["committed_position"])
        state.holder_id = NULL_VALUE

    def standing(self, session_id: int) -> LaneStanding | None:
        """What was in when the session opened the lane that it holds; None for one that holds none."""
        state = self._by_session.get(session_id)
        if state is None:
            return None
        return LaneStanding(state.rows, state.begin, state.end, state.first_session_id)

    # ---- snapshots

    def records(self) -> Iterator[SnapshotLane]:
        """All lanes, in an order that is the same on every member."""
        for name, known in sorted(self._applications.items()):
            for partition, state in sorted(known.lanes.items()):
                yield SnapshotLane(
                    partition=partition,
                    partitions=state.partitions,
                    batch=state.batch,
                    rows=state.rows,
                    begin_position=state.begin,
                    end_position=state.end,
                    first_session_id=state.first_session_id,
                    holder_session_id=state.holder_id,
                    opened_at=known.opened_at,
                    application=name.encode(),
                    encoded_principal=known.principal,
                )

    def load(self, records: list[SnapshotLane], log_position: int) -> None:
        """Begin from a snapshot at ``log_position``; later positions are of another log."""
        for record in sorted(records, key=lambda record: record.opened_at):
            name = record.application.decode()
            lane = Lane(name, record.partition, record.batch, record.partitions)
            state = _State(lane, record.first_session_id, min(record.begin_position, log_position))
            state.rows, state.holder_id = record.rows, record.holder_session_id
            state.end = min(record.end_position, log_position)
            known = self._applications.setdefault(name, _Application(record.encoded_principal))
            known.opened_at = record.opened_at
            known.lanes[record.partition] = state
            self._count += 1
            if state.holder_id != NULL_VALUE:
                self._by_session[state.holder_id] = state
