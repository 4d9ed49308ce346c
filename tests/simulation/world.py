"""What goes wrong with machines and processes, and the hash of what they did.

The hash of the trace holds every text, so a word in a message changes it. That of effects is over what
members do: the kind of effect and its numbers, without names, texts and times.
"""

from __future__ import annotations

import errno
from array import array
from enum import IntEnum
from hashlib import blake2b
from typing import Any

from cluster.testing.world import MS, SECOND, Clock, Process, ProcessDied, VirtualWorld


class Effect(IntEnum):
    """What a member, or a process on its host, did."""

    BEGAN = 1  # member
    STATE = 2  # member, leadership term, election state, role, module state, commit position
    SENT = 3  # member, to member, length and CRC-32 of the bytes
    WROTE = 4  # offset, length and CRC-32 of the bytes
    APPLIED = 5  # member, service, position, chain of what its service was given up to there
    ENDED = 6  # member, whether by an error


class Effects:
    """The hash of one history's effects, in their order."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=8)

    def add(self, effect: Effect, *numbers: int) -> None:
        """Numbers are below 2^63."""
        self._hash.update(array("q", (effect, *numbers)).tobytes())

    @property
    def hash(self) -> str:
        return self._hash.hexdigest()


class World(VirtualWorld):
    """One that knows its effects."""

    def __init__(self, seed: int, *, keeps_story: bool = False) -> None:
        super().__init__(seed, keeps_story=keeps_story)
        self.effects = Effects()


class Mistake(Exception):
    """An exception that nothing in production is meant for."""


class BadCall(Mistake, OSError):
    """One that a system call might have raised."""


class Interrupted(Mistake, InterruptedError):
    """Likewise, by a signal."""


class NoMemory(Mistake, MemoryError):
    """One that may come anywhere."""


MISTAKES = (Mistake, BadCall, Interrupted, NoMemory)


class Mortal(Process):
    """One that may die, or meet a mistake, at any of its effects."""

    mistakes = (Mistake,)  # of a member's: they end a life

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.effects = 0
        self.dies_at_effect: int | None = None
        self.errs_at_effect: int | None = None
        self._mistake: type[Mistake] = Mistake

    def effect(self) -> None:
        super().effect()
        self.effects += 1
        if self.dies_at_effect is not None and self.effects >= self.dies_at_effect:
            self.is_alive = False
            raise ProcessDied
        if self.errs_at_effect is not None and self.effects >= self.errs_at_effect:
            self.errs_at_effect = None
            raise self._mistake(errno.EIO, f"at effect {self.effects}")

    def err_soon(self, effects: int, mistake: type[Mistake] = Mistake) -> None:
        """Raise the mistake at one of the next effects."""
        self.errs_at_effect, self._mistake = self.effects + effects, mistake

    def die_soon(self, effects: int) -> None:
        """Be killed at one of the next effects."""
        self.dies_at_effect = self.effects + effects


class FaultyClock(Clock):
    """A monotonic clock that may run too fast or slow, and a wall clock that does worse."""

    def __init__(self, world: VirtualWorld, *, skew_ns: int = 0) -> None:
        self._world = world
        self._rate = 1.0
        self._mono_base_ns = 10_000 * SECOND
        self._mono_since_ns = 0
        self._wall_offset_ns = skew_ns
        self._stopped_at_ns: int | None = None

    def monotonic_ns(self, world_ns: int) -> int:
        return self._mono_base_ns + int((world_ns - self._mono_since_ns) * self._rate)

    def set_rate(self, rate: float) -> None:
        """Drift: 1.1 runs ten per cent fast."""
        now_ns = self._world.now_ns
        before_ms = self.epoch_ms(now_ns)
        self._mono_base_ns = self.monotonic_ns(now_ns)
        self._mono_since_ns = now_ns
        self._rate = rate
        self._wall_offset_ns += (before_ms - self.epoch_ms(now_ns)) * MS

    def epoch_ms(self, world_ns: int) -> int:
        if self._stopped_at_ns is not None:
            world_ns = self._stopped_at_ns
        return 1_700_000_000_000 + (int(world_ns * self._rate) + self._wall_offset_ns) // MS

    def jump(self, by_ns: int) -> None:
        self._wall_offset_ns += by_ns

    def stop(self) -> None:
        if self._stopped_at_ns is None:
            self._stopped_at_ns = self._world.now_ns

    def go_on(self) -> None:
        self._stopped_at_ns = None
