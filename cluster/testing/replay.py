"""The whole log once more, through a service that starts from nothing: what state and answers must be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cluster.archive.log_cursor import LogSource
from cluster.archive.snapshot_archive import digest
from cluster.errors import LocalProtocolError, ServiceError
from cluster.protocol import streams
from cluster.protocol.enums import Role
from cluster.protocol.service import JoinLog
from cluster.service.agent import ClusteredServiceAgent
from cluster.service.channel import RecoveryState, ServiceChannel
from cluster.service.clustered_service import ClusteredService
from cluster.service.container_snapshot import NO_RECORDING
from cluster.service.service_context import ServiceContext
from cluster.testing.world import MS


class SnapshotRecords:
    """A snapshot publication that keeps what a service writes."""

    def __init__(self, max_message_length: int) -> None:
        self.max_message_length = max_message_length
        self.records: list[bytes] = []
        self.digest = 0

    def offer(self, *message: Any) -> int:
        data = b"".join(bytes(part) for part in message)
        if not 0 < len(data) <= self.max_message_length:
            raise LocalProtocolError(
                f"a message of {len(data)} bytes for a snapshot: 1 to {self.max_message_length} are allowed"
            )
        self.records.append(data)
        self.digest = digest(data, self.digest)
        return len(self.records)


class _Unkept:
    """Snapshots that a replay comes by: written, and thrown away."""

    def __init__(self, max_message_length: int) -> None:
        self._max_message_length = max_message_length

    def take(self, log_position: int, write: Callable[[Any], int]) -> int:
        """As ``Snapshots.take``: nobody wants it."""
        write(SnapshotRecords(self._max_message_length))
        return NO_RECORDING


@dataclass
class Replay:
    """``state`` is what the service would write into a snapshot; ``answers`` are by session id."""

    state: tuple[bytes, ...] = ()
    answers: dict[int, list[bytes]] = field(default_factory=dict)


def replay_log(
    service: ClusteredService, log: LogSource, end: int, *, service_id: int, max_message_length: int
) -> Replay:
    """Give a service ``[0, end)`` of a log, as a leader that has just started does."""
    context = ServiceContext(service_id=service_id, client_id=1, max_message_length=max_message_length)
    channel = ServiceChannel()
    unkept: Any = _Unkept(max_message_length)
    agent = ClusteredServiceAgent(service, channel, lambda: end, context, snapshots=unkept)
    channel.recovery = RecoveryState()
    joined = JoinLog(
        log_position=0,
        max_log_position=end,
        member_id=0,
        log_session_id=0,
        log_stream_id=streams.LOG,
        is_startup=True,
        role=Role.LEADER,
        is_standby=False,
        log_channel="",
    )
    channel.join_log(joined.encode(), log)
    replayed, now_ns = Replay(), 0
    while agent.joined_position < end:
        try:
            agent.do_work(now_ns, now_ns // MS)
        except ServiceError:
            pass  # as on the members, which have told it
        _take(channel, replayed)
        now_ns += MS
    records = SnapshotRecords(max_message_length)
    service.on_take_snapshot(records)
    replayed.state = tuple(records.records)
    return replayed


def _take(channel: ServiceChannel, replayed: Replay) -> None:
    """Whatever a consensus module would take of it; answers are kept."""
    while channel.poll_consensus_module() is not None:
        pass
    while (batch := channel.poll_egress()) is not None:
        columns = batch.session_ids.tolist(), batch.offsets.tolist(), batch.lengths.tolist()
        for session_id, offset, length in zip(*columns):
            payload = batch.buffer[offset : offset + length].tobytes()
            replayed.answers.setdefault(session_id, []).append(payload)
