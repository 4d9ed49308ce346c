"""What a replay of services reads: a range of a reader's log, and the snapshots to begin and to compare with.

start of the log                                               end of the log
  |──────── interval ────────|──────── interval ────────|── interval ──|
  nothing or a snapshot      snapshots of members       snapshots of members
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cluster.errors import LogPurged
from cluster.reader.log_reader import LogReader


@dataclass(frozen=True, slots=True)
class ReplayInterval:
    """A part ``[begin, end)`` of a log, to be replayed on its own.

    It begins with the snapshot at ``begin`` if ``is_from_snapshot``, else with nothing, at the start of a
    log. ``compared`` are the positions of the snapshots in the part and at its end.
    """

    begin: int
    end: int
    is_from_snapshot: bool
    compared: tuple[int, ...]


def replay_intervals(
    start: int, end: int, snapshots: Iterable[int], *, is_whole: bool = False
) -> list[ReplayInterval]:
    """``[start, end)`` cut at snapshots, or whole; none if empty. Raises LogPurged without a beginning."""
    at = {position for position in snapshots if start <= position <= end}
    if start > 0 and not at:
        raise LogPurged(f"the log begins at position {start}, and no snapshot is there to begin with", start)
    begins = sorted(at if start > 0 else {0, *at})
    cuts = [begins[0], end] if is_whole else [*begins, end]
    return [
        ReplayInterval(begin, until, begin in at, tuple(sorted(one for one in at if begin < one <= until)))
        for begin, until in pairwise(cuts)
        if begin < until
    ]


class ReplayedLog:
    """A range of a reader's log as a ``LogSource`` that is read once, from its beginning on."""

    def __init__(self, reader: LogReader, begin: int, end: int) -> None:
        self._begin = begin
        self._block = np.empty(0, np.uint8)
        self.extend(reader, end)

    def extend(self, reader: LogReader, end: int) -> None:
        """Go on after what was read, to ``end``, with a reader of the same log."""
        self._blocks = reader.blocks(self._begin + len(self._block), end, is_committed=True)
        self.is_at_end = False  # no whole message is left before the end of the range

    def read(self, position: int, max_length: int, out: np.ndarray | None = None) -> np.ndarray:
        """The rest of the block that ``position`` is in; empty at the end. Raises as ``LogReader.blocks``."""
        while position >= self._begin + len(self._block):
            block = next(self._blocks, None)
            if block is None:
                self.is_at_end = True
                return np.empty(0, np.uint8)
            self._begin, self._block = block
        assert position >= self._begin
        return self._block[position - self._begin :]
