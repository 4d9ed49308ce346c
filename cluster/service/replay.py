"""A service and a part of a log once more, beside any member: what it sends, and what it saves.

    nothing, or a snapshot ──▶ ClusteredServiceAgent ──▶ what it sends and saves
    log [begin, end)       ──▶

It is the agent that members run, as it is on a leader: a session that is open can be answered.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from cluster.archive.log_cursor import LogSource
from cluster.archive.snapshot_archive import SnapshotImage, digest
from cluster.errors import LocalProtocolError, ServiceError
from cluster.protocol import decode, streams
from cluster.protocol.enums import Role, SnapshotMark
from cluster.protocol.service import CancelTimer, CloseSession, JoinLog, ScheduleTimer
from cluster.protocol.session import SessionMessageHeader
from cluster.protocol.snapshot import SnapshotMarker
from cluster.service.agent import ClusteredServiceAgent
from cluster.service.channel import RecoveryState, ServiceChannel, ServiceEgress
from cluster.service.clustered_service import ClusteredService
from cluster.service.container_snapshot import NO_RECORDING
from cluster.service.service_context import ServiceContext

TURN_NS = 1_000_000  # how much later a turn is than the one before it, to background work
POSITION_MAX = 1 << 62  # a log is not closed where a replay pauses
HEADER_LENGTH = 8 + SessionMessageHeader.BLOCK_LENGTH


class SentKind(Enum):
    """What a service has sent."""

    EGRESS = "an answer to a client"
    SERVICE_MESSAGE = "a message to the cluster"
    SCHEDULE_TIMER = "a timer set, or set again"
    CANCEL_TIMER = "a timer taken back"
    CLOSE_SESSION = "a request to close a session"


class Sent(NamedTuple):
    """``position`` is that after the entry at which it was sent, ``cluster_time`` the time of the entry.

    Of a batch of entries that a service is given at once it is the last one. ``correlation_id`` is a timer's,
    ``deadline`` in cluster time.
    """

    kind: SentKind
    position: int
    cluster_time: int
    cluster_session_id: int | None = None
    correlation_id: int | None = None
    deadline: int | None = None
    payload: bytes | None = None


class Saved(NamedTuple):
    """A snapshot that the log asks for at ``position``: the container's records, then the service's own."""

    position: int
    records: tuple[bytes, ...]

    @property
    def state(self) -> tuple[bytes, ...]:
        """Those that the service has written."""
        ends = (number for number, record in enumerate(self.records) if _is_end(record))
        return self.records[next(ends) + 1 :]


def _is_end(record: bytes) -> bool:
    message = decode(record)
    return isinstance(message, SnapshotMarker) and message.mark is SnapshotMark.END


@dataclass(slots=True)
class SnapshotRecords:
    """A snapshot publication that keeps what a service writes."""

    max_message_length: int
    records: list[bytes] = field(default_factory=list)
    digest: int = 0

    def offer(self, *message: Any) -> int:
        data = b"".join(bytes(part) for part in message)
        if not 0 < len(data) <= self.max_message_length:
            raise LocalProtocolError(
                f"a message of {len(data)} bytes for a snapshot: 1 to {self.max_message_length} are allowed"
            )
        self.records.append(data)
        self.digest = digest(data, self.digest)
        return len(self.records)


@dataclass(slots=True)
class _KeptSnapshots:
    """``Snapshots`` of a replay: one to start from, and those that it comes by."""

    _image: SnapshotImage | None
    _max_message_length: int
    saved: list[Saved] = field(default_factory=list)

    def take(self, log_position: int, write: Callable[[Any], int]) -> int:
        publication = SnapshotRecords(self._max_message_length)
        write(publication)
        self.saved.append(Saved(log_position, tuple(publication.records)))
        return NO_RECORDING

    def open(self, recording_id: int) -> SnapshotImage:
        assert self._image is not None
        return self._image


class ServiceReplay:
    """Gives a log from ``recovery.log_position`` on to a service that has just been made. It starts at once.

    ``recovery`` and ``image`` are those of the snapshot to start from; without them the service starts from
    nothing, at 0. With a ``log_fragment_limit`` of 1 in ``context`` each entry is a turn, so that the
    position of an answer is that of its entry; with more it is that of the last entry of the turn.
    ``is_at_end`` says that the log has no whole message more, though it ends before ``run`` is to. Raises
    AgentTermination when the service cannot start.
    """

    def __init__(
        self,
        service: ClusteredService,
        log: LogSource,
        context: ServiceContext,
        *,
        recovery: RecoveryState | None = None,
        image: SnapshotImage | None = None,
        is_at_end: Callable[[], bool] = lambda: False,
    ) -> None:
        self._service = service
        self._end = 0
        self._now_ns = 0
        self._is_at_end = is_at_end
        self._max_message_length = context.max_message_length
        self._channel = ServiceChannel()
        self._channel.on_idle = self._collect
        self._channel.recovery = recovery = recovery or RecoveryState()
        self._snapshots = _KeptSnapshots(image, context.max_message_length)
        self._agent = ClusteredServiceAgent(
            service, self._channel, lambda: self._end, context, snapshots=self._snapshots
        )
        self._sent: list[Sent] = []
        joined = JoinLog(
            log_position=recovery.log_position,
            max_log_position=POSITION_MAX,
            member_id=context.member_id,
            log_session_id=0,
            log_stream_id=streams.LOG,
            is_startup=False,  # the sessions of the snapshot can be answered
            role=Role.LEADER,
            is_standby=False,
            log_channel="",
        )
        self._channel.join_log(joined.encode(), log)
        self._agent.do_work(self._now_ns, 0)

    @property
    def position(self) -> int:
        """Up to where the service has been given the log."""
        return self._agent.joined_position

    @property
    def compares_snapshots(self) -> bool:
        """Whether the service says that its snapshots are the same wherever its state is."""
        return getattr(self._service, "compares_snapshots", True)

    def run(self, end: int) -> Iterator[Sent | Saved | ServiceError]:
        """Go on to ``end``; what comes of it, in the order of the log. It may go on from there later.

        A callback that raises is passed over, as by members, and its error is among what comes. Raises
        AgentTermination when the log is of another major version of the service, LogDamaged, StorageError.
        """
        self._end = end
        while self.position < self._end and not self._is_at_end():
            error = None
            try:
                self._agent.do_work(self._now_ns, self._now_ns // 1_000_000)
            except ServiceError as raised:
                error = raised
            self._collect()
            yield from self._sent
            self._sent.clear()
            yield from self._snapshots.saved
            self._snapshots.saved.clear()
            if error is not None:
                yield error
            self._now_ns += TURN_NS

    def state(self) -> tuple[bytes, ...]:
        """What the service would write into a snapshot now, without the records of the container."""
        records = SnapshotRecords(self._max_message_length)
        self._service.on_take_snapshot(records)
        return tuple(records.records)

    def _collect(self) -> int:
        """Take what the service has sent, as a consensus module would; returns how much."""
        before = len(self._sent)
        while (batch := self._channel.poll_egress()) is not None:
            self._take_answers(batch)
        while (message := self._channel.poll_consensus_module()) is not None:
            self._take_request(message, self._channel.polled_position)
        return len(self._sent) - before

    def _take_answers(self, batch: ServiceEgress) -> None:
        position = self._agent.state.log_position
        columns = batch.session_ids, batch.timestamps, batch.offsets, batch.lengths
        for session_id, timestamp, offset, length in zip(*(column.tolist() for column in columns)):
            payload = batch.buffer[offset : offset + length].tobytes()
            self._sent.append(
                Sent(SentKind.EGRESS, position, timestamp, cluster_session_id=session_id, payload=payload)
            )

    def _take_request(self, encoded: bytes, position: int) -> None:
        fields: dict[str, Any]
        match decode(encoded):
            case SessionMessageHeader():
                kind, fields = SentKind.SERVICE_MESSAGE, {"payload": encoded[HEADER_LENGTH:]}
            case ScheduleTimer(correlation_id, deadline):
                kind, fields = (
                    SentKind.SCHEDULE_TIMER,
                    {"correlation_id": correlation_id, "deadline": deadline},
                )
            case CancelTimer(correlation_id):
                kind, fields = SentKind.CANCEL_TIMER, {"correlation_id": correlation_id}
            case CloseSession(session_id):
                kind, fields = SentKind.CLOSE_SESSION, {"cluster_session_id": session_id}
            case _:
                return
        self._sent.append(Sent(kind, position, self._agent.state.cluster_time, **fields))
