"""The hash of effects (``world.py``) of many seeds, as ``effects.txt`` keeps it.

A change that leaves behaviour alone leaves them equal. ``python -m tests.simulation --effects`` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

FILE = Path(__file__).with_name("effects.txt")
FIRST, COUNT = 1, 200


def known() -> dict[int, str]:
    """The hash of each seed that is kept."""
    return {int(seed): value for seed, value in map(str.split, FILE.read_text().splitlines())}


def lines(hashes: dict[int, str]) -> Iterator[str]:
    """The lines of the file."""
    yield from (f"{seed} {hashes[seed]}" for seed in sorted(hashes))
