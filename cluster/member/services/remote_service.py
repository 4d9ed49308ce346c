"""The member's side of a service in a process of its own: it stands where an inline container would.

    consensus module ── ServiceChannel ── RemoteService ── ServiceProcess ··· socket ··· the service

The service may be slow, not come up, or die and be started again: the module elects, leads or follows with
its disk alone. A join of a log is acknowledged at once, for the service reads the log from its file whenever
it comes to it; only its start, the place of a snapshot and an orderly end wait for the service to come there,
and not for ever. What it writes into the snapshot then comes when it comes (ServiceSnapshot). (Aeron's module
waits for each join, and ends with its service's process, C-311; an inline service is as Aeron's.)

``LogLimit`` says how far the log may be read, in the order of joins and closes. The service does not look at
commit-pos itself: it would see it pass the end of a term's log before it knows of that end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cluster.archive.snapshot_archive import SnapshotArchive
from cluster.archive.stored_recording import StoredRecording
from cluster.errors import AgentTermination, ClusterError, LogDamaged, ServiceError
from cluster.log.runs import headers
from cluster.log.words import Word
from cluster.member.services import service_table
from cluster.member.services.service_adapter import MAX_LOG_POSITION
from cluster.member.services.service_progress import LogScript, TakenFromService, replay
from cluster.member.services.snapshot_inlet import NOT_WANTED, SnapshotInlet
from cluster.protocol import NULL_VALUE, decode, streams
from cluster.protocol.frame import HEADER_LENGTH, frame
from cluster.protocol.link import ServiceSnapshot
from cluster.protocol.sbe import Message, kind_at
from cluster.protocol.service import JoinLog, ServiceAck, ServiceTerminationPosition
from cluster.protocol.service_link import (
    LogClose,
    LogJoin,
    LogLimit,
    ServiceAnswers,
    ServiceEnd,
    ServicePosition,
    ServiceRaised,
    ServiceStart,
    SnapshotBegin,
    decode_service_link,
)
from cluster.service.channel import LogClosed, LogJoined, RecoveryState, ServiceChannel, ServiceEgress
from cluster.transport.message_frames import link_frame

START_PATIENCE_NS = 10_000_000_000  # then the member goes on without a service that has not come up
LAG_REPORTED_NS = 1_000_000_000  # a service that lags for so long is reported, and again at each doubling
STANDSTILL_NS = 1_000_000_000  # a service that has log to read and gets no further for so long is away


class ProcessEvents(Protocol):
    """Called about a service's process (``RemoteService``)."""

    def on_connected(self) -> None: ...

    def on_frames(self, buffer: np.ndarray, start: int, end: int) -> None:
        """Whole frames, which hold until the return."""

    def on_lost(self) -> None:
        """The process is gone, or its connection; another one may come."""


class ServiceProcess(Protocol):
    """The process of one service: it is started, and started again when it has ended."""

    @property
    def descriptor(self) -> int | None:
        """Of its socket, where only that and time give ``do_work`` more to do; None where it cannot say."""

    def do_work(self, now_ns: int, events: ProcessEvents, *, is_receiving: bool) -> int: ...

    def send(self, frame: bytes) -> None:
        """Send to the process that is connected; without one, or if it is gone, nothing is sent."""

    def retire(self) -> None:
        """Start none any more."""

    def close(self) -> None:
        """End the process, and start none any more."""


class ServiceGauges(Protocol):
    """What counters show of a service."""

    def show(self, position: ServicePosition) -> None: ...

    def show_standstill(self, stands_ns: int) -> None:
        """For how long it has not come up, or gone no further with log to read; 0 while it goes on."""


@dataclass(frozen=True, slots=True)
class RemotePorts:
    """What a service in a process of its own reaches of its member."""

    process: ServiceProcess
    words: np.ndarray  # its row of the member's ServiceTable
    snapshots: SnapshotArchive
    recording: Callable[[], StoredRecording | None]  # that holds the log
    newest_snapshot: Callable[[int], RecoveryState | None]  # in recording.log, not beyond this position
    commit_position: Callable[[], int]
    gauges: ServiceGauges
    say: Callable[[str], None]
    warn: Callable[[str], None]
    on_error: Callable[[ClusterError], None]  # of the service, or of what it needs
    snapshot_timeout_ns: int
    termination_timeout_ns: int


