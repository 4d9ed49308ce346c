"""Messages from the services to their consensus module, and from it to them (Aeron: ConsensusModuleAdapter).

A service acknowledges each request with an id that counts up; all services together are waited for:

    start 0, each JoinLog, each snapshot, termination: next
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np

from cluster.archive.log_cursor import LogSource
from cluster.consensus.context import ConsensusModuleContext
from cluster.consensus.replica import ReplicatedState
from cluster.errors import ClusterError
from cluster.protocol import decode, streams
from cluster.protocol.enums import Role
from cluster.protocol.link import ServiceFailed, ServiceSnapshot
from cluster.protocol.sbe import HEADER_LENGTH, kind_at
from cluster.protocol.service import (
    CancelTimer,
    CloseSession,
    JoinLog,
    ScheduleTimer,
    ServiceAck,
    ServiceTerminationPosition,
)
from cluster.protocol.session import SessionMessageHeader
from cluster.service.channel import RecoveryState, ServiceChannel

POLL_LIMIT = 4096  # messages a turn; Aeron's 25 fragments are for a queue that another thread fills
_SCHEDULE_TIMER = ScheduleTimer.layout().block
_CANCEL_TIMER = CancelTimer.layout().block


class ServiceRequests(Protocol):
    """What services ask of the sessions (``clients.client_requests.ClientRequests``)."""

    def on_service_close_session(self, session_id: int) -> None: ...

    def on_service_failed(self, session_id: int, detail: str) -> None: ...


@dataclass(eq=False, slots=True)
class _Awaited:
    """One ack of every service; ``on_acked`` is None when nobody waits for it any more."""

    log_position: int
    on_acked: Callable[[list[ServiceAck]], None] | None
    is_join: bool


@dataclass(eq=False)
class ServiceAdapter:
    """All service channels of one member, by service id."""

    _context: ConsensusModuleContext
    _replica: ReplicatedState
    _channels: tuple[ServiceChannel, ...]
    _requests: ServiceRequests
    _publish_egress: Callable[[], int]  # sends what services have answered, and returns how much that was
    written_snapshots: dict[int, ServiceSnapshot] = field(default_factory=dict)  # by recording, to be taken
    _expected_ack_id: int = 0
    _awaited: deque[_Awaited] = field(default_factory=deque)  # what was asked for, in the order of the acks
    _has_log: bool = False

    def __post_init__(self) -> None:
        self._acks: list[deque[ServiceAck]] = [deque() for _ in self._channels]
        for service_id, channel in enumerate(self._channels):
            channel.on_idle = partial(self._on_idle, service_id)

    # ---- to the services

    def start(self, recovery: RecoveryState, on_acked: Callable[[list[ServiceAck]], None]) -> None:
        """Let the services start from a snapshot, or from nothing."""
        for channel in self._channels:
            channel.recovery = recovery
        self.await_acks(recovery.log_position, on_acked)

    def join_log(
        self,
        log: LogSource,
        *,
        log_position: int,
        max_log_position: int,
        log_session_id: int,
        log_stream_id: int,
        is_startup: bool,
        role: Role,
        on_acked: Callable[[list[ServiceAck]], None],
    ) -> None:
        """Have the services read ``[log_position, max_log_position)`` of a log, after what they read now."""
        context = self._context
        channel_name = "aeron:ipc" if log_stream_id == streams.REPLAY else context.log_channel
        message = JoinLog(
            log_position=log_position,
            max_log_position=max_log_position,
            member_id=context.member_id,
            log_session_id=log_session_id,
            log_stream_id=log_stream_id,
            is_startup=is_startup,
            role=role,
            is_standby=context.is_standby,
            log_channel=channel_name,
        ).encode()
        for channel in self._channels:
            channel.join_log(message, log)
        self._has_log = True
        self.await_acks(log_position, on_acked, is_join=True)

    def close_log(self, log_position: int) -> None:
        """The log that the services read ends at ``log_position``; who waited for a join waits no more."""
        for awaited in self._awaited:
            if awaited.is_join:
                awaited.on_acked = None
        if self._has_log:
            self._has_log = False
            for channel in self._channels:
                channel.close_log(log_position)

    def terminate(self, log_position: int, on_acked: Callable[[list[ServiceAck]], None] | None) -> None:
        """Have the services end at ``log_position``."""
        message = ServiceTerminationPosition(log_position, on_acked is not None).encode()
        for channel in self._channels:
            if not channel.is_closed:
                channel.send_to_service(message)
        if on_acked is not None:
            self.await_acks(log_position, on_acked)

    @property
    def first_away(self) -> int | None:
        """Of the services that are away, which those in the member's own process never are."""
        return next((id_ for id_, channel in enumerate(self._channels) if channel.is_away), None)

    def have_answered(self, log_position: int) -> bool:
        """Whether the services have processed the log to here, but for those that are away."""
        return all(
            channel.is_away or (channel.log_position >= log_position and channel.is_taken)
            for channel in self._channels
        )

    # ---- acks

    def await_acks(
        self, log_position: int, on_acked: Callable[[list[ServiceAck]], None], *, is_join: bool = False
    ) -> None:
        """Call ``on_acked`` once every service has acknowledged ``log_position`` with the next id."""
        if self._channels:
            self._awaited.append(_Awaited(log_position, on_acked, is_join))
        else:
            on_acked([])

    def await_snapshot(self, log_position: int, on_acked: Callable[[list[ServiceAck]], None]) -> None:
        """As ``await_acks``, of the snapshot at ``log_position``: what services sent before has come."""

        def on_taken(acks: list[ServiceAck]) -> None:
            self._publish_egress()
            on_acked(acks)

        for channel in self._channels:
            channel.awaited_snapshot = log_position
        self.await_acks(log_position, on_taken)

    def _on_service_ack(self, ack: ServiceAck) -> None:
        if not 0 <= ack.service_id < len(self._acks):
            raise ClusterError(
                f"an ack of service {ack.service_id}, but there are {len(self._acks)} services"
            )
        queue = self._acks[ack.service_id]
        expected = queue[-1].ack_id + 1 if queue else self._expected_ack_id
        if ack.ack_id != expected:
            raise ClusterError(
                f"out of sequence: ack {ack.ack_id} of service {ack.service_id}, expected {expected}"
            )
        queue.append(ack)
        if all(self._acks):
            self._expected_ack_id += 1
            self._on_all_acked([queue.popleft() for queue in self._acks])

    def _on_all_acked(self, acks: list[ServiceAck]) -> None:
        if not self._awaited:
            raise ClusterError(f"out of sequence: services acknowledge what nobody asked for: {acks}")
        awaited = self._awaited.popleft()
        if awaited.on_acked is None:
            return  # of a join that an election has overtaken
        if any(ack.log_position != awaited.log_position for ack in acks):
            raise ClusterError(f"out of sequence: {acks}, expected position {awaited.log_position}")
        awaited.on_acked(acks)

    # ---- taken from the services

    def poll(self, commit_position: int) -> int:
        """Take what the services have sent, by id; ``commit_position`` is of a member without services."""
        work_count = 0
        for service_id in range(len(self._channels)):
            work_count += self._poll(service_id)
        if self._replica.timers.has_events:
            settled = (channel.settled_position for channel in self._channels)
            self._replica.timers.on_services_at(min(settled, default=commit_position))
        return work_count

    def _on_idle(self, service_id: int) -> int:
        """A service waits in a callback for what it has sent to be taken."""
        return self._poll(service_id) + self._publish_egress()

    def _poll(self, service_id: int) -> int:
        channel = self._channels[service_id]
        count = 0
        while count < POLL_LIMIT:
            message = channel.poll_consensus_module()
            if message is None:
                break
            count += 1
            kind = kind_at(message)
            if kind == ScheduleTimer.KIND:
                correlation_id, deadline = _SCHEDULE_TIMER.unpack_from(message, HEADER_LENGTH)
                self._replica.timers.on_schedule(correlation_id, deadline, channel.polled_position)
            elif kind == CancelTimer.KIND:
                self._replica.timers.on_cancel(*_CANCEL_TIMER.unpack_from(message, HEADER_LENGTH))
            elif kind == SessionMessageHeader.KIND:
                self._replica.trackers[service_id].enqueue(message)
            else:
                self._on_other(decode(message))
        return count

    def _on_other(self, message: object) -> None:
        match message:
            case ServiceAck():
                self._on_service_ack(message)
            case CloseSession():
                self._requests.on_service_close_session(message.cluster_session_id)
            case ServiceSnapshot():
                self.written_snapshots[message.recording_id] = message
            case ServiceFailed():
                self._requests.on_service_failed(message.cluster_session_id, message.detail)


def stamped(message: bytes, service_session_id: int, leadership_term_id: int, cluster_time: int) -> bytes:
    """A service's message with the header that it has in the log."""
    header = SessionMessageHeader(leadership_term_id, service_session_id, cluster_time).encode()
    return header + message[len(header) :]


MAX_LOG_POSITION = int(np.iinfo(np.int64).max)
