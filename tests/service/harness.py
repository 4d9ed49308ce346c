"""A service container without a consensus module: the test writes the log and plays the module's part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cluster.errors import ServiceError
from cluster.log.append import append_message, message_end_position
from cluster.log.frames import LogParams
from cluster.protocol import decode
from cluster.protocol.enums import CloseReason, ClusterAction, ClusterTimeUnit, Role
from cluster.protocol.log import (
    ClusterActionRequest,
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
)
from cluster.protocol.service import JoinLog, RequestServiceAck, ServiceAck, ServiceTerminationPosition
from cluster.protocol.session import SessionMessageHeader
from cluster.service.agent import ClusteredServiceAgent
from cluster.service.channel import RecoveryState, ServiceChannel, ServiceEgress
from cluster.service.container_snapshot import ArchivedSnapshots
from cluster.service.service_context import ServiceContext

LIVE = 2**63 - 1
NEW_TERM_LENGTH = 8 + NewLeadershipTermEvent.BLOCK_LENGTH
PARAMS = LogParams(term_length=64 * 1024, mtu=1408, initial_term_id=7, session_id=77)


class LogUnderTest:
    """The whole log in one array; each method appends an entry and returns the position after it."""

    def __init__(self, params: LogParams = PARAMS) -> None:
        self.params = params
        self.end = 0
        self.term_id = -1
        self._bytes = np.zeros(1 << 20, np.uint8)

    def read(self, position: int, max_length: int, out: np.ndarray | None = None) -> np.ndarray:
        length = min(max_length, self.end - position)
        assert length >= 0
        data = self._bytes[position : position + length]
        if out is None:
            return data.copy()
        out[:length] = data
        return out[:length]

    def append(self, message: bytes) -> int:
        while self.end + 4 * len(message) + 65_536 > len(self._bytes):
            self._bytes = np.concatenate([self._bytes, np.zeros_like(self._bytes)])
        self.end = append_message(self._bytes, self.end, self.end, self.params, message)
        return self.end

    def append_raw(self, frames: bytes) -> int:
        self._bytes[self.end : self.end + len(frames)] = np.frombuffer(frames, np.uint8)
        self.end += len(frames)
        return self.end

    def raw(self, begin: int, end: int) -> bytes:
        return self._bytes[begin:end].tobytes()

    def term(self, timestamp: int = 0, app_version: int = 1, leader_member_id: int = 0) -> int:
        self.term_id += 1
        event = NewLeadershipTermEvent(
            leadership_term_id=self.term_id,
            log_position=message_end_position(self.end, NEW_TERM_LENGTH, self.params),
            timestamp=timestamp,
            term_base_log_position=self.end,
            leader_member_id=leader_member_id,
            log_session_id=77,
            time_unit=ClusterTimeUnit.MILLIS,
            app_version=app_version,
        )
        return self.append(event.encode())

    def opened(self, session_id: int, timestamp: int = 0, principal: bytes = b"") -> int:
        return self.append(
            SessionOpenEvent(
                leadership_term_id=self.term_id,
                correlation_id=900 + session_id,
                cluster_session_id=session_id,
                timestamp=timestamp,
                response_stream_id=102,
                response_channel=f"channel-{session_id}",
                encoded_principal=principal,
            ).encode()
        )

    def closed(
        self, session_id: int, timestamp: int = 0, reason: CloseReason = CloseReason.CLIENT_ACTION
    ) -> int:
        return self.append(
            SessionCloseEvent(
                leadership_term_id=self.term_id,
                cluster_session_id=session_id,
                timestamp=timestamp,
                close_reason=reason,
            ).encode()
        )

    def message(self, session_id: int, payload: bytes, timestamp: int = 0) -> int:
        header = SessionMessageHeader(
            leadership_term_id=self.term_id, cluster_session_id=session_id, timestamp=timestamp
        )
        return self.append(header.encode() + payload)

    def timer(self, correlation_id: int, timestamp: int = 0) -> int:
        return self.append(
            TimerEvent(
                leadership_term_id=self.term_id, correlation_id=correlation_id, timestamp=timestamp
            ).encode()
        )

    def action(self, action: ClusterAction, flags: int = 0) -> int:
        return self.append(
            ClusterActionRequest(
                leadership_term_id=self.term_id, log_position=0, timestamp=0, action=action, flags=flags
            ).encode()
        )


class Recorder:
    """A service that notes every callback, with log position and time as it sees them."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.cluster: Any = None
        self.do: dict[str, Any] = {}  # callback name -> what to do in it, with the callback's arguments

    def _note(self, name: str, *arguments: Any) -> None:
        self.calls.append((name, *arguments))
        if name in self.do:
            self.do[name](*arguments)

    @property
    def names(self) -> list[str]:
        return [call[0] for call in self.calls]

    def on_start(self, cluster: Any, snapshot_image: Any) -> None:
        self.cluster = cluster
        self._note("on_start", cluster, snapshot_image)

    def on_session_open(self, session: Any, timestamp: int) -> None:
        self._note("on_session_open", session, timestamp)

    def on_session_close(self, session: Any, timestamp: int, close_reason: Any) -> None:
        self._note("on_session_close", session, timestamp, close_reason)

    def on_session_message(self, session: Any, timestamp: int, buffer: memoryview) -> None:
        self._note("on_session_message", session, timestamp, bytes(buffer))

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self._note("on_timer_event", correlation_id, timestamp)

    def on_role_change(self, new_role: Any) -> None:
        self._note("on_role_change", new_role)

    def on_new_leadership_term_event(self, event: Any) -> None:
        self._note("on_new_leadership_term_event", event)

    def on_terminate(self, cluster: Any) -> None:
        self._note("on_terminate", cluster)


