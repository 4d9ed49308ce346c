"""How far a log is taken by one who follows it, chunk by chunk, up to a limit that moves.

read position        position                     limit
 |--- start of a -------|---- not taken yet -------|
      message that is
      not whole yet
"""

from typing import Protocol

import numpy as np

from cluster.archive import recording_words
from cluster.errors import LogDamaged
from cluster.log.kernel import as_python
from cluster.log.words import Word
from cluster.protocol.frame import MESSAGE_LENGTH_MAX

_advance, _end_chunk = as_python(recording_words.advance), as_python(recording_words.end_chunk)


class LogSource(Protocol):
    """What a log is read from: an archive's recording, or a simulator's."""

    def read(self, position: int, max_length: int, out: np.ndarray | None = None) -> np.ndarray:
        """Return the recorded bytes ``[position, position + max_length)``, or fewer at the end."""


class LogCursor:
    """``position`` ends what is taken, a message that goes beyond the limit being read again as a whole.

    ``words`` goes to kernels (``recording_words.py``).
    """

    __slots__ = ("_buffer", "_chunk_bytes_max", "_words", "words")

    read_position = Word(recording_words.READ_POSITION)
    position = Word(recording_words.TAKEN_POSITION)

    def __init__(self, chunk_bytes: int, message_length_max: int = MESSAGE_LENGTH_MAX) -> None:
        self._buffer = np.empty(chunk_bytes, np.uint8)
        # A message with its frames' headers, at the smallest MTU, and the padding before it.
        self._chunk_bytes_max = max(chunk_bytes, 4 * message_length_max)
        self.words = np.zeros(recording_words.CURSOR_WORDS, np.int64)
        self._words = self.words.data

    def advance(self, position: int) -> None:
        """What lies before ``position`` is taken, and no more: what was taken after it is read again."""
        _advance(self._words, position)

    def read(self, log: LogSource, limit: int) -> tuple[int, np.ndarray]:
        """The position of the next chunk below ``limit``, and its bytes, which hold until the next call."""
        begin = self.read_position
        assert begin <= self.position < limit
        return begin, log.read(begin, min(limit - begin, len(self._buffer)), self._buffer)

    def end_chunk(self, begin: int, taken: int, end: int, limit: int) -> None:
        """Of a chunk all before ``taken`` is taken. Raises LogDamaged for a message too long for any log."""
        _end_chunk(self._words, taken, end >= limit, limit)
        if taken == begin and end < limit:
            self._grow()

    def _grow(self) -> None:
        """The next message is longer than what is read at once."""
        if len(self._buffer) >= self._chunk_bytes_max:
            raise damage_at(self.read_position, "a message without an end")
        self._buffer = np.empty(min(2 * len(self._buffer), self._chunk_bytes_max), np.uint8)


def damage_at(position: int, what: str = "bytes that no cluster writes") -> LogDamaged:
    """Why nothing from ``position`` on can be taken."""
    return LogDamaged(None, None, f"the log is damaged at position {position}: {what}")
