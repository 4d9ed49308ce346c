"""The mistakes that seeds find, each with a seed that shows it, as ``mistakes.txt`` keeps them.

``python -m tests.simulation --mistakes`` finds them again and writes them. A change of what members do moves
them; then a mistake shows in another seed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.simulation.apart_mistakes import APART_MISTAKES
from tests.simulation.backup_mistakes import BACKUP_MISTAKES
from tests.simulation.compiled_mistakes import COMPILED_MISTAKES
from tests.simulation.consumer_mistakes import CONSUMER_MISTAKES
from tests.simulation.history import STEPS_MAX, Result
from tests.simulation.lane_mistakes import LANE_MISTAKES
from tests.simulation.mistakes import MISTAKES, Patch
from tests.simulation.planted import with_the_same_signature
from tests.simulation.seeds import run_seed
from tests.simulation.supervised_mistakes import SUPERVISED_MISTAKES

Mistake = Callable[[Patch], None]
# Those of compiled turns, and of services in processes of their own, run with them in every seed; all others
# are planted into Python's turns and services within.
SOUGHT = (
    MISTAKES
    | SUPERVISED_MISTAKES
    | LANE_MISTAKES
    | CONSUMER_MISTAKES
    | BACKUP_MISTAKES
    | COMPILED_MISTAKES
    | APART_MISTAKES
)
FILE = Path(__file__).with_name("mistakes.txt")
SEEDS_MAX = 300  # from the seed that is known to show it
SEEDS_BESIDE = 24  # behind one that shows it: another may do so in fewer steps
# What a mistake raises that no longer fits the code. It must not pass for what the code does about it.
SLIP = re.compile(r"TypeError|AttributeError|NameError|mistakes\.py")


def known() -> dict[str, int]:
    """The seed of each mistake."""
    return {name: int(seed) for name, seed in map(str.split, FILE.read_text().splitlines())}


def lines(seeds: dict[str, int]) -> Iterator[str]:
    """The lines of the file."""
    yield from (f"{name} {seed}" for name, seed in seeds.items())


def plant(name: str) -> Mistake:
    """For the rest of this process."""
    mistake = next(mistake for mistake in SOUGHT if mistake.__name__ == name)
    mistake(with_the_same_signature(setattr))
    return mistake


def settings(mistake: Mistake) -> dict[str, Any]:
    """Of histories that are to show it."""
    return {
        "only_faults": SOUGHT[mistake][1],
        "is_compiled": mistake in COMPILED_MISTAKES,
        "services_apart": mistake in APART_MISTAKES,
    }


def run(mistake: Mistake, seed: int, steps_max: int = STEPS_MAX) -> Result | None:
    """Play a seed with the mistake, which is planted already; None where no invariant shows it."""
    invariants, _ = SOUGHT[mistake]
    result = run_seed(seed, **settings(mistake), steps_max=steps_max)
    assert not SLIP.search(result.violation), f"the mistake itself is wrong: {result.violation}"
    is_shown = result.violation.startswith(tuple(f"{name}:" for name in invariants))
    return result if is_shown else None


def find(mistake: Mistake, first_seed: int) -> Result | None:
    """The first seed from there on that shows the mistake, which is planted already."""
    results = (run(mistake, seed) for seed in range(first_seed, first_seed + SEEDS_MAX))
    return next(filter(None, results), None)


def plant_and_find(name: str) -> tuple[str, int | None]:
    """The seed that shows it in the fewest steps, of the first and some behind it; not to be undone."""
    mistake = plant(name)
    found = find(mistake, known().get(name, 1))
    if found is None:
        return name, None
    for seed in range(found.seed + 1, found.seed + 1 + SEEDS_BESIDE):
        found = run(mistake, seed, found.steps) or found
    return name, found.seed
