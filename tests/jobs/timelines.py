"""Random lives of timers, and what a table of them must have."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass, field

from jobs.schemas import PENDING, SNAPSHOT


@dataclass
class Timeline:
    """A random life of timers: its entries and snapshots, and what a table of them must have."""

    entries: list[tuple] = field(default_factory=list)
    expected: dict[int, tuple] = field(default_factory=dict)

    @classmethod
    def drawn(cls, seed: int) -> Timeline:
        """Sixty timers over 300 steps; every 50th is a snapshot."""
        drawn, made = random.Random(seed), cls()
        pending: dict[int, int] = {}
        snapshots: list[tuple[int, dict[int, int]]] = []
        fired: dict[int, list[tuple[int, int]]] = {}
        for step in range(1, 301):
            position = step * 32
            timer = drawn.randrange(60)
            if step % 50 == 0:
                snapshots.append((position, dict(pending)))
                made.entries.append((position, None, None, None, SNAPSHOT))
                made.entries += [(position, None, _time(due), one, PENDING) for one, due in pending.items()]
            elif timer in pending and drawn.random() < 0.3:
                del pending[timer]
            elif timer in pending and drawn.random() < 0.5:
                due = pending.pop(timer)
                now = max(step, due)
                fired.setdefault(timer, []).append((position, now))
                made.entries.append((position, 0, _time(now), timer, "TIMER"))
            else:
                pending[timer] = step + drawn.randrange(100)
        for timer in fired.keys() | {one for _, of in snapshots for one in of}:
            made.expected[timer] = _expected(timer, fired.get(timer, []), snapshots)
        return made


def _time(seconds):
    return dt.datetime.fromtimestamp(seconds, dt.UTC)


def _expected(timer, firings, snapshots):
    """State, deadline in seconds, and firings: from one event after another."""
    state, deadline = None, None
    events = [(position, 1, at) for position, at in firings] + [(at, 0, of) for at, of in snapshots]
    for _, is_firing, what in sorted(events, key=lambda event: event[:2]):
        if is_firing:
            deadline = deadline if state == "SCHEDULED" and deadline <= what else None
            state = "FIRED"
        elif timer in what:
            state, deadline = "SCHEDULED", what[timer]
        elif state == "SCHEDULED":
            state = "CANCELLED"
    return state, deadline, len(firings)
