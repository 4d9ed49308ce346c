"""The duty cycle of one service container (Aeron: ClusteredServiceAgent).

    INIT --recovery state known, on_start--> ACTIVE --termination position reached, or closed--> CLOSED

In ACTIVE a turn takes one message of the consensus module (stream 104), joins a log when the one
before it is drained, delivers committed log to the service, and hands over what the service answered.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

from cluster.archive.snapshots import SnapshotImage
from cluster.errors import AgentTermination, ClusterError, LocalProtocolError, ServiceError
from cluster.protocol import decode, streams
from cluster.protocol.enums import CloseReason, ClusterAction, ClusterTimeUnit, Role
from cluster.protocol.link import ServiceFailed, ServiceSnapshotDigest
from cluster.protocol.log import (
    ClusterActionRequest,
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
)
from cluster.protocol.service import (
    JoinLog,
    RequestServiceAck,
    ServiceAck,
    ServiceTerminationPosition,
)
from cluster.service.bounded_log_adapter import BoundedLogAdapter
from cluster.service.buffer_claim import Claims
from cluster.service.callbacks import PASSED_ON, RAISED, Callbacks, raised_at
from cluster.service.channel import (
    EGRESS_OVERHEAD,
    EgressBatch,
    LogClosed,
    LogJoined,
    LogSource,
    RecoveryState,
    ServiceChannel,
)
from cluster.service.client_session import ClientSession
from cluster.service.cluster import Cluster
from cluster.service.clustered_service import SessionMessageBatch
from cluster.service.egress import EgressBuilder
from cluster.service.snapshot import Snapshots, container_records, read_container_section

NULL_VALUE = -1
SERVICE_ID_MAX = 9
SERVICE_ACK_TRIES = 5

# Messages a poll of the log delivers. Aeron's limit is 50 fragments; a vectorised service gains from
# more, and a slow one (10 µs a message) still yields well within the 100 ms threshold of a cycle.
LOG_FRAGMENT_LIMIT = 4096
LOG_READ_BYTES = 1024 * 1024
MAX_MESSAGE_LENGTH = 8 * 1024 * 1024  # of the default term length, 64 MiB
APP_VERSION = 1  # 0.0.1


class DutyCycleTracker(Protocol):
    """Counters 218 and 219 (Aeron: DutyCycleStallTracker)."""

    def measure_and_update(self, now_ns: int) -> None: ...


class State(Enum):
    INIT = "waiting for the recovery state"
    ACTIVE = "running"
    CLOSED = "ended"


class ClusteredServiceAgent:
    """Feeds one ClusteredService with the committed log, in the order and with the acks of Aeron.

    ``commit_position`` reads the member's commit-pos. ``client_id`` stands in the first ServiceAck, as
    the Aeron client's does. ``do_work`` raises ServiceError for an exception of a callback after it has
    moved past the event, so whoever runs the agent counts it, logs it, and calls again or ends the member;
    AgentTermination ends it.
    """

    def __init__(
        self,
        service: Any,
        channel: ServiceChannel,
        commit_position: Callable[[], int],
        *,
        service_id: int = 0,
        cluster_id: int = 0,
        client_id: int = 0,
        app_version: int = APP_VERSION,
        log_fragment_limit: int = LOG_FRAGMENT_LIMIT,
        log_read_bytes: int = LOG_READ_BYTES,
        max_message_length: int = MAX_MESSAGE_LENGTH,
        is_responder: bool = True,
        duty_cycle_tracker: DutyCycleTracker | None = None,
        snapshots: Snapshots | None = None,
    ) -> None:
        assert 0 <= service_id <= SERVICE_ID_MAX
        assert client_id != NULL_VALUE
        self.service_id = service_id
        self.cluster_id = cluster_id
        self.member_id = NULL_VALUE
        self.role = Role.FOLLOWER
        self.log_position = 0
        self.cluster_time = 0
        self.leadership_term_id = NULL_VALUE
        self.time_unit: ClusterTimeUnit | None = None
        self.sessions: dict[int, ClientSession] = {}

        self._callbacks = Callbacks(service, service_id, lambda: self.log_position)
        self._channel = channel
        self._commit_position = commit_position
        self._client_id = client_id
        self._app_version = app_version
        self.max_message_length = max_message_length
        self.is_responder = is_responder
        self._tracker = duty_cycle_tracker
        self._snapshots = snapshots
        self._cluster = Cluster(self)
        self._adapter = BoundedLogAdapter(self, log_fragment_limit, log_read_bytes, max_message_length)
        self.check_may_send = self._callbacks.check_may_send
        self.claims = Claims(self.check_may_send)
        self.control_room = channel.control_room
        self.egress_room = channel.egress_room
        self._egress = EgressBuilder()

        self._state = State.INIT
        self._now_ns = 0
        self._ack_id = 0
        self._sessions_by_id: tuple[ClientSession, ...] | None = ()
        self.batch: SessionMessageBatch | None = None  # the one being delivered
        self._pending_join: tuple[JoinLog, LogSource] | None = None
        self._termination_position: int | None = None
        self._is_termination_ack_required = False
        self._requested_ack_position: int | None = None

    # -- running --

    @property
    def is_closed(self) -> bool:
        """Ended: terminated as the consensus module asked, closed, or failed to start."""
        return self._state is State.CLOSED

    @property
    def is_reading(self) -> bool:
        """Whether the adapter may go on: answers that nobody took refer to what it has read last."""
        return self._state is State.ACTIVE and not self._channel.has_egress

    @property
    def joined_position(self) -> int:
        """How far into the log this service has come; the position of S-188."""
        return self._adapter.position

    def do_work(self, now_ns: int, cluster_time: int) -> int:
        """Take one turn and return how much was done; 0 lets the runner idle."""
        self._now_ns = now_ns
        if self._state is State.INIT:
            return self._recover()
        if self._state is State.CLOSED:
            return 0
        if self._tracker is not None:
            self._tracker.measure_and_update(now_ns)

        work_count = self._poll_consensus_module()
        if self.is_reading:
            try:
                work_count += self._adapter.poll(self._commit_position())
            except ServiceError as error:
                self._on_service_error(error)
                raise
            finally:
                self._flush_egress()
                self._channel.log_position = self._adapter.position
            if self._adapter.is_done:
                self._close_log()
                work_count += 1
        if self._callbacks.has_background_work and self._state is State.ACTIVE:
            work_count += self._do_background_work()
        return work_count

    def idle(self) -> None:
        """Let the consensus module take what this service has sent, within a callback.

        Raises AgentTermination when nothing can be waited for: the container is to end.
        """
        if self._channel.is_closed or self._state is State.CLOSED:
            raise AgentTermination("the service container is closed")
        self._hand_over()
        if self._callbacks.has_background_work:
            self._do_background_work()

    def close(self) -> None:
        """End the container; ``on_terminate`` is called when it has run and was not terminated."""
        was_active = self._state is State.ACTIVE
        self._state = State.CLOSED
        if was_active:
            self._callbacks.call_guarded("on_terminate", self._cluster)

    def _recover(self) -> int:
        recovery = self._channel.recovery
        if recovery is None:
            return 0
        try:
            self.log_position = recovery.log_position
            self.cluster_time = recovery.timestamp
            self._adapter.start(recovery.log_position)
            image = self._load_snapshot(recovery) if recovery.leadership_term_id != NULL_VALUE else None
            self._callbacks.call_guarded("on_start", self._cluster, image)
        except Exception as error:
            self._state = State.CLOSED
            self._ack(NULL_VALUE)
            what = str(error)
            if isinstance(error, ServiceError):
                cause = error.__cause__
                assert cause is not None
                what = f"{cause} ({error.cause_name} at {raised_at(cause)})"
            raise AgentTermination(f"service {self.service_id} failed to start: {what}") from error
        self._state = State.ACTIVE
        self._ack(self._client_id)
        return 1

    def _load_snapshot(self, recovery: RecoveryState) -> SnapshotImage:
        """Take over the sessions; the image then stands at what the service wrote."""
        assert self._snapshots is not None
        image = self._snapshots.open(recovery.snapshot_recording_ids[self.service_id])
        marker, sessions = read_container_section(image, recovery.log_position)
        if marker.app_version >> 16 != self._app_version >> 16:
            raise ClusterError(
                f"the snapshot has app version {_version(marker.app_version)}, "
                f"the service {_version(self._app_version)}"
            )
        self.leadership_term_id = recovery.leadership_term_id
        self.time_unit = marker.time_unit or ClusterTimeUnit.MILLIS
        for session in sessions:
            self.sessions[session.cluster_session_id] = ClientSession(
                session.cluster_session_id,
                session.response_stream_id,
                session.response_channel,
                bytes(session.encoded_principal),
                self._cluster,
            )
        self._sessions_by_id = None
        return image

    def _do_background_work(self) -> int:
        return int(self._callbacks.call_guarded("do_background_work", self._now_ns) or 0)

    # -- what the consensus module says --

    def _poll_consensus_module(self) -> int:
        work_count = 0
        if self._pending_join is None:
            message = self._channel.poll_service()
            if message is not None:
                work_count += 1
                self._on_control(message)
        if self._pending_join is not None and not self._adapter.has_log:
            work_count += 1
            self._join_log(*self._pending_join)
        position = self._termination_position
        if position is not None and self._adapter.position >= position:
            work_count += 1
            self._terminate(is_expected=self._adapter.position == position or position == 0)
        position = self._requested_ack_position
        if position is not None and self._adapter.position >= position:
            work_count += 1
            self._requested_ack_position = None
            self._ack(NULL_VALUE)
        return work_count

    def _on_control(self, message: bytes | LogJoined | LogClosed) -> None:
        match message:
            case LogClosed(position):
                self._adapter.limit_to(position)
            case LogJoined(encoded, log):
                join = JoinLog.decode(encoded)
                self._adapter.limit_to(join.log_position)
                self._pending_join = (join, log)
            case bytes() as encoded:
                match decode(encoded):
                    case ServiceTerminationPosition() as termination:
                        self._termination_position = termination.log_position
                        self._is_termination_ack_required = bool(termination.ack_required)
                    case RequestServiceAck() as request:
                        self._requested_ack_position = request.log_position
                    case other:
                        raise LocalProtocolError(f"a service was sent {type(other).__name__}")

    def _join_log(self, join: JoinLog, log: LogSource) -> None:
        self._pending_join = None
        if join.log_position != self._adapter.position:
            raise ClusterError(
                f"cannot join the log at position {join.log_position}: "
                f"service {self.service_id} is at {self._adapter.position}"
            )
        role = Role(join.role)
        if role is not Role.LEADER:
            self._disconnect_egress()
        self._adapter.join(log, join.max_log_position)
        self._ack(NULL_VALUE)
        self.member_id = join.member_id
        if role is Role.LEADER:
            for session in self.sessions.values():
                session._is_connected = self.is_responder and not join.is_startup
                session._is_closing = False
        self._change_role(role)

    def _close_log(self) -> None:
        self._adapter.leave()
        self._disconnect_egress()
        self._change_role(Role.FOLLOWER)

    def _change_role(self, role: Role) -> None:
        if role is not self.role:
            self.role = role
            self._callbacks.call_guarded("on_role_change", role)

    def _disconnect_egress(self) -> None:
        for session in self.sessions.values():
            session._is_connected = False

    def _terminate(self, is_expected: bool) -> None:
        position = self._termination_position
        self._termination_position = None
        self._state = State.CLOSED
        try:
            self._callbacks.call_guarded("on_terminate", self._cluster)
        finally:
            if self._is_termination_ack_required:
                self._ack(NULL_VALUE)
        if not is_expected:
            raise AgentTermination(
                f"service {self.service_id} is at {self._adapter.position}, "
                f"past the termination position {position}"
            )

    def _ack(self, relevant_id: int) -> None:
        ack = ServiceAck(
            log_position=self._adapter.position,
            timestamp=self.cluster_time,
            ack_id=self._ack_id,
            relevant_id=relevant_id,
            service_id=self.service_id,
        ).encode()
        for _ in range(SERVICE_ACK_TRIES):
            if self._channel.offer_to_consensus_module(ack):
                self._ack_id += 1
                return
            if self._channel.on_idle is not None:
                self._channel.on_idle()
        raise AgentTermination(f"service {self.service_id}: the consensus module takes no acknowledgement")

    def _hand_over(self) -> None:
        """Give the consensus module what was sent so far, without an end of the turn."""
        self._flush_egress()
        if self._channel.on_idle is not None:
            self._channel.on_idle()

    def _make_room(self) -> None:
        """Before a callback: what the ones before have sent is not to get into its way."""
        if self.egress_room.is_half_used or self.control_room.is_half_used:
            self._hand_over()

    # -- what the log says: called by the adapter, which has moved on already --

    def on_messages(self, batch: SessionMessageBatch) -> None:
        """Deliver a run of session messages."""
        deliver = self._callbacks.on_message
        if self._callbacks.is_vectorised:
            self._on_batch(batch)
            return
        sessions = self.sessions
        advance = self._adapter.advance
        rows = zip(
            batch.session_ids.tolist(),
            batch.timestamps.tolist(),
            batch.positions.tolist(),
            batch.payloads(),
        )
        session_id = NULL_VALUE
        try:
            for session_id, timestamp, position, payload in rows:
                self.log_position = position
                self.cluster_time = timestamp
                advance(position)
                self._make_room()
                if deliver is not None:
                    deliver(sessions.get(session_id), timestamp, payload)
        except PASSED_ON:
            raise
        except RAISED as error:
            raise self._callbacks.error("on_session_message", error, session_id) from error

    def _on_batch(self, batch: SessionMessageBatch) -> None:
        """Deliver a batch; when that raises, its messages one at a time, to pass over those alone that raise.

        How the log is cut into batches differs between members, and so would what they leave out.
        """
        try:
            self._call_batch(batch)
        except ServiceError:
            if len(batch) > 1:
                for row in range(len(batch)):
                    self._call_batch(batch.row(row))
            raise  # one message, or the batch although none of its messages did

    def _call_batch(self, batch: SessionMessageBatch) -> None:
        self.log_position = int(batch.positions[-1])
        self.cluster_time = int(batch.timestamps[-1])
        self._adapter.advance(self.log_position)
        self._make_room()
        self.batch = batch
        try:
            self._callbacks.call_batch(batch)
        finally:
            self.batch = None

    def _on_service_error(self, error: ServiceError) -> None:
        """Tell the client whose message it was, on the leader; its claims are nobody's any more."""
        self.claims.abort_all()
        session_id = error.cluster_session_id
        session = None if session_id is None else self.sessions.get(session_id)
        if session is not None and session._is_connected:
            what = f"service {self.service_id} raised {error.cause_name} in {error.callback}"
            failed = ServiceFailed(session.id, f"{what} at position {error.log_position}")
            self._channel.offer_to_consensus_module(failed.encode(), error.log_position)

    def on_entry(self, message: Any, position: int) -> None:
        """Deliver any other log entry, which ends at ``position``; None is a template we do not know."""
        self.log_position = position
        self._make_room()
        match message:
            case TimerEvent():
                self.cluster_time = message.timestamp
                self._callbacks.call("on_timer_event", message.correlation_id, message.timestamp)
            case SessionOpenEvent():
                self._on_session_open(message)
            case SessionCloseEvent():
                self._on_session_close(message)
            case NewLeadershipTermEvent():
                self._on_new_leadership_term(message)
            case ClusterActionRequest():
                self.cluster_time = message.timestamp
                self._on_action(message)

    def _on_session_open(self, event: SessionOpenEvent) -> None:
        self.cluster_time = event.timestamp
        session_id = event.cluster_session_id
        if session_id in self.sessions:
            raise ClusterError(f"the log opens session {session_id} at {self.log_position}, which is open")
        session = ClientSession(
            session_id,
            event.response_stream_id,
            event.response_channel,
            bytes(event.encoded_principal),
            self._cluster,
        )
        session._is_connected = self.role is Role.LEADER and self.is_responder
        self.sessions[session_id] = session
        self._sessions_by_id = None
        self._callbacks.call("on_session_open", session, event.timestamp, cluster_session_id=session_id)

    def _on_session_close(self, event: SessionCloseEvent) -> None:
        self.cluster_time = event.timestamp
        session = self.sessions.pop(event.cluster_session_id, None)
        if session is None:
            raise ClusterError(
                f"the log closes the unknown session {event.cluster_session_id} at {self.log_position}"
            )
        self._sessions_by_id = None
        session._is_connected = session._is_open = False
        self._callbacks.call("on_session_close", session, event.timestamp, CloseReason(event.close_reason))

    def _on_new_leadership_term(self, event: NewLeadershipTermEvent) -> None:
        if event.app_version >> 16 != self._app_version >> 16:
            self._state = State.CLOSED
            raise AgentTermination(
                f"service {self.service_id} has app version {_version(self._app_version)}, "
                f"the log at {self.log_position} has {_version(event.app_version)}"
            )
        self._flush_egress()  # what was answered so far belongs to the term before
        self.leadership_term_id = event.leadership_term_id
        self.cluster_time = event.timestamp
        self.time_unit = event.time_unit or ClusterTimeUnit.MILLIS  # absent in old logs
        self._callbacks.call("on_new_leadership_term_event", event)

    def _on_action(self, request: ClusterActionRequest) -> None:
        if request.action == ClusterAction.SNAPSHOT and request.flags == 0:
            try:
                recording_id = self._take_snapshot()
            except ServiceError:
                self._ack(NULL_VALUE)  # says that there is no snapshot of this service
                raise
            except Exception as error:
                self._ack(NULL_VALUE)
                raise ClusterError(
                    f"service {self.service_id} took no snapshot at position {self.log_position}: {error}"
                ) from error
            self._ack(recording_id)

    def _take_snapshot(self) -> int:
        """Record the sessions and what the service writes; return the recording's id once it is safe."""
        snapshots = self._snapshots
        if snapshots is None:
            raise ClusterError("the container was given no archive for snapshots")
        self._flush_egress()
        publication = snapshots.create(streams.SERVICE_SNAPSHOT, self.service_id, self.log_position)
        try:
            for record in container_records(
                self.client_sessions(),
                log_position=self.log_position,
                leadership_term_id=self.leadership_term_id,
                time_unit=self.time_unit or ClusterTimeUnit.MILLIS,
                app_version=self._app_version,
            ):
                publication.offer(record)
            publication.digest = 0
            self._callbacks.call_guarded("on_take_snapshot", publication)
            recording_id = snapshots.complete(publication)
        except Exception:
            snapshots.discard(publication.recording_id)
            raise
        if self._callbacks.compares_snapshots:
            message = ServiceSnapshotDigest(self.service_id, self.log_position, publication.digest)
            self._channel.offer_to_consensus_module(message.encode(), self.log_position)
        return recording_id

    # -- what Cluster and ClientSession build on --

    def client_sessions(self) -> tuple[ClientSession, ...]:
        """The open sessions by ascending id."""
        if self._sessions_by_id is None:
            self._sessions_by_id = tuple(self.sessions[id_] for id_ in sorted(self.sessions))
        return self._sessions_by_id

    def send(self, message: bytes) -> bool:
        """Queue an encoded message for the consensus module; False is back pressure."""
        if self._channel.is_closed:
            raise ClusterError("the consensus module is gone: its channel is closed")
        return self._channel.offer_to_consensus_module(message, self.log_position)

    def append_egress(self, session_id: int, payload: bytes) -> bool:
        """Give one answer; False is back pressure."""
        length = EGRESS_OVERHEAD + len(payload)
        if not self.egress_room.has(length):
            return False
        self.egress_room.used += length
        self._egress.append(session_id, self.cluster_time, payload)
        return True

    def offer_egress(self, batch: EgressBatch) -> bool:
        """Hand over a batch of answers, behind those given one at a time; False is back pressure."""
        length = batch.byte_count
        if not self.egress_room.has(length):
            return False
        self.egress_room.used += length
        self._flush_egress()
        self._channel.offer_egress(batch)
        return True

    def _flush_egress(self) -> None:
        if len(self._egress):
            self._channel.offer_egress(self._egress.build(self.leadership_term_id))


def _version(version: int) -> str:
    return f"{version >> 16}.{version >> 8 & 0xFF}.{version & 0xFF}"
