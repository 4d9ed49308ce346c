"""A service's end of the socket to its member: what comes over it into a ServiceChannel, and what leaves it.

What the service has sent leaves in batches: once a turn, within a callback that idles, and no more than the
socket takes; the rest stays in the channel, whose rooms show the service that it is too fast.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from cluster.archive.files import Files
from cluster.archive.stored_recording import StoredRecording
from cluster.errors import AgentTermination, ClusterError, LogDamaged
from cluster.log.checksum import Checksum
from cluster.log.runs import headers
from cluster.protocol import streams
from cluster.protocol.frame import HEADER_LENGTH
from cluster.protocol.sbe import Message
from cluster.protocol.service_link import (
    LogClose,
    LogJoin,
    LogLimit,
    ServiceEnd,
    ServicePosition,
    ServiceStart,
    SnapshotBegin,
    SnapshotReserved,
    answers_messages,
    decode_service_link,
    request_frame,
)
from cluster.reader.recordings import find_recording
from cluster.service.channel import RecoveryState, ServiceChannel, ServiceEgress
from cluster.transport.message_frames import link_frame
from cluster.transport.poller import Poller
from cluster.transport.sockets import BUFFERS_PER_SEND_MAX, Connection

SEND_BYTES_MAX = 4 * 1024 * 1024  # that wait for the socket
ANSWERS_BYTES_MAX = 128 * 1024  # of one message: compiled turns keep half a one (PART_BYTES)
IDLE_WAIT_S = 0.01
DRAIN_TRIES = 100  # of this long: a second


@dataclass(slots=True)
class _Tally:
    """A counter that nobody else sees."""

    value: int = 0

    def set(self, value: int) -> None:
        self.value = value

    def get_and_add(self, delta: int) -> int:
        self.value += delta
        return self.value - delta


@dataclass(frozen=True, slots=True)
class CycleTally:
    """What counters 218 and 219 of this service are to show."""

    max_cycle_time_ns: _Tally = field(default_factory=_Tally)
    cycle_time_exceeded: _Tally = field(default_factory=_Tally)


class LogFile:
    """The member's log, read from its files as far as the member says that it may be."""

    def __init__(self, recording: StoredRecording) -> None:
        self._recording = recording

    def limit_to(self, position: int) -> None:
        """The log is committed to ``position``."""
        self._recording.append_position = position

    def read(self, position: int, max_length: int, out: np.ndarray | None = None) -> np.ndarray:
        """``LogSource.read``. Segments are opened again once: the member may have replaced a damaged one."""
        try:
            return self._recording.read(position, max_length, out)
        except LogDamaged:
            self._recording.close_readers()
            return self._recording.read(position, max_length, out)


