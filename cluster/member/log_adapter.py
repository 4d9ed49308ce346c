"""Committed log into the state that every member keeps (Aeron: LogAdapter).

    read_position        position                     limit
     |--- begin of a -------|--- to be processed -------|      limit: min(commit, own recording)
          message that is
          not whole yet

A kernel takes the runs of session messages: activity and committed counts of sessions, ids of the services'
own messages. All else is decoded and handed over one by one. On a leader, which acts on its entries when it
appends them (C-239), only the counts are wanted.
"""

from typing import Protocol

import numpy as np

from cluster.errors import LogDamaged
from cluster.log.deliver import read_message
from cluster.log.follow import follow_log
from cluster.log.frames import MALFORMED, OTHER_MESSAGE
from cluster.log.session_table import SessionTable

CHUNK_BYTES = 256 * 1024


class LogSource(Protocol):
    def read(self, position: int, max_length: int, out: np.ndarray | None = None) -> np.ndarray: ...


class LogHandler(Protocol):
    def on_log_message(self, message: bytes, log_position: int) -> bool:
        """An entry that is no session message, ending at ``log_position``; True ends the poll (C-260)."""
        ...


class LogAdapter:
    """``position`` is how far the log is processed: an end of a frame."""

    __slots__ = ("_buffer", "_handler", "_read_position", "_table", "is_stopped", "position")

    def __init__(self, handler: LogHandler, table: SessionTable) -> None:
        self._handler = handler
        self._table = table
        self._buffer = np.zeros(CHUNK_BYTES, np.uint8)
        self.position = self._read_position = 0
        self.is_stopped = False  # the last poll ended at an action; the next cycle goes on (C-260)

    def start(self, position: int) -> None:
        """Everything before ``position`` is processed, by a snapshot."""
        self.position = self._read_position = position

    def poll(self, log: LogSource, limit: int, *, is_applied: bool = True) -> int:
        """Process one chunk of the log up to ``limit``; return the bytes that ``position`` moved.

        Raises LogDamaged for bytes that no cluster writes.
        """
        if self.position >= limit:
            return 0
        before = self.position
        begin = self._read_position
        data = log.read(begin, min(limit - begin, len(self._buffer)), self._buffer)
        end = len(data)
        offset = 0
        is_stopped = self.is_stopped = False
        while not is_stopped:
            status, offset, _ = follow_log(data, offset, end, begin + offset, self._table)
            if status == MALFORMED:
                raise LogDamaged(None, None, f"the log is damaged at position {begin + offset}")
            if status != OTHER_MESSAGE:
                break
            message, message_end = read_message(data, offset, end)
            if message is None:
                if message_end == offset:
                    break
            elif is_applied:
                is_stopped = self._handler.on_log_message(message, begin + message_end)
            offset = message_end
        self.is_stopped = is_stopped
        self._read_position = begin + offset
        if not is_stopped and begin + end >= limit:
            self.position = limit  # what is left is the begin of a message that ends beyond the limit
        else:
            self.position = max(before, self._read_position)
            if offset == 0 and not is_stopped:
                self._buffer = np.zeros(2 * len(self._buffer), np.uint8)  # a message longer than a chunk
        return self.position - before
