"""The simulator finds mistakes: each is put into production code, and must be seen for what it is."""

import pytest

from tests.simulation.history import History
from tests.simulation.mistakes import MISTAKES

SEEDS_MAX = 300  # from the seed that is known to show it; it moves when production code does


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_is_found_by_the_invariant_that_it_breaks(mistake, monkeypatch):
    invariants, first, faults = MISTAKES[mistake]
    mistake(monkeypatch.setattr)

    for seed in range(first, first + SEEDS_MAX):
        violation = History(seed, only_faults=faults).run().violation
        if violation.startswith(tuple(f"{name}:" for name in invariants)):
            return

    pytest.fail(f"not found in {SEEDS_MAX} seeds from {first} on")
