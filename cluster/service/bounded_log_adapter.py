"""Committed log bytes into the callbacks of a service (Aeron: BoundedLogAdapter).

What is read is bounded by the commit position and by the log's own end; a kernel turns runs of session
messages into columns, every other entry is decoded by itself.
"""

from typing import Any, Protocol

import numpy as np

from cluster.archive.log_cursor import LogCursor, LogSource, damage_at
from cluster.log.deliver import DeliveredMessages, deliver, read_message
from cluster.log.frames import DONE, MALFORMED, OTHER_MESSAGE
from cluster.protocol import NULL_POSITION, decode
from cluster.service.message_batch import SessionMessageBatch


class ServiceLogHandler(Protocol):
    """Whose service is fed: the agent."""

    def on_messages(self, batch: SessionMessageBatch) -> None: ...

    def on_entry(self, message: Any, position: int) -> None: ...

    @property
    def is_reading(self) -> bool:
        """Whether the service can be given more in this turn."""


class BoundedLogAdapter:
    """Reads one log at a time, each from where the one before it ended.

    ``position`` is moved past an entry before the entry is handed over, so that an exception of a
    callback does not bring it again.
    """

    def __init__(
        self, handler: ServiceLogHandler, fragment_limit: int, read_bytes: int, max_message_length: int
    ) -> None:
        self._handler = handler
        self._messages = DeliveredMessages(fragment_limit, max_message_length)
        self._fragment_limit = fragment_limit
        self.cursor = LogCursor(read_bytes, max_message_length)
        self._log: LogSource | None = None
        self.max_log_position = NULL_POSITION

    @property
    def position(self) -> int:
        """Up to where the log was taken: an exclusive end of a frame."""
        return self.cursor.position

    @property
    def has_log(self) -> bool:
        return self._log is not None

    @property
    def is_done(self) -> bool:
        """Whether the log that was joined has been read to its end."""
        return self._log is not None and self.position >= self.max_log_position

    def advance(self, position: int) -> None:
        """Everything before ``position`` has been handed over."""
        self.cursor.advance(position)

    def join(self, log: LogSource, max_log_position: int) -> None:
        """Go on at ``position`` in another log, up to ``max_log_position`` (exclusive)."""
        assert self._log is None
        self._log = log
        self.max_log_position = max_log_position

    def limit_to(self, position: int) -> None:
        """The log that was joined ends at ``position``, or where it was said to end before."""
        self.max_log_position = min(self.max_log_position, position)

    def leave(self) -> None:
        """Forget the log; a message of which only the beginning was in it goes on in the next."""
        self._log = None

    def poll(self, commit_position: int) -> int:
        """Hand over at most ``fragment_limit`` messages below the commit position; returns the work done."""
        limit = min(commit_position, self.max_log_position)
        if self._log is None or self.position >= limit:
            return 0
        cursor = self.cursor
        position, data = cursor.read(self._log, limit)
        end = len(data)
        offset = 0
        count = 0
        while count < self._fragment_limit and self._handler.is_reading:
            status, offset = deliver(data, offset, end, position + offset, self._messages)
            if self._messages.count:
                count += self._messages.count
                self._hand_over(position + offset)
            elif status == OTHER_MESSAGE:
                count += 1
                offset = self._hand_over_entry(data, offset, end, position)
            elif status == MALFORMED:
                raise damage_at(position + offset)
            else:
                assert status == DONE
                cursor.end_chunk(position, position + offset, position + end, limit)
                return max(count, 1)
        return count

    def _hand_over(self, end_position: int) -> None:
        messages = self._messages
        batch = SessionMessageBatch(
            messages.session_ids,
            messages.timestamps,
            messages.positions,
            messages.offsets,
            messages.lengths,
            messages.buffer,
        )
        self._handler.on_messages(batch)
        # After the last message may be padding.
        self.advance(end_position)

    def _hand_over_entry(self, data: np.ndarray, offset: int, end: int, position: int) -> int:
        message, offset = read_message(data, offset, end)
        self.advance(position + offset)
        if message is not None:
            self._handler.on_entry(decode(message), position + offset)
        return offset
