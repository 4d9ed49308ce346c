"""How much of a recording stays in the operating system's page cache: its end, which readers follow.

A log is written once and read near its end. What lies further back is let go of as the end moves on, so that
the kernel has the same pages for what comes next. Left to itself it fills all memory with old log first: in
a virtual machine whose host gives it memory page by page, each new page takes ten times as long.
"""

from contextlib import suppress

from cluster.archive.segments import Segments
from cluster.errors import LogDamaged

# The kernel keeps files in folios of up to 2 MiB, and lets go of those that lie in the range as a whole.
CHUNK = 4 * 1024 * 1024
POSITION_MAX = (1 << 63) - 1


class PageCache:
    """Lets go of what lies more than ``length`` bytes before a recording's end; of nothing where it is 0."""

    def __init__(self, segments: Segments, position: int, length: int) -> None:
        self._segments = segments
        self._length = length
        # What lies before was let go of, or written by others.
        self._begin = self._piece_begin(position)

    @property
    def due_at(self) -> int:
        """The end of the recording at which there will be something to let go of."""
        return self._begin + self._length + CHUNK if self._length else POSITION_MAX

    def _piece_begin(self, position: int) -> int:
        """Where the piece of a segment file begins that holds the position."""
        first = self._segments.first_base
        return first + (position - first) // CHUNK * CHUNK

    def let_go(self, end: int) -> None:
        """The recording ends at ``end`` now. What is not on the device yet stays, whatever is asked here."""
        if end < self.due_at:
            return
        limit = self._piece_begin(end - self._length)
        position = max(self._begin, self._segments.start_position)
        while position < limit:
            base = self._segments.base_of(position)
            next_position = min(limit, base + self._segments.segment_length)
            with suppress(LogDamaged, OSError):  # gone, with its pages; or it stays, which costs memory alone
                self._segments.file(base).uncache(position - base, next_position - position)
            position = next_position
        self._begin = limit