class RemoteService:
    """Takes turns as a container does; ``do_work`` raises what ends the member, or its life.

    ``words`` goes to kernels (``service_table.py``).
    """

    _position = Word(service_table.SERVED)
    _limit = Word(service_table.LIMIT)
    _unreached = Word(service_table.UNREACHED)

    def __init__(
        self, service_id: int, start: ServiceStart, channel: ServiceChannel, ports: RemotePorts
    ) -> None:
        """``start`` says what the service is; where it starts is put in for each process."""
        self.is_closed = False
        self._service_id = service_id
        self._name = f"service {service_id}"
        self._start = start
        self._channel = channel
        self._ports = ports
        self._inlet = SnapshotInlet(service_id, ports.snapshots, ports.on_error)
        self._script = LogScript()
        self._is_live = False  # the log that was joined last has no end that is known
        self._taken: TakenFromService | None = None  # from the module's start on
        self._has_started = False  # any of its processes
        self._start_due_ns: int | None = None  # until when its start is waited for
        self._next_ack_id = 0
        self._acks_waiting: deque[ServiceAck] = deque()  # of joins, until a snapshot's is given
        self._given_up: set[int] = set()  # positions of snapshots that were not waited for any longer
        self._snapshot_due_ns: int | None = None
        self._termination: tuple[int, int] | None = None  # where it is to end, and until when
        self._is_over = False  # its end is acknowledged
        self._now_ns = 0
        self._seen_ns = 0  # when it was last seen to go on, to have nothing to read, or to start
        self._cluster_time = 0
        self.words = ports.words
        self._words = self.words.data
        self._forget_process()

    def _forget_process(self) -> None:
        self._is_connected = False
        self._has_start = False  # where to start
        self._is_started = False
        self._is_taking_snapshot = False
        self._joins = 0  # that it has not acknowledged
        self._position = self._unreached = 0
        self._limit = NULL_VALUE
        self._lag_reported_ns = 0
        self._seen_position = 0  # where it was last seen to go on, or to have nothing to read

    # -- the turn --

    @property
    def awaits_events(self) -> bool:
        """Whether another turn would find nothing to do but what its process or time gives it."""
        channel = self._channel
        return (
            self._is_started
            and self._ports.process.descriptor is not None
            and channel.is_taken
            and not channel.has_orders
            and not self._acks_waiting
            and channel.awaited_snapshot is None
            and self._termination is None
            and (self._limit >= self._ports.commit_position() or self._unreached == service_table.LIMITS_MAX)
        )

    def lend(self) -> bool:
        """Whether compiled turns stand for it from now on. To be called where it ``awaits_events``."""
        taken, words, descriptor = self._taken, self._words, self._ports.process.descriptor
        words[service_table.LINK] = NULL_VALUE
        if taken is None or not self._is_live or self._position != taken.position or taken.is_said_again:
            return False
        if descriptor is None:
            return False
        words[service_table.LINK], words[service_table.ANSWERED] = descriptor, taken.answers
        return True

    def take_back(self) -> None:
        """Compiled turns have taken what it said."""
        assert self._taken is not None
        self._on_taken(self._position)
        self._taken.answers = self._words[service_table.ANSWERED]

    def do_work(self, now_ns: int, cluster_time: int) -> int:
        """Take the service's messages, and send it the module's. Returns how much was done."""
        self._now_ns, self._cluster_time = now_ns, cluster_time
        channel = self._channel
        has_room = not (channel.control_room.is_half_used or channel.egress_room.is_half_used)
        work_count = self._ports.process.do_work(now_ns, self, is_receiving=has_room)
        if channel.recovery is not None:
            if self._taken is None:
                self._taken = TakenFromService(channel.recovery.log_position)
                self._seen_ns, self._start_due_ns = now_ns, now_ns + START_PATIENCE_NS
            if self._is_connected and not self._has_start:
                self._report_start(channel.recovery, self._taken)
        work_count += self._take_from_module()
        if self._has_start:
            self._send_limit()
            self._report_lag()
        self._check_patience()
        channel.is_away = self._is_away()
        return work_count

    def _is_away(self) -> bool:
        """Whether no process of it has come to where the one before it was, or it stands still."""
        goes_on = not self._unreached or self._position != self._seen_position
        if self._taken is None or (self._is_started and goes_on):
            self._seen_position, self._seen_ns = self._position, self._now_ns
        is_back = self._is_started and self._position >= self._taken_position
        stands_ns = self._now_ns - self._seen_ns
        if stands_ns < (STANDSTILL_NS if self._is_started else START_PATIENCE_NS):
            stands_ns = 0
        self._ports.gauges.show_standstill(stands_ns)
        return not is_back or stands_ns > 0

    def close(self) -> None:
        """End the service's process."""
        self.is_closed = True
        self._ports.process.close()
        if self._inlet.recording_id is not None:
            self._inlet.abandon(b"")

    # -- the process --

    def on_connected(self) -> None:
        self._is_connected = True

    def on_lost(self) -> None:
        if self._inlet.recording_id is not None:
            self._report_snapshot(self._inlet.abandon(b"the process of the service has ended"))
        if self._taken is not None:
            self._taken.on_process_lost()
        self._forget_process()

    def _report_start(self, recovery: RecoveryState, taken: TakenFromService) -> None:
        """Let the process start where the log is to be read from, up to where the one before it was."""
        self._has_start = True
        recovery = self._ports.newest_snapshot(taken.position) or recovery
        self._send(self._start_at(recovery))
        if recovery.log_position < taken.position:
            recording = self._ports.recording()
            assert recording is not None
            member_id = self._start.member_id
            self._send_item(replay(recording, recovery.log_position, taken.position, member_id))
        for item in self._script.resumed(self._taken_position):
            self._send_item(item)

    def _start_at(self, recovery: RecoveryState) -> ServiceStart:
        ids = recovery.snapshot_recording_ids
        return self._start.replace(
            leadership_term_id=recovery.leadership_term_id,
            log_position=recovery.log_position,
            timestamp=recovery.timestamp,
            snapshot_recording_id=ids[self._service_id] if ids else NULL_VALUE,
        )

    @property
    def _taken_position(self) -> int:
        return 0 if self._taken is None else self._taken.position

    def _send(self, message: Message) -> None:
        self._ports.process.send(link_frame(message))

    def _send_item(self, item: LogJoined | LogClosed | bytes) -> None:
        match item:
            case LogJoined(message):
                recording = self._ports.recording()
                assert recording is not None
                self._joins += 1
                self._send(LogJoin(recording.recording_id, recording.checksum or 0, message))
            case LogClosed(position):
                self._send(LogClose(position))
            case bytes():
                self._ports.process.send(frame(item, session_id=0, stream_id=streams.SERVICE))

    def _send_limit(self) -> None:
        if service_table.next_limit(self.words, self._ports.commit_position(), self._now_ns):
            self._send(LogLimit(self._limit))

    def _report_lag(self) -> None:
        """Say that the service is slow, once a second, two, four, ...; and that it is not any more."""
        if not self._unreached:
            if self._lag_reported_ns:
                self._ports.say(f"{self._name} has caught up")
                self._lag_reported_ns = 0
            return
        lag_ns = self._now_ns - self._words[service_table.FIRST_SENT_NS]
        if lag_ns >= max(LAG_REPORTED_NS, 2 * self._lag_reported_ns):
            self._lag_reported_ns = lag_ns
            lag = self._ports.commit_position() - self._position
            self._ports.warn(f"{self._name} lags: {lag} bytes of log, for {lag_ns / 1e9:.1f} s")

    # -- what the module says --

    def _take_from_module(self) -> int:
        work_count = 0
        while (item := self._channel.poll_service()) is not None:
            work_count += 1
            self._script.add(item)
            if self._has_start:
                self._send_item(item)
            match item:
                case LogJoined(message):
                    join = JoinLog.decode(message)
                    self._is_live = join.max_log_position == MAX_LOG_POSITION
                    self._acks_waiting.append(self._ack(join.log_position))
                case LogClosed():
                    self._is_live = False
                case bytes():
                    self._on_control(decode(item))
        self._give_waiting_acks()
        return work_count

    def _on_control(self, message: Message | None) -> None:
        if isinstance(message, ServiceTerminationPosition) and message.ack_required:
            self._termination = message.log_position, self._now_ns + self._ports.termination_timeout_ns

    def _ack(self, log_position: int, relevant_id: int = NULL_VALUE) -> ServiceAck:
        return ServiceAck(log_position, self._cluster_time, NULL_VALUE, relevant_id, self._service_id)

    def _give_waiting_acks(self) -> None:
        """Joins, once what the module has waited for before them is given."""
        while self._acks_waiting and self._channel.awaited_snapshot is None:
            self._give(self._acks_waiting.popleft())

    def _give(self, ack: ServiceAck) -> None:
        """Acknowledge to the module, whose count goes on from process to process."""
        self._offer(ack.replace(ack_id=self._next_ack_id).encode(), self._taken_position)
        self._next_ack_id += 1

    def _offer(self, message: bytes, log_position: int) -> None:
        is_taken = self._channel.offer_to_consensus_module(message, log_position)
        assert is_taken, "nothing is received while there is no room"

    # -- bounded waits --

    def _check_patience(self) -> None:
        """A service that does not come is not waited for longer than was configured."""
        self._check_snapshot()
        if self._start_due_ns is not None and self._now_ns >= self._start_due_ns:
            self._ports.say(f"{self._name} has not come up in time: it is not waited for")
            self._give_start(self._ack(self._taken_position, self._service_id + 1))
        if self._termination is not None and self._now_ns >= self._termination[1]:
            self._ports.say(f"{self._name} has not ended in time: it is not waited for")
            self._end(self._ack(self._termination[0]))

    def _check_snapshot(self) -> None:
        position = self._channel.awaited_snapshot
        if position is None:
            self._snapshot_due_ns = None
        elif self._snapshot_due_ns is None:
            self._snapshot_due_ns = self._now_ns + self._ports.snapshot_timeout_ns
        elif self._now_ns >= self._snapshot_due_ns:
            self._ports.say(
                f"{self._name} is at {self._position} and not at the snapshot of {position} in time: "
                "it is not waited for"
            )
            self._given_up.add(position)
            self._give_snapshot(self._ack(position))

    def _give_start(self, ack: ServiceAck) -> None:
        if self._start_due_ns is not None:
            self._start_due_ns = None
            self._give(ack)

    def _give_snapshot(self, ack: ServiceAck) -> None:
        self._channel.awaited_snapshot = None
        self._give(ack)
        self._give_waiting_acks()

    def _end(self, ack: ServiceAck) -> None:
        self._termination = None
        self._is_over = True
        self._ports.process.retire()
        self._give(ack)

    # -- what the service says --

    def on_frames(self, buffer: np.ndarray, start: int, end: int) -> None:
        """Take frames of the process, in order. Raises AgentTermination, LogDamaged."""
        for offset, header in headers(buffer, start, end):
            begin, length = offset + HEADER_LENGTH, header.frame_length - HEADER_LENGTH
            if header.stream_id == streams.CONSENSUS_MODULE:
                self._on_request(buffer[begin : begin + length].tobytes(), header.reserved_value)
            else:
                self._on_message(decode_service_link(buffer, begin, length))

    def _on_request(self, message: bytes, log_position: int) -> None:
        kind = kind_at(message)
        if kind == ServiceAck.KIND:
            self._on_ack(ServiceAck.decode(message))
        elif kind == ServiceSnapshot.KIND:
            self._on_snapshot_written(ServiceSnapshot.decode(message))
        elif self._taken is not None and self._taken.is_new_request(log_position):
            self._offer(message, log_position)

    def _on_message(self, message: Message | None) -> None:
        match message:
            case ServiceAnswers():
                self._on_answers(message)
            case ServicePosition():
                self._on_position(message)
            case SnapshotBegin(log_position):
                self._on_snapshot_begin(log_position)
            case ServiceRaised() if self._position >= self._taken_position:  # else the one before it did
                self._ports.on_error(raised_error(self._service_id, message))
            case ServiceEnd():
                self._on_end(message)

    def _on_ack(self, ack: ServiceAck) -> None:
        """Start, joins, snapshots, end: in which order they come says which one this is."""
        if not self._is_started:
            if ack.relevant_id != NULL_VALUE:  # else it is about to say why
                self._is_started = self._has_started = True
                self._seen_ns = self._now_ns
                self._give_start(ack)
        elif self._is_taking_snapshot:
            self._is_taking_snapshot = False  # acknowledged when it began
        elif self._joins:
            self._joins -= 1  # acknowledged when the module asked for it
        elif not self._is_over:
            self._end(ack)

    def _is_snapshot_wanted(self, log_position: int) -> bool:
        return log_position > self._taken_position and log_position not in self._given_up

    def _on_snapshot_begin(self, log_position: int) -> None:
        """The service is at the snapshot's position, all that the module waits for; its ack is of no use."""
        self._is_taking_snapshot = True
        self._position = max(self._position, log_position)
        if not self._is_snapshot_wanted(log_position):
            self._send(NOT_WANTED)
            return
        reserved = self._inlet.reserve(log_position)
        self._send(reserved)
        self._on_taken(log_position)
        recording_id = self._inlet.recording_id
        self._give_snapshot(self._ack(log_position, NULL_VALUE if recording_id is None else recording_id))

    def _on_snapshot_written(self, message: ServiceSnapshot) -> None:
        if message.recording_id == self._inlet.recording_id:
            self._report_snapshot(self._inlet.end(message))

    def _report_snapshot(self, message: ServiceSnapshot) -> None:
        self._offer(message.encode(), self._taken_position)

    def _on_taken(self, log_position: int) -> None:
        assert self._taken is not None
        self._taken.on_position(log_position)
        self._script.prune(self._taken.position)
        self._channel.log_position = self._taken.position

    def _on_position(self, message: ServicePosition) -> None:
        self._position = message.log_position
        self._on_taken(message.log_position)
        self._ports.gauges.show(message)

    def _on_answers(self, message: ServiceAnswers) -> None:
        columns = np.frombuffer(message.columns, np.int64).reshape(6, -1)
        assert self._taken is not None
        others = np.flatnonzero(columns[4] == 0)
        known = others[: self._taken.known_answers(len(others))]
        columns = np.ascontiguousarray(np.delete(columns, known, axis=1))
        if not columns.size:
            return
        session_ids, timestamps, offsets, lengths, answer_ids, numbers = columns
        # The kernel that frames answers takes writable arrays of at least one byte.
        buffer = np.frombuffer(bytearray(message.payloads or b"\0"), np.uint8)
        batch = ServiceEgress(
            message.leadership_term_id, session_ids, timestamps, offsets, lengths, buffer, numbers, answer_ids
        )
        self._channel.egress_room.used += batch.byte_count
        self._channel.offer_egress(batch)

    def _on_end(self, message: ServiceEnd) -> None:
        why = message.why.decode(errors="replace")
        if message.is_damage:
            raise LogDamaged(None, None, f"{self._name}: {why}")
        if not self._has_started:
            raise AgentTermination(why)
        self._ports.say(why)


def raised_error(service_id: int, message: ServiceRaised) -> ClusterError:
    """The error that the process of a service reports."""
    text = message.text.decode(errors="replace")
    if not message.callback:
        return ClusterError(text)
    cause = type(message.cause, (Exception,), {})(text)
    session_id = None if message.cluster_session_id == NULL_VALUE else message.cluster_session_id
    place = message.place.decode(errors="replace")
    is_reported = bool(message.is_reported)
    error = ServiceError(
        service_id, message.callback, message.log_position, cause, place, session_id, is_reported=is_reported
    )
    error.trace = message.trace.decode(errors="replace")
    error.add_note(error.trace)
    return error