class Container:
    """The agent with its channel, and the moves of a consensus module as methods."""

    def __init__(
        self,
        service: Any,
        *,
        archive: Any = None,
        on_reported: Callable[[ServiceError], None] = lambda error: None,
        **settings: Any,
    ) -> None:
        self.service = service
        self.log = LogUnderTest()
        self.channel = ServiceChannel(
            **{k: settings.pop(k) for k in ("capacity", "egress_capacity") if k in settings}
        )
        self.commit_position = 0
        self.sent: list[Any] = []  # messages of stream 105, decoded; session messages as (header, payload)
        self.egress: list[ServiceEgress] = []
        self.agent = ClusteredServiceAgent(
            service,
            self.channel,
            lambda: self.commit_position,
            ServiceContext(client_id=5, **settings),
            snapshots=None
            if archive is None
            else ArchivedSnapshots(settings.get("service_id", 0), archive, self.channel),
            on_reported=on_reported,
        )

    def start(self) -> Container:
        self.channel.recovery = RecoveryState()
        self.turn()
        return self

    def turn(self, count: int = 1) -> int:
        """Let the agent take turns, and take what it sent after each."""
        work_count = 0
        for _ in range(count):
            try:
                work_count += self.agent.do_work(now_ns=0, cluster_time=0)
            finally:
                self._drain()
        return work_count

    def settle(self) -> Container:
        while self.turn():
            pass
        return self

    def join(
        self,
        role: Role = Role.LEADER,
        *,
        position: int | None = None,
        max_position: int = LIVE,
        is_startup: bool = False,
        member_id: int = 0,
    ) -> Container:
        join = JoinLog(
            log_position=self.agent.joined_position if position is None else position,
            max_log_position=max_position,
            member_id=member_id,
            log_session_id=77,
            log_stream_id=100,
            is_startup=is_startup,
            role=role,
            log_channel="aeron:ipc",
        )
        self.channel.join_log(join.encode(), self.log)
        return self

    def commit(self, position: int | None = None) -> Container:
        """Commit the whole log, or up to a position, and let the service read it."""
        self.commit_position = self.log.end if position is None else position
        return self.settle()

    def terminate_at(self, position: int, ack_required: bool = True) -> Container:
        message = ServiceTerminationPosition(log_position=position, ack_required=ack_required)
        self.channel.send_to_service(message.encode())
        return self

    def request_ack_at(self, position: int) -> Container:
        self.channel.send_to_service(RequestServiceAck(log_position=position).encode())
        return self

    @property
    def acks(self) -> list[ServiceAck]:
        return [message for message in self.sent if isinstance(message, ServiceAck)]

    def answers(self) -> list[tuple[int, int, bytes]]:
        """Everything sent to clients so far: (session id, time, payload)."""
        rows = []
        for batch in self.egress:
            for session_id, timestamp, offset, length in zip(
                batch.session_ids.tolist(),
                batch.timestamps.tolist(),
                batch.offsets.tolist(),
                batch.lengths.tolist(),
                strict=True,
            ):
                rows.append((session_id, timestamp, batch.buffer[offset : offset + length].tobytes()))
        return rows

    def _drain(self) -> None:
        while (message := self.channel.poll_consensus_module()) is not None:
            decoded = decode(message)
            if isinstance(decoded, SessionMessageHeader):
                self.sent.append((decoded, message[32:]))
            else:
                self.sent.append(decoded)
        while (batch := self.channel.poll_egress()) is not None:
            # What the module frames at once has to be kept here: the buffers are the service's.
            self.egress.append(
                ServiceEgress(
                    batch.leadership_term_id,
                    *(column.copy() for column in (batch.session_ids, batch.timestamps)),
                    *(column.copy() for column in (batch.offsets, batch.lengths, batch.buffer)),
                    batch.numbers,
                    batch.answer_ids,
                )
            )


def a_leader(service: Any, **settings: Any) -> Container:
    """A started container that has joined a live log as leader and seen the begin of its first term."""
    container = Container(service, **settings).start()
    container.join(Role.LEADER).turn()
    container.log.term()
    return container.commit()


def a_follower(service: Any, **settings: Any) -> Container:
    """The same on a follower."""
    container = Container(service, **settings).start()
    container.join(Role.FOLLOWER).turn()
    container.log.term()
    return container.commit()


def errors_of(container: Container) -> list[ServiceError]:
    """Commit everything, as a runner does that goes on after each error."""
    errors = []
    container.commit_position = container.log.end
    while container.agent.joined_position < container.log.end:
        try:
            container.turn()
        except ServiceError as error:
            errors.append(error)
    container.settle()
    return errors
