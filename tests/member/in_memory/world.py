"""Virtual time: what is due next happens next, and everything is told to one trace."""

from __future__ import annotations

import heapq
import zlib
from collections import deque
from collections.abc import Callable
from random import Random

US = 1_000
MS = 1_000_000
SECOND = 1_000_000_000
EPOCH_NS = 1_700_000_000 * SECOND  # of the cluster clock at the begin of every history


class World:
    """Time, chance and the trace of one history. ``trace_hash`` is the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now_ns = 0
        self.trace_hash = 0
        self.events: deque[str] = deque(maxlen=400)
        self.story: Callable[[str], None] | None = None
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0

    def at(self, time_ns: int, action: Callable[[], None]) -> None:
        """Do this then, after what was asked for the same time before."""
        self._sequence += 1
        heapq.heappush(self._queue, (max(time_ns, self.now_ns), self._sequence, action))

    def after(self, delay_ns: int, action: Callable[[], None]) -> None:
        self.at(self.now_ns + delay_ns, action)

    def step(self) -> bool:
        """Let the next thing happen; False when nothing is to come."""
        if not self._queue:
            return False
        time_ns, _, action = heapq.heappop(self._queue)
        self.now_ns = time_ns
        action()
        return True

    def tell(self, who: str, what: str) -> None:
        """Add a line to the history; everything that is worth a line is also worth its hash."""
        line = f"{self.now_ns / SECOND:12.6f} {who}: {what}"
        self.trace_hash = zlib.crc32(line.encode(), self.trace_hash)
        self.events.append(line)
        if self.story is not None:
            self.story(line)

    def note(self, data: bytes) -> None:
        """Add bytes to the trace without a line."""
        self.trace_hash = zlib.crc32(data, self.trace_hash)
