"""Virtual time, chance and the record of what happened: everything that makes a run the same twice.

Nothing here or above reads a clock, an ``id()`` or the order of a set. One seed gives one ``Random`` for each
concern, so that a change in how much chance one part uses does not stir all the others.
"""

import heapq
from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from operator import itemgetter
from random import Random
from typing import Any

MS = 1_000_000
SECOND = 1_000_000_000

FOREVER_NS = 1 << 62
LAST_EVENTS = 400  # kept for the report of a failure


class Trace:
    """Every event goes into one hash; the last ones are kept to be read, or all of them for a story."""

    def __init__(self, *, keeps_all: bool = False) -> None:
        self._hash = blake2b(digest_size=8)
        self.events: deque[tuple[int, str, str]] = deque(maxlen=None if keeps_all else LAST_EVENTS)
        self.count = 0

    def bytes_moved(self, now_ns: int, what: str, number: int, crc: int) -> None:
        """An event that nobody wants to read."""
        self.count += 1
        self._hash.update(f"{now_ns} {what} {number} {crc}\n".encode())

    def say(self, now_ns: int, who: str, what: str) -> None:
        """An event of the story."""
        self.count += 1
        self._hash.update(f"{now_ns} {who} {what}\n".encode())
        self.events.append((now_ns, who, what))

    @property
    def hash(self) -> str:
        return self._hash.hexdigest()

    @property
    def story(self) -> list[str]:
        """Lines in the order of time: turns are taken one after the other, and overlap in it."""
        return [readable(event) for event in sorted(self.events, key=itemgetter(0))]


def readable(event: tuple[int, str, str]) -> str:
    """One line of a story."""
    now_ns, who, what = event
    return f"{now_ns / SECOND:11.6f}  {who:<10} {what}"


class VirtualWorld:
    """Virtual nanoseconds and the queue of what is to happen."""

    def __init__(self, seed: int, *, keeps_story: bool = False) -> None:
        self.seed = seed
        self.now_ns = 0
        self.trace = Trace(keeps_all=keeps_story)
        self.steps = 0
        self._queue: list[tuple[int, int, Callable[..., Any], tuple[Any, ...]]] = []
        self._sequence = 0

    def random(self, concern: str) -> Random:
        """Chance of its own for one concern."""
        return Random(f"{self.seed}/{concern}")

    def at(self, time_ns: int, call: Callable[..., Any], *arguments: Any) -> None:
        """Have ``call`` happen then, after all that was planned for the same instant before."""
        assert time_ns >= self.now_ns
        self._sequence += 1
        heapq.heappush(self._queue, (time_ns, self._sequence, call, arguments))

    def step(self) -> bool:
        """Let the next thing happen; False when nothing is left."""
        if not self._queue:
            return False
        time_ns, _, call, arguments = heapq.heappop(self._queue)
        self.now_ns = time_ns
        self.steps += 1
        call(*arguments)
        return True

    def run_until(self, time_ns: int) -> None:
        """Let everything happen that is due by ``time_ns``."""
        queue = self._queue
        while queue and queue[0][0] <= time_ns:
            self.step()
        self.now_ns = max(self.now_ns, time_ns)

    def say(self, who: str, what: str) -> None:
        self.trace.say(self.now_ns, who, what)


class ProcessDied(BaseException):
    """Unwinds the code of a process that is killed; no ``Exception``, which production code may catch."""


class Process:
    """What dies as one: it takes turns, each of which takes time, and may be killed at any of its effects.

    ``effect`` is called before every write, sync, rename and send. So a crash can fall between any two of
    them, and whatever a dying process still tries to do has no effect.
    """

    def __init__(self, world: VirtualWorld, host: str, name: str) -> None:
        self.world = world
        self.host = host
        self.name = name
        self.is_alive = True
        self.is_paused = False
        self._spent_ns = 0
        self._next_turn_ns: int | None = None
        self._turn_number = 0
        self._busy_until_ns = world.now_ns

    def say(self, text: str) -> None:
        """Add an event to the story."""
        self.world.trace.say(self.now_ns, self.name, text)

    # -- time --

    @property
    def now_ns(self) -> int:
        """World time as the process lives it: within a turn it goes on with what the turn does."""
        return self.world.now_ns + self._spent_ns

    def spend(self, duration_ns: int) -> None:
        """The turn takes so much longer."""
        self._spent_ns += duration_ns

    def sleep(self, duration_ns: int) -> None:
        """Within a turn: let others go on; who wakes this process meanwhile is not heard."""
        until_ns = self.now_ns + duration_ns
        self._busy_until_ns = FOREVER_NS
        self.world.run_until(until_ns)
        self._spent_ns = 0

    # -- turns --

    def wake(self, time_ns: int) -> None:
        """Take a turn then, or earlier if one is due earlier; a busy or paused process takes it later."""
        if not self.is_alive:
            return
        time_ns = max(time_ns, self._busy_until_ns, self.world.now_ns)
        if self._next_turn_ns is not None and self._next_turn_ns <= time_ns:
            return
        self._next_turn_ns = time_ns
        self._turn_number += 1
        self.world.at(time_ns, self._turn, self._turn_number)

    def _turn(self, number: int) -> None:
        if number != self._turn_number or not self.is_alive:
            return
        self._next_turn_ns = None
        if self.is_paused:
            return  # ``resume`` wakes it
        self._spent_ns = 0
        try:
            again_ns = self.turn()
        except ProcessDied:
            self._spent_ns = 0
            self.on_killed()
            return
        self._busy_until_ns = self.now_ns
        self._spent_ns = 0
        if self.is_alive and again_ns is not None:
            self.wake(self._busy_until_ns + again_ns)

    def turn(self) -> int | None:
        """Take one turn; return after how long the next is wanted although nothing happens."""
        raise NotImplementedError

    # -- life --

    def effect(self) -> None:
        """Something is about to be seen by others, or by the next life."""
        if not self.is_alive:
            raise ProcessDied

    def kill(self) -> None:
        """Be killed now, between two turns."""
        if self.is_alive:
            self.is_alive = False
            self.on_killed()

    def on_killed(self) -> None:
        """Give back what the kernel takes from a dead process."""

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        self.wake(self.world.now_ns)


class Clock:
    """A machine's clocks, which go as the world's time does."""

    def monotonic_ns(self, world_ns: int) -> int:
        return 10_000 * SECOND + world_ns

    def epoch_ms(self, world_ns: int) -> int:
        return 1_700_000_000_000 + world_ns // MS
