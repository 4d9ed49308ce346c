"""Random lives of timers, as the Log and snapshots say them."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from typing import Any

from jobs.schemas import PENDING, SNAPSHOT
from jobs.timers import LOG_COLUMNS


def drawn_timers(seed: int) -> list[dict[str, Any]]:
    """The entries of sixty timers over 300 steps of 32 bytes; every 50th is a snapshot."""
    drawn = random.Random(seed)
    entries: list[tuple[Any, ...]] = []
    pending: dict[int, int] = {}
    for step in range(1, 301):
        position = step * 32
        timer = drawn.randrange(60)
        if step % 50 == 0:
            entries.append((position, None, None, None, SNAPSHOT))
            entries += [(position, None, _time(due), one, PENDING) for one, due in pending.items()]
        elif timer in pending and drawn.random() < 0.3:
            del pending[timer]
        elif timer in pending and drawn.random() < 0.5:
            now = max(step, pending.pop(timer))
            entries.append((position, step // 100, _time(now), timer, "TIMER"))
        else:
            pending[timer] = step + drawn.randrange(100)
    return [dict(zip(LOG_COLUMNS, entry, strict=True)) for entry in entries]


def cut_by_position(entries: list[dict[str, Any]], seed: int) -> list[list[dict[str, Any]]]:
    """The same, cut at three of the steps."""
    cuts = [0, *sorted(random.Random(seed).sample(range(1, 300), 3)), 301]
    return [
        [entry for entry in entries if start * 32 <= entry["position"] < end * 32]
        for start, end in itertools.pairwise(cuts)
    ]


def _time(seconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(seconds, dt.UTC)
