"""The leader's end of the log: entries into a staging buffer, the buffer into the file and to the followers.

    base            flushed             position                           end of the buffer
     |--- written ----|--- this turn ------|------------ free ----------------|

One ``pwrite`` and one send a follower for all that a turn appended; then one sync. What was written a moment
ago is read from the buffer by whoever counts what is committed, before it is overwritten by a later turn.
"""

from typing import Protocol

import numpy as np

from cluster.errors import AgentTermination
from cluster.log.append import BACK_PRESSURED, append_message, message_end_position
from cluster.log.frames import OUT_FULL, LogParams
from cluster.log.ingress import append_ingress
from cluster.log.session_table import SessionTable
from cluster.log.words import Word
from cluster.member.log import log_words
from cluster.member.log.log_in_memory import LogInMemory
from cluster.member.log.streams import LogStreams

KEPT_BYTES = 4 * 1024 * 1024  # written bytes that stay in front before the buffer starts at its begin again
# Free at the end of a log that takes no more input: for what one turn appends, and for the cluster itself.
RESERVED_TERMS = 32
RESERVED_BYTES = 64 * 1024 * 1024


class WritableLog(Protocol):
    """A recording, as far as a leader writes it."""

    append_position: int

    def append(self, position: int, data: np.ndarray) -> int: ...

    def read(self, position: int, max_length: int, out: np.ndarray | None = None) -> np.ndarray: ...


class LogPublication(LogInMemory):
    """``position`` ends what is appended, ``flushed_position`` what is sent; ``words`` has both."""

    flushed_position = Word(log_words.FLUSHED)

    def __init__(self, recording: WritableLog, streams: LogStreams, params: LogParams) -> None:
        super().__init__(recording.append_position, params.batch_length_min + 4 * KEPT_BYTES)
        self._recording = recording
        self._streams = streams
        self.params = params
        self.flushed_position = self.position
        self._last_begin = params.position_max - params.batch_length_min
        self.input_limit = params.position_max - RESERVED_TERMS * params.term_length - RESERVED_BYTES

    @property
    def is_full(self) -> bool:
        """Whether the log takes no more input, near its last position (Aeron: MAX_POSITION_EXCEEDED)."""
        return self.position >= self.input_limit

    def append(self, message: bytes) -> int:
        """Append one message, SBE header included; returns its end. Raises AgentTermination."""
        if self.position > self._last_begin:
            raise AgentTermination(f"the log is at its last position, {self.position}")
        position = append_message(self.buffer, self.position - self.base, self.position, self.params, message)
        if position == BACK_PRESSURED:
            self.flush()
            self.base = self.position
            position = append_message(self.buffer, 0, self.position, self.params, message)
            assert position > 0
        self.position = position
        return position

    def end_of(self, length: int) -> int:
        """Where a message of ``length`` would end if it were appended now."""
        return message_end_position(self.position, length, self.params)

    def append_ingress(
        self,
        ingress: np.ndarray,
        start: int,
        end: int,
        table: SessionTable,
        connection_id: int,
        leadership_term_id: int,
        cluster_time: int,
        now_ns: int,
    ) -> tuple[int, int]:
        """Append the session messages of a connection's run; return (status, consumed), never OUT_FULL."""
        while True:
            status, self.position, start = append_ingress(
                self.buffer,
                self.position - self.base,
                self.position,
                self.params,
                ingress,
                start,
                end,
                table,
                connection_id,
                leadership_term_id,
                cluster_time,
                now_ns,
            )
            if status != OUT_FULL:
                return status, start
            self.flush()
            self.base = self.position

    def flush(self) -> None:
        """Write and send what was appended since the last time; it is not synced yet."""
        position, begin = self.position, self.flushed_position
        if position == begin:
            return
        batch = self.buffer[begin - self.base : position - self.base]
        self._recording.append(begin, batch)
        self.flushed_position = position
        self._streams.on_batch(begin, position, batch)
        if position - self.base >= KEPT_BYTES:
            self.base = position

    def read(self, position: int, max_length: int, out: np.ndarray | None = None) -> np.ndarray:
        """As the recording, without a system call for what is still in the buffer."""
        if position >= self.base:
            end = min(position + max_length, self.flushed_position)
            return self.buffer[position - self.base : end - self.base]
        return self._recording.read(position, max_length, out)
