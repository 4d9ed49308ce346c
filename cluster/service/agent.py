"""The duty cycle of one service container (Aeron: ClusteredServiceAgent).

    INIT --recovery state known, on_start--> ACTIVE --termination position reached, or closed--> CLOSED

In ACTIVE a turn takes one message of the consensus module (stream 104), joins a log when the one
before it is drained, delivers committed log to the service, and hands over what the service answered.
"""

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any, Protocol, TypeAlias

import numpy as np

from cluster.archive.log_cursor import LogSource
from cluster.archive.snapshot_archive import SnapshotImage, SnapshotPublication
from cluster.errors import AgentTermination, ClusterError, LocalProtocolError, ServiceError
from cluster.log.message_calls import NOT_TAKEN
from cluster.protocol import NULL_VALUE, decode
from cluster.protocol.enums import CloseReason, ClusterAction, ClusterTimeUnit, Role, takes_snapshot
from cluster.protocol.link import ServiceFailed
from cluster.protocol.log import (
    ClusterActionRequest,
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
)
from cluster.protocol.service import JoinLog, RequestServiceAck, ServiceAck, ServiceTerminationPosition
from cluster.protocol.versions import version_text
from cluster.service.batch_answers import BatchAnswers
from cluster.service.bounded_log_adapter import BoundedLogAdapter
from cluster.service.callbacks import PASSED_ON, RAISED, Callbacks, raised_at
from cluster.service.channel import NO_NUMBERS, LogClosed, LogJoined, RecoveryState, ServiceChannel
from cluster.service.cluster import Cluster
from cluster.service.compiled_callback import NAME as COMPILED_CALLBACK
from cluster.service.compiled_callback import CompiledCallback
from cluster.service.container_snapshot import Snapshots, container_records, read_container_section
from cluster.service.idle_strategy import IdleStrategy
from cluster.service.message_batch import SessionMessageBatch
from cluster.service.open_sessions import OpenSessions
from cluster.service.outbox import Outbox
from cluster.service.service_context import ServiceContext
from cluster.service.service_state import ServiceState

Numbers: TypeAlias = np.ndarray  # int64, of messages in their sessions
SERVICE_ACK_TRIES = 5


class DutyCycleTracker(Protocol):
    """Counters 218 and 219 (Aeron: DutyCycleStallTracker)."""

    def update(self, now_ns: int) -> None: ...

    def measure(self, gap_ns: int) -> None: ...

    def measure_and_update(self, now_ns: int) -> object: ...


class ServicePhase(Enum):
    INIT = "waiting for the recovery state"
    ACTIVE = "running"
    CLOSED = "ended"


