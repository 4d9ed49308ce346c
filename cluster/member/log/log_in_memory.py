"""The end of a log in memory, from which is read what was appended a moment ago.

base                       position           end of the buffer
 |------ as recorded ----------|------- free -------|
"""

import numpy as np

from cluster.archive.log_cursor import LogSource
from cluster.log.words import Word
from cluster.member.log import log_words


class LogInMemory:
    """``words`` goes to kernels (``log_words.py``)."""

    __slots__ = ("_words", "buffer", "words")

    base = Word(log_words.BASE)
    position = Word(log_words.PUBLICATION_POSITION)

    def __init__(self, position: int, length: int) -> None:
        # Pages that no turn fills are never touched, and so take no memory.
        self.buffer = np.zeros(length, np.uint8)
        self.words = np.zeros(log_words.LOG_WORDS, np.int64)
        self._words = self.words.data
        self.base = self.position = position

    def reach_back(self, recording: LogSource, position: int) -> bool:
        """Have the recorded log from ``position`` on in front; False where it is too much."""
        missing, kept = self.base - position, self.position - self.base
        if missing <= 0:
            return True
        if missing + kept > len(self.buffer) // 4:
            return False
        earlier = recording.read(position, missing)  # which may raise: then nothing has moved
        self.buffer[missing : missing + kept] = self.buffer[:kept]
        self.buffer[:missing] = earlier
        self.base = position
        return True
