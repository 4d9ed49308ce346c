"""When a stream's next micro-batch is due, and where it ends: the limits of triggers.

Like Kafka's source: with a least number of entries a trigger that finds fewer waits for more, but no longer
than the greatest delay after the last micro-batch; the first one of a query does not wait.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import inf

from spark_connector.log import SourceLog
from spark_connector.options.cluster_options import SourceOptions


@dataclass(slots=True)
class Room:
    """What a micro-batch may still take; None for all that is there."""

    entries: int | None
    bytes: int | None

    @property
    def is_bounded(self) -> bool:
        return self.entries is not None or self.bytes is not None

    @property
    def is_taken(self) -> bool:
        """Whether nothing more goes in."""
        return any(left is not None and left <= 0 for left in (self.entries, self.bytes))

    def part(self, among: int) -> Room:
        """An equal part for one of so many logs, of one entry and one byte at least."""
        parts = (None if left is None else max(left // among, 1) for left in (self.entries, self.bytes))
        return Room(*parts)

    def take(self, entries: int, length: int) -> None:
        """So much has gone in."""
        if self.entries is not None:
            self.entries -= entries
        if self.bytes is not None:
            self.bytes -= length


class EntryCount:
    """How many entries a range of the log has; what was counted of it before is not read again."""

    def __init__(self) -> None:
        self._counted = 0, 0, 0  # entries of a range: its beginning, its end, and how many

    def of(self, log: SourceLog, begin: int, tip: int) -> int:
        """Of ``[begin, tip)``."""
        counted_from, end, count = self._counted
        if counted_from != begin or tip < end:
            end, count = begin, 0
        if end < tip:
            count += sum(len(ends) for ends in log.entry_ends(end, tip))
        self._counted = begin, tip, count
        return count


class Admission:
    """When a stream has enough. Remembers when a micro-batch was last due."""

    def __init__(self, options: SourceOptions, waiting: EntryCount) -> None:
        """``waiting`` counts what comes after the last micro-batch."""
        self._options = options
        self._waiting = waiting
        self._due_s = -inf

    def is_due(self, log: SourceLog, begin: int, tip: int) -> bool:
        """Whether there is enough for a micro-batch that begins at ``begin``, or the last one is long ago."""
        least = self._options.min_entries_per_trigger
        now_s = time.monotonic()
        has_time = 1000 * (now_s - self._due_s) < self._options.max_trigger_delay_ms
        if least is not None and has_time and self._waiting.of(log, begin, tip) < least:
            return False
        self._due_s = now_s
        return True


def end_within(log: SourceLog, begin: int, tip: int, room: Room, among: int = 1) -> int:
    """The end of a micro-batch, an entry's: an equal part of ``room``, and one entry at least."""
    part = room.part(among)
    end = tip if part.bytes is None else min(tip, begin + part.bytes)
    if end < tip:
        end = _aligned_down(log, begin, end, tip)
    entries = 0
    if part.entries is not None:
        end, entries = _end_of_entries(log, begin, end, part.entries)
    room.take(entries, end - begin)
    return end


def _aligned_down(log: SourceLog, begin: int, end: int, tip: int) -> int:
    """The last end of an entry at or before ``end``, at least the end of the first one."""
    term_length = log.term_length
    term_begin = end - end % term_length
    if term_begin > begin:
        return term_begin  # a little early, and nothing has to be read to know it
    first, last = 0, 0
    for ends in log.entry_ends(begin, end):
        first = first or int(ends[0])
        within = ends[ends <= end]
        last = int(within[-1]) if len(within) else last
    return last or first or min(tip, term_begin + term_length)


def _end_of_entries(log: SourceLog, begin: int, end: int, most: int) -> tuple[int, int]:
    """The end of the ``most``-th entry after ``begin``, or ``end``, and how many there are up to it."""
    count = 0
    for ends in log.entry_ends(begin, end):
        if len(ends) >= most - count:
            return int(ends[most - count - 1]), most
        count += len(ends)
    return end, count