class ClusteredServiceAgent:
    """Feeds one ClusteredService with the committed log, in the order and with the acks of Aeron.

    ``commit_position`` reads the member's commit-pos. ``do_work`` raises ServiceError for an exception of a
    callback after it has moved past the event, so whoever runs the agent counts it, logs it, and calls again
    or ends the member; AgentTermination ends it. ``on_reported`` gets what a callback reports and does not
    raise.
    """

    def __init__(
        self,
        service: Any,
        channel: ServiceChannel,
        commit_position: Callable[[], int],
        context: ServiceContext,
        *,
        duty_cycle_tracker: DutyCycleTracker | None = None,
        snapshots: Snapshots | None = None,
        on_reported: Callable[[ServiceError], None] = lambda error: None,
    ) -> None:
        self.state = ServiceState()
        self._context = context = replace(context, error_handler=self._report)
        self._name = f"service {context.service_id}"
        self._callbacks = Callbacks(service, context.service_id, lambda: self.state.log_position)
        self._channel = channel
        self._commit_position = commit_position
        self._tracker = duty_cycle_tracker
        self._on_reported = on_reported
        self._snapshots = snapshots
        self.compiled: CompiledCallback | None = None  # of a service that has it, from its start on
        self._outbox = Outbox(channel, self.state, self._callbacks.check_may_send)
        self._sessions = OpenSessions(self.state, self._outbox, context)
        self.numbers = self._sessions.numbers
        self._answers = BatchAnswers(context, self.state, self._sessions, self._outbox)
        self._cluster = Cluster(
            context, self.state, self._sessions, self._outbox, self._answers, IdleStrategy(self.idle)
        )
        self.adapter = BoundedLogAdapter(
            self, context.log_fragment_limit, context.log_read_bytes, context.max_message_length
        )
        self._phase = ServicePhase.INIT
        self._now_ns = 0
        self._ack_id = 0
        self._pending_join: tuple[JoinLog, LogSource] | None = None
        self._termination_position: int | None = None
        self._is_termination_ack_required = False
        self._requested_ack_position: int | None = None

    # -- running --

    @property
    def is_closed(self) -> bool:
        """Ended: terminated as the consensus module asked, closed, or failed to start."""
        return self._phase is ServicePhase.CLOSED

    @property
    def is_reading(self) -> bool:
        """Whether the adapter may go on: answers that nobody took refer to what it has read last."""
        return self._phase is ServicePhase.ACTIVE and not self._channel.has_egress

    @property
    def is_compiled(self) -> bool:
        """Whether compiled turns can stand for the service: its member may then do without this agent's."""
        compiled = self.compiled
        return self._callbacks.is_echo if compiled is None else compiled.is_in_place()

    @property
    def service_id(self) -> int:
        return self._context.service_id

    @property
    def has_supervised_sessions(self) -> bool:
        """Whether there are sessions whose answers every member keeps."""
        return self._sessions.has_supervised

    @property
    def is_responder(self) -> bool:
        return self._context.is_responder

    def on_busy_turns(self, last_ns: int, longest_gap_ns: int) -> None:
        """Its member's compiled turns stood for its own, the last one at ``last_ns``."""
        if self._tracker is not None:
            self._tracker.measure(longest_gap_ns)
            self._tracker.update(last_ns)

    def take_back(self, cluster_time: int) -> None:
        """Compiled turns have delivered the log; the time is that of the last message."""
        self.state.cluster_time = cluster_time
        self.state.log_position = self._channel.log_position = self.adapter.position

    @property
    def joined_position(self) -> int:
        """How far into the log this service has come; the position of S-188."""
        return self.adapter.position

    @property
    def last_callback(self) -> str:
        """The callback of the service that was called last; empty before the first."""
        return self._callbacks.last

    @property
    def awaits_events(self) -> bool:
        """Whether it has come to the commit position, and neither it nor the module waits for the other."""
        channel = self._channel
        return (
            self._phase is ServicePhase.ACTIVE
            and channel.is_taken
            and not channel.has_orders
            and self._pending_join is None
            and self._termination_position is None
            and self._requested_ack_position is None
            and not self._callbacks.has_background_work
            and self.adapter.position >= self._commit_position()
        )

    def do_work(self, now_ns: int, cluster_time: int) -> int:
        """Take one turn and return how much was done; 0 lets the runner idle."""
        self._now_ns = now_ns
        if self._phase is ServicePhase.INIT:
            return self._recover()
        if self._phase is ServicePhase.CLOSED:
            return 0
        if self._tracker is not None:
            self._tracker.measure_and_update(now_ns)

        work_count = self._poll_consensus_module()
        if self.is_reading:
            try:
                work_count += self.adapter.poll(self._commit_position())
            except ServiceError as error:
                self._on_service_error(error)
                raise
            finally:
                self._outbox.flush()
                self._channel.log_position = self.adapter.position
            if self.adapter.is_done:
                self._close_log()
                work_count += 1
        if self._callbacks.has_background_work and self._phase is ServicePhase.ACTIVE:
            work_count += self._do_background_work()
        return work_count

    def idle(self) -> None:
        """Let the module take what was sent, in a callback. Raises AgentTermination at the end."""
        if self._channel.is_closed or self._phase is ServicePhase.CLOSED:
            raise AgentTermination("the service container is closed")
        self._hand_over()
        if self._callbacks.has_background_work:
            self._do_background_work()

    def close(self) -> None:
        """End the container; ``on_terminate`` is called when it has run and was not terminated."""
        was_active = self._phase is ServicePhase.ACTIVE
        self._phase = ServicePhase.CLOSED
        if was_active:
            self._callbacks.call_guarded("on_terminate", self._cluster)

    def _recover(self) -> int:
        recovery = self._channel.recovery
        if recovery is None:
            return 0
        try:
            self.state.log_position = recovery.log_position
            self.state.cluster_time = recovery.timestamp
            self.adapter.advance(recovery.log_position)
            image = self._load_snapshot(recovery) if recovery.leadership_term_id != NULL_VALUE else None
            self._callbacks.call_guarded("on_start", self._cluster, image)
            self.compiled = self._callbacks.compiled()
        except Exception as error:
            self._phase = ServicePhase.CLOSED
            self._ack(NULL_VALUE)
            what = str(error)
            if isinstance(error, ServiceError):
                cause = error.__cause__
                assert cause is not None
                what = f"{cause} ({error.cause_name} at {raised_at(cause)})"
            raise AgentTermination(f"{self._name} failed to start: {what}") from error
        self._phase = ServicePhase.ACTIVE
        self._ack(self._context.client_id)
        return 1

    def _load_snapshot(self, recovery: RecoveryState) -> SnapshotImage:
        """Take over the sessions; the image then stands at what the service wrote."""
        assert self._snapshots is not None
        image = self._snapshots.open(recovery.snapshot_recording_ids[self._context.service_id])
        marker, sessions = read_container_section(image, recovery.log_position)
        if marker.app_version >> 16 != self._context.app_version >> 16:
            raise ClusterError(
                f"the snapshot has app version {version_text(marker.app_version)}, "
                f"the service {version_text(self._context.app_version)}"
            )
        self.state.leadership_term_id = recovery.leadership_term_id
        self.state.time_unit = marker.time_unit or ClusterTimeUnit.MILLIS
        for session in sessions:
            self._sessions.open(session)
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
        if self._pending_join is not None and not self.adapter.has_log:
            work_count += 1
            self._join_log(*self._pending_join)
        position = self._termination_position
        if position is not None and self.adapter.position >= position:
            work_count += 1
            self._terminate(is_expected=self.adapter.position == position or position == 0)
        position = self._requested_ack_position
        if position is not None and self.adapter.position >= position:
            work_count += 1
            self._requested_ack_position = None
            self._ack(NULL_VALUE)
        return work_count

    def _on_control(self, message: bytes | LogJoined | LogClosed) -> None:
        match message:
            case LogClosed(position):
                self.adapter.limit_to(position)
            case LogJoined(encoded, log):
                join = JoinLog.decode(encoded)
                self.adapter.limit_to(join.log_position)
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
        if join.log_position != self.adapter.position:
            raise ClusterError(
                f"cannot join the log at position {join.log_position}: "
                f"{self._name} is at {self.adapter.position}"
            )
        role = Role(join.role)
        if role is not Role.LEADER:
            self._sessions.disconnect()
        self.adapter.join(log, join.max_log_position)
        self._ack(NULL_VALUE)
        self.state.member_id = join.member_id
        self.state.is_standby = bool(join.is_standby)
        if role is Role.LEADER:
            self._sessions.begin_leading(is_connected=self._context.is_responder and not join.is_startup)
        self._change_role(role)

    def _close_log(self) -> None:
        self.adapter.leave()
        self._sessions.disconnect()
        self._change_role(Role.FOLLOWER)

    def _change_role(self, role: Role) -> None:
        if role is not self.state.role:
            self.state.role = role
            self._callbacks.call_guarded("on_role_change", role)

    def _terminate(self, is_expected: bool) -> None:
        position = self._termination_position
        self._termination_position = None
        self._phase = ServicePhase.CLOSED
        try:
            self._callbacks.call_guarded("on_terminate", self._cluster)
        finally:
            if self._is_termination_ack_required:
                self._ack(NULL_VALUE)
        if not is_expected:
            raise AgentTermination(
                f"{self._name} is at {self.adapter.position}, past the termination position {position}"
            )

    def _ack(self, relevant_id: int) -> None:
        ack = ServiceAck(
            log_position=self.adapter.position,
            timestamp=self.state.cluster_time,
            ack_id=self._ack_id,
            relevant_id=relevant_id,
            service_id=self._context.service_id,
        ).encode()
        for _ in range(SERVICE_ACK_TRIES):
            if self._channel.offer_to_consensus_module(ack):
                self._ack_id += 1
                return
            if self._channel.on_idle is not None:
                self._channel.on_idle()
        raise AgentTermination(f"{self._name}: the consensus module takes no acknowledgement")

    def _hand_over(self) -> None:
        """Give the consensus module what was sent so far, without an end of the turn."""
        self._outbox.flush()
        if self._channel.on_idle is not None:
            self._channel.on_idle()

    def _make_room(self) -> None:
        """Before a callback: what the ones before have sent is not to get into its way."""
        if self._outbox.is_half_full:
            self._hand_over()

    # -- what the log says: called by the adapter, which has moved on already --

    def on_messages(self, batch: SessionMessageBatch) -> None:
        """Deliver a run of session messages, of which a callback that raises takes no more than its own."""
        numbers = self.numbers.number(batch.session_ids)
        try:
            if self.compiled is not None:
                self._on_compiled(self.compiled, batch, numbers)
            elif self._callbacks.is_vectorised:
                self._on_batch(batch, numbers)
            else:
                self._on_each(batch, numbers)
        except BaseException:
            self.numbers.take_back(batch.session_ids[batch.positions > self.state.log_position])
            raise

    def _on_each(self, batch: SessionMessageBatch, numbers: Numbers) -> None:
        deliver, state = self._callbacks.on_message, self.state
        self._callbacks.last = "on_session_message"
        sessions = self._sessions.by_id
        advance = self.adapter.advance
        rows = zip(
            batch.session_ids.tolist(),
            batch.timestamps.tolist(),
            batch.positions.tolist(),
            numbers.tolist(),
            batch.payloads(),
        )
        session_id = NULL_VALUE
        try:
            for session_id, timestamp, position, number, payload in rows:
                state.log_position = position
                state.cluster_time = timestamp
                state.message_session_id, state.message_number = session_id, number
                advance(position)
                self._make_room()
                if deliver is not None:
                    deliver(sessions.get(session_id), timestamp, payload)
        except PASSED_ON:
            raise
        except RAISED as error:
            raise self._callbacks.error("on_session_message", error, session_id) from error

    def _on_compiled(self, compiled: CompiledCallback, batch: SessionMessageBatch, numbers: Numbers) -> None:
        """Deliver a batch to the compiled callback, and what that does not take to ``on_session_message``."""
        row = 0
        while row < len(batch):
            self._make_room()
            self._callbacks.last = COMPILED_CALLBACK
            try:
                taken = compiled.take(batch, numbers, row)
            except RAISED as error:
                self._move_to(batch.row(row))
                raise self._callbacks.error(COMPILED_CALLBACK, error) from error
            if taken > row:
                self._move_to(batch.row(taken - 1))
                self._offer(compiled)
            row = taken
            if compiled.is_refused:
                self._on_refused(compiled, batch.row(row), int(numbers[row]))
                row += 1

    def _on_refused(self, compiled: CompiledCallback, message: SessionMessageBatch, number: int) -> None:
        self._move_to(message)
        self._make_room()
        session_id = int(message.session_ids[0])
        try:
            returned = compiled.returned_for(message, number)
        except PASSED_ON:
            raise
        except RAISED as error:
            raise self._callbacks.error(COMPILED_CALLBACK, error, session_id) from error
        if returned == NOT_TAKEN:
            self.state.message_session_id, self.state.message_number = session_id, number
            arguments = self._sessions.by_id.get(session_id), self.state.cluster_time, message.payload(0)
            self._callbacks.call("on_session_message", *arguments, cluster_session_id=session_id)
            self.state.message_number = 0
        else:
            self._offer(compiled)

    def _move_to(self, message: SessionMessageBatch) -> None:
        """One message, and all before it, is delivered."""
        self.state.log_position = int(message.positions[0])
        self.state.cluster_time = int(message.timestamps[0])
        self.adapter.advance(self.state.log_position)

    def _offer(self, compiled: CompiledCallback) -> None:
        """Send the answers that the compiled callback has left."""
        answers = compiled.answers
        if answers.count:
            offsets, lengths = answers.offsets, answers.lengths
            used = answers.buffer[: offsets[-1] + lengths[-1]]
            columns = answers.session_ids, offsets, lengths, used
            self._answers.offer(*columns, answers.timestamps, answers.numbers)

    def _on_batch(self, batch: SessionMessageBatch, numbers: Numbers) -> None:
        """Deliver a batch; if that raises, message by message: how the log is cut differs between members."""
        try:
            self._call_batch(batch, numbers)
        except ServiceError:
            if len(batch) > 1:
                for row in range(len(batch)):
                    self._call_batch(batch.row(row), numbers[row : row + 1])
            raise  # one message, or the batch although none of its messages did

    def _call_batch(self, batch: SessionMessageBatch, numbers: Numbers) -> None:
        self.state.log_position = int(batch.positions[-1])
        self.state.cluster_time = int(batch.timestamps[-1])
        self.adapter.advance(self.state.log_position)
        self._make_room()
        self.state.batch, self.state.batch_numbers = batch, numbers
        try:
            session_id = int(batch.session_ids[0]) if len(batch) == 1 else None
            self._callbacks.call("on_session_messages", batch, cluster_session_id=session_id)
        finally:
            self.state.batch, self.state.batch_numbers = None, NO_NUMBERS

    def _on_service_error(self, error: ServiceError) -> None:
        """Report to the client whose message it was, on the leader; its claims are nobody's any more."""
        self._outbox.abort_claims()
        session_id = error.cluster_session_id
        if session_id is not None and self._sessions.is_connected(session_id):
            what = f"{self._name} raised {error.cause_name} in {error.callback}"
            failed = ServiceFailed(session_id, f"{what} at position {error.log_position}")
            self._channel.offer_to_consensus_module(failed.encode(), error.log_position)

    def _report(self, error: Exception) -> None:
        """The ``error_handler`` of ``cluster.context()``."""
        self._on_reported(self._callbacks.reported(error))

    def on_entry(self, message: Any, position: int) -> None:
        """Deliver any other log entry, which ends at ``position``; None is a template we do not know."""
        self.state.log_position, self.state.message_number = position, 0
        self._make_room()
        match message:
            case TimerEvent():
                self.state.cluster_time = message.timestamp
                self._callbacks.call("on_timer_event", message.correlation_id, message.timestamp)
            case SessionOpenEvent():
                self._on_session_open(message)
            case SessionCloseEvent():
                self._on_session_close(message)
            case NewLeadershipTermEvent():
                self._on_new_leadership_term(message)
            case ClusterActionRequest():
                self.state.cluster_time = message.timestamp
                self._on_action(message)

    def _on_session_open(self, event: SessionOpenEvent) -> None:
        self.state.cluster_time = event.timestamp
        session_id = event.cluster_session_id
        if session_id in self._sessions:
            raise ClusterError(
                f"the log opens session {session_id} at {self.state.log_position}, which is open"
            )
        is_connected = self.state.role is Role.LEADER and self._context.is_responder
        session = self._sessions.open(event, is_connected=is_connected)
        self._callbacks.call("on_session_open", session, event.timestamp, cluster_session_id=session_id)

    def _on_session_close(self, event: SessionCloseEvent) -> None:
        self.state.cluster_time = event.timestamp
        session = self._sessions.close(event.cluster_session_id)
        if session is None:
            raise ClusterError(
                f"the log closes the unknown session {event.cluster_session_id} at {self.state.log_position}"
            )
        self._callbacks.call("on_session_close", session, event.timestamp, CloseReason(event.close_reason))

    def _on_new_leadership_term(self, event: NewLeadershipTermEvent) -> None:
        if event.app_version >> 16 != self._context.app_version >> 16:
            self._phase = ServicePhase.CLOSED
            raise AgentTermination(
                f"{self._name} has app version {version_text(self._context.app_version)}, "
                f"the log at {self.state.log_position} has {version_text(event.app_version)}"
            )
        self._outbox.flush()  # what was answered so far belongs to the term before
        self.state.leadership_term_id = event.leadership_term_id
        self.state.cluster_time = event.timestamp
        self.state.time_unit = event.time_unit or ClusterTimeUnit.MILLIS  # absent in old logs
        self._callbacks.call("on_new_leadership_term_event", event)

    def _on_action(self, request: ClusterActionRequest) -> None:
        if request.action == ClusterAction.SNAPSHOT and takes_snapshot(
            request.flags, is_standby=self.state.is_standby
        ):
            try:
                recording_id = self._take_snapshot()
            except ServiceError:
                self._ack(NULL_VALUE)  # says that there is no snapshot of this service
                raise
            except Exception as error:
                self._ack(NULL_VALUE)
                raise ClusterError(
                    f"{self._name} took no snapshot at position {self.state.log_position}: {error}"
                ) from error
            self._ack(recording_id)

    def _take_snapshot(self) -> int:
        """Have the sessions and what the service writes recorded; return the recording's id."""
        if self._snapshots is None:
            raise ClusterError("the container was given no archive for snapshots")
        self._outbox.flush()
        return self._snapshots.take(self.state.log_position, self._write_snapshot)

    def _write_snapshot(self, publication: SnapshotPublication) -> int:
        for record in container_records(
            self._sessions.records(),
            log_position=self.state.log_position,
            leadership_term_id=self.state.leadership_term_id,
            time_unit=self.state.time_unit or ClusterTimeUnit.MILLIS,
            app_version=self._context.app_version,
        ):
            publication.offer(record)
        publication.digest = 0
        self._callbacks.call_guarded("on_take_snapshot", publication)
        return publication.digest if self._callbacks.compares_snapshots else NULL_VALUE
