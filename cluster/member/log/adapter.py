"""Committed log into the state that every member keeps (Aeron: LogAdapter).

A kernel takes the runs of session messages: activity and committed counts of sessions, ids of the services'
own messages. All else is decoded and handed over one by one. On a leader, which acts on its entries when it
appends them (C-239), only the counts are wanted.
"""

from typing import Protocol

from cluster.archive.log_cursor import LogCursor, LogSource, damage_at
from cluster.log.deliver import read_message
from cluster.log.follow import follow_log
from cluster.log.frames import MALFORMED, OTHER_MESSAGE
from cluster.log.session_table import SessionTable

CHUNK_BYTES = 256 * 1024


class LogHandler(Protocol):
    def on_log_message(self, message: bytes, log_position: int) -> bool:
        """An entry that is no session message, ending at ``log_position``; True ends the poll (C-260)."""


class LogAdapter:
    """One member's log from the newest snapshot on."""

    __slots__ = ("_handler", "_table", "cursor", "is_stopped")

    def __init__(self, handler: LogHandler, table: SessionTable) -> None:
        self._handler = handler
        self._table = table
        self.cursor = LogCursor(CHUNK_BYTES)
        self.is_stopped = False  # the last poll ended at an action; the next cycle goes on (C-260)

    @property
    def position(self) -> int:
        """How far the log is processed: an end of a frame."""
        return self.cursor.position

    def start(self, position: int) -> None:
        """Everything before ``position`` is processed, by a snapshot."""
        self.cursor.advance(position)

    def poll(self, log: LogSource, limit: int, *, is_applied: bool = True) -> int:
        """Process a chunk up to ``limit``; returns the bytes. Raises LogDamaged."""
        cursor = self.cursor
        if cursor.position >= limit:
            return 0
        before = cursor.position
        begin, data = cursor.read(log, limit)
        offset = 0
        self.is_stopped = False
        while not self.is_stopped:
            status, offset, _ = follow_log(data, offset, len(data), begin + offset, self._table)
            if status == MALFORMED:
                raise damage_at(begin + offset)
            if status != OTHER_MESSAGE:
                cursor.end_chunk(begin, begin + offset, begin + len(data), limit)
                break
            message, offset = read_message(data, offset, len(data))
            if message is not None and is_applied:
                self.is_stopped = self._handler.on_log_message(message, begin + offset)
            cursor.advance(begin + offset)
        return cursor.position - before