class ModuleLink:
    """``channel`` is the container's; ``start`` what the member has said of the service, None before."""

    def __init__(self, service_id: int, connection: Connection, poller: Poller, files: Files) -> None:
        self.channel = ServiceChannel()
        self.channel.on_idle = self.idle
        self.start: ServiceStart | None = None
        self._limit = 0  # the member's commit position, as far as it has said
        self.cycles = CycleTally()
        self._service_id = service_id
        self._connection = connection
        self._poller = poller
        self._files = files
        self._log: LogFile | None = None
        self._reported_position = -1
        self._frames: deque[bytes] = deque()  # taken from the channel, and not sent yet
        self._reserved: SnapshotReserved | None = None

    @property
    def is_closed(self) -> bool:
        return self._connection.is_closed

    @property
    def commit_position(self) -> int:
        """How far the log may be read: not beyond the end of one whose end is still to be taken."""
        end = self.channel.next_log_position
        return self._limit if end is None else min(self._limit, end)

    @property
    def archive_directory(self) -> str:
        assert self.start is not None
        return self.start.archive_directory.decode()

    # -- from the member --

    def poll(self) -> int:
        """Take what has come. Raises ClusterError when the member refuses this process."""
        connection = self._connection
        if not connection.receive():
            if connection.is_closed:
                self.channel.close()
            return 0
        for offset, header in headers(connection.buffer, connection.start, connection.end):
            begin, length = offset + HEADER_LENGTH, header.frame_length - HEADER_LENGTH
            if header.stream_id == streams.SERVICE:
                self.channel.send_to_service(connection.buffer[begin : begin + length].tobytes())
            else:
                self._on_message(decode_service_link(connection.buffer, begin, length))
        connection.release(connection.end)
        return 1

    def _on_message(self, message: Message | None) -> None:
        match message:
            case ServiceStart():
                self._on_start(message)
            case LogJoin():
                self._on_join(message)
            case LogClose(position):
                self.channel.close_log(position)
            case LogLimit(position):
                self._on_limit(position)
            case SnapshotReserved():
                self._reserved = message
            case ServiceEnd():
                raise ClusterError(message.why.decode())

    def _on_start(self, start: ServiceStart) -> None:
        self.start = start
        recording_ids = (start.snapshot_recording_id,) * (self._service_id + 1)  # its own is the last
        self.channel.recovery = RecoveryState(
            start.leadership_term_id, start.log_position, start.timestamp, recording_ids
        )

    def _on_join(self, message: LogJoin) -> None:
        if self._log is None:  # a life of a member has one recording of the log
            descriptor = find_recording(self._files, self.archive_directory, message.recording_id)
            checksum = Checksum(message.checksum) if message.checksum else None
            self._log = LogFile(StoredRecording(self._files, self.archive_directory, descriptor, checksum))
            self._log.limit_to(self._limit)
        self.channel.join_log(message.join, self._log)

    def _on_limit(self, position: int) -> None:
        self._limit = position
        if self._log is not None:
            self._log.limit_to(position)

    # -- to the member --

    def send(self, *messages: Message) -> None:
        """Send at once, whatever waits already."""
        self._connection.offer(*map(link_frame, messages))

    def flush(self, *, is_end_of_turn: bool = False) -> int:
        """Hand over what the service has sent, as much as the socket may be given. Returns how much was done.

        At the end of a turn, and never within one, it goes on with how far the service has come, if all that
        came of it is handed over: whatever is said before a position has come of entries up to there.
        """
        channel, frames, count = self.channel, self._frames, 0
        length = self._connection.queued_bytes + sum(map(len, frames))
        while length < SEND_BYTES_MAX and (batch := channel.poll_egress()) is not None:
            answers = list(map(link_frame, _messages_of(batch)))
            length += sum(map(len, answers))
            frames.extend(answers)
            count += 1
        while length < SEND_BYTES_MAX and (message := channel.poll_consensus_module()) is not None:
            frames.append(request_frame(message, channel.polled_position))
            length += len(frames[-1])
            count += 1
        if is_end_of_turn and channel.is_taken and channel.log_position > self._reported_position:
            self._reported_position = channel.log_position
            frames.append(link_frame(self._position()))
        while frames and self._connection.queued_bytes < SEND_BYTES_MAX:
            pieces = [frames.popleft() for _ in range(min(len(frames), BUFFERS_PER_SEND_MAX))]
            self._connection.offer(*pieces)
        return count

    @property
    def has_unsent(self) -> bool:
        """Whether frames wait until the socket has taken what it was given."""
        return bool(self._frames)

    def _position(self) -> ServicePosition:
        cycles = self.cycles
        return ServicePosition(
            self.channel.log_position, cycles.max_cycle_time_ns.value, cycles.cycle_time_exceeded.value
        )

    def idle(self) -> int:
        """A callback waits, or is about to need room: hand over, and let the socket take some of it."""
        count = self.flush()
        if not count:
            self._poller.wait(IDLE_WAIT_S)
        return count + self.poll()

    def send_frames(self, frames: bytes) -> None:
        """Send whole frames at once, whatever waits already."""
        self._connection.offer(frames)

    def await_more(self) -> None:
        """Wait for what the member says next, or a little. Raises AgentTermination when it is gone."""
        if self.is_closed:
            raise AgentTermination("the member is gone")
        self._poller.wait(IDLE_WAIT_S)
        self.poll()

    def reserve_snapshot(self, log_position: int) -> SnapshotReserved:
        """Ask where the snapshot at ``log_position`` goes. Raises AgentTermination without a member."""
        self.flush()
        while self._frames or not self.channel.is_taken:
            self.await_more()
            self.flush()
        self.send(SnapshotBegin(log_position))
        while self._reserved is None:
            self.await_more()
        reserved, self._reserved = self._reserved, None
        return reserved

    def drain(self) -> None:
        """Let the member take what was sent, if it does that soon."""
        for _ in range(DRAIN_TRIES):
            self.flush()
            if self.is_closed or not (self._frames or self._connection.queued_bytes):
                return
            self._poller.wait(IDLE_WAIT_S)


def _messages_of(batch: ServiceEgress) -> list[Message]:
    answer_ids = np.zeros(len(batch), np.int64) if batch.answer_ids is None else batch.answer_ids
    numbers = np.broadcast_to(batch.numbers, len(batch))
    columns = np.stack(
        (batch.session_ids, batch.timestamps, batch.offsets, batch.lengths, answer_ids, numbers)
    )
    return list(answers_messages(batch.leadership_term_id, columns, batch.buffer, ANSWERS_BYTES_MAX))
