"""Which task reads which part of a range: arithmetic on positions, nothing else.

The same range and options give the same tasks on every machine and at every time, with no look at
the log: the tasks of a micro-batch that runs again are those of its first run. Cuts lie on a grid of
absolute positions, so neighbouring micro-batches cut at the same places too.

A task reads the entries whose *first frame* starts in its half-open range, so a cut may fall into
an entry: it belongs to the task in front of the cut.
"""

import heapq
import itertools
from typing import NamedTuple

from cluster.protocol.frame import FRAME_ALIGNMENT

Range = tuple[int, int]


class PlanLimits(NamedTuple):
    """How ranges are to be cut: by options of the source."""

    max_bytes: int
    min_partitions: int
    max_partitions: int


def plan(
    start: int, end: int, *, max_bytes: int, min_partitions: int = 1, max_partitions: int = 200
) -> list[Range]:
    """Cut ``[start, end)`` into ranges, in order, that cover it without overlap; none if it is empty.

    A range holds about ``max_bytes``: cuts are at multiples of it, and an edge of less than a
    quarter is joined to its neighbour. With more than ``max_partitions`` such ranges the grid is
    made coarser; with less than ``min_partitions`` the longest ranges are halved, as far as frames
    can be told apart.
    """
    assert 0 <= start <= end and start % FRAME_ALIGNMENT == 0
    assert max_bytes > 0 and 1 <= min_partitions <= max_partitions
    if start == end:
        return []
    fine = grid = aligned(max_bytes)
    while _cells(start, end, grid) > max_partitions:
        grid = max(grid + fine, (end - start) // max_partitions // fine * fine)
    cuts = [start, *range(start - start % grid + grid, end, grid), end]
    if len(cuts) > 2 and cuts[1] - cuts[0] < grid // 4:
        del cuts[1]
    if len(cuts) > 2 and cuts[-1] - cuts[-2] < grid // 4:
        del cuts[-2]
    return _halve_longest(list(itertools.pairwise(cuts)), min_partitions)


def _cells(start: int, end: int, grid: int) -> int:
    """How many cells of the grid ``[start, end)`` touches."""
    return (end - 1) // grid - start // grid + 1


def _halve_longest(ranges: list[Range], wanted: int) -> list[Range]:
    longest_first = [(begin - end, begin, end) for begin, end in ranges]
    heapq.heapify(longest_first)
    while len(longest_first) < wanted and -longest_first[0][0] > FRAME_ALIGNMENT:
        _, begin, end = heapq.heappop(longest_first)
        middle = begin + aligned((end - begin) // 2)
        heapq.heappush(longest_first, (begin - middle, begin, middle))
        heapq.heappush(longest_first, (middle - end, middle, end))
    return sorted((begin, end) for _, begin, end in longest_first)


def aligned(length: int) -> int:
    """``length`` up to a multiple of the frame alignment."""
    return -(-length // FRAME_ALIGNMENT) * FRAME_ALIGNMENT
