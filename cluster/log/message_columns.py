"""Messages as columns over one buffer of payloads, filled by a kernel, read by numpy."""

from cluster.protocol.arrays import np

# The columns in ``words``, each as long as there are rows.
SESSION_IDS, TIMESTAMPS, OFFSETS, LENGTHS, EXTRA, NUMBERS = range(6)
COLUMNS = 6


class MessageColumns:
    """A reusable batch of at most ``rows`` messages, of which ``count`` are there; nothing is copied.

    Columns are views: whoever keeps one beyond the next batch copies it.
    """

    __slots__ = ("buffer", "count", "rows", "words")

    def __init__(self, rows: int) -> None:
        assert rows > 0
        self.rows = rows
        self.count = 0
        self.words = np.zeros(COLUMNS * rows, np.int64)
        self.buffer = np.zeros(0, np.uint8)

    def _column(self, column: int) -> np.ndarray:
        begin = column * self.rows
        return self.words[begin : begin + self.count]

    @property
    def session_ids(self) -> np.ndarray:
        """Cluster session id of each."""
        return self._column(SESSION_IDS)

    @property
    def timestamps(self) -> np.ndarray:
        """Cluster time of each: when the leader appended it, or what it answers."""
        return self._column(TIMESTAMPS)

    @property
    def offsets(self) -> np.ndarray:
        """Where each payload, after the session header, begins in ``buffer``."""
        return self._column(OFFSETS)

    @property
    def lengths(self) -> np.ndarray:
        """Bytes of each payload."""
        return self._column(LENGTHS)

    @property
    def numbers(self) -> np.ndarray:
        """Of each in its session, from 1 on; of an answer that of the message that it answers, or 0."""
        return self._column(NUMBERS)

    def payload(self, row: int) -> memoryview:
        """One row's payload, not copied."""
        begin = int(self.words[OFFSETS * self.rows + row])
        return self.buffer[begin : begin + int(self.words[LENGTHS * self.rows + row])].data
