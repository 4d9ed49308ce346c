"""When a stream's next micro-batch is due, and where it ends: the limits of triggers.

Like Kafka's source: with a least number of entries a trigger that finds fewer waits for more, but no longer
than the greatest delay after the last micro-batch; the first one of a query does not wait.
"""

from __future__ import annotations

import time
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_connector.log import SourceLog
    from spark_connector.options import SourceOptions


class Admission:
    """The limits of one stream. Remembers when a micro-batch was last due, and what it counted."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._due_s = -inf
        self._counted = 0, 0, 0  # entries of a range: its begin, its end, and how many

    def is_due(self, log: SourceLog, begin: int, tip: int) -> bool:
        """Whether there is enough for a micro-batch that begins at ``begin``, or the last one is long ago."""
        least = self._options.min_entries_per_trigger
        now_s = time.monotonic()
        has_time = 1000 * (now_s - self._due_s) < self._options.max_trigger_delay_ms
        if least is not None and has_time and self._count(log, begin, tip) < least:
            return False
        self._due_s = now_s
        return True

    def _count(self, log: SourceLog, begin: int, tip: int) -> int:
        """How many entries ``[begin, tip)`` has; what was counted before is not read again."""
        counted_from, end, count = self._counted
        if counted_from != begin:
            end, count = begin, 0
        count += sum(len(ends) for ends in log.entry_ends(end, tip))
        self._counted = begin, tip, count
        return count

    def end(self, log: SourceLog, begin: int, tip: int) -> int:
        """The end of a micro-batch that begins at ``begin``: the end of an entry.

        At least one entry is admitted, however long.
        """
        options = self._options
        end = min(tip, begin + options.max_bytes_per_trigger)
        if end < tip:
            end = _aligned_down(log, begin, end, tip)
        if options.max_entries_per_trigger is not None:
            end = _end_of_entries(log, begin, end, options.max_entries_per_trigger)
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


def _end_of_entries(log: SourceLog, begin: int, end: int, count: int) -> int:
    """The end of the ``count``-th entry after ``begin``, or ``end`` when there are no more than that."""
    for ends in log.entry_ends(begin, end):
        if len(ends) >= count:
            return int(ends[count - 1])
        count -= len(ends)
    return end
