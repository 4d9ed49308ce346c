"""How fast a log is read that other people's members send: so many bytes a second, and no more in advance."""

from __future__ import annotations

from collections.abc import Callable

from cluster.protocol.frame import MTU_MAX

TURNS_PER_S = 20  # into which a second's bytes are divided, if a frame is not longer


class Pace:
    """``room`` says how much may be read now, ``take`` what was."""

    def __init__(self, bytes_per_s: int | None, now_ns: Callable[[], int]) -> None:
        """None: as fast as it comes."""
        self._bytes_per_s = bytes_per_s
        self._now_ns = now_ns
        self._due_ns = 0

    def room(self) -> int | None:
        """How many bytes, 0 for none yet, None where nothing bounds them."""
        if self._bytes_per_s is None:
            return None
        is_due = self._now_ns() >= self._due_ns
        return max(self._bytes_per_s // TURNS_PER_S, MTU_MAX) if is_due else 0

    def take(self, length: int) -> None:
        """So many bytes were read: the next are due when their time is over."""
        if self._bytes_per_s is not None:
            self._due_ns = self._now_ns() + length * 1_000_000_000 // self._bytes_per_s
