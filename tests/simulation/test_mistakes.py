"""The simulator finds mistakes: each is put into production code, and must be seen for what it is."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.simulation.__main__ import run_seed
from tests.simulation.backup_mistakes import BACKUP_MISTAKES
from tests.simulation.compiled_mistakes import COMPILED_MISTAKES
from tests.simulation.consumer_mistakes import CONSUMER_MISTAKES
from tests.simulation.history import ROOT
from tests.simulation.lane_mistakes import LANE_MISTAKES
from tests.simulation.mistakes import MISTAKES, Patch
from tests.simulation.planted import with_the_same_signature
from tests.simulation.quiet_mistakes import QUIET_MISTAKES
from tests.simulation.supervised_mistakes import SUPERVISED_MISTAKES

# Those of compiled turns run with them in every seed, all others are planted into Python's turns.
SOUGHT = (
    MISTAKES | SUPERVISED_MISTAKES | LANE_MISTAKES | CONSUMER_MISTAKES | BACKUP_MISTAKES | COMPILED_MISTAKES
)
Mistake = Callable[[Patch], None]
SEEDS_MAX = 300  # from the seed that is known to show it; it moves when production code does
# What a mistake raises that no longer fits the code. It must not pass for what the code does about it.
SLIP = re.compile(r"TypeError|AttributeError|NameError|mistakes\.py")


def one_in_four(mistakes: Iterable[Mistake]) -> list[Any]:
    """All, of which three in four are slow tests."""
    return [
        pytest.param(mistake, marks=[pytest.mark.slow] if number % 4 else [])
        for number, mistake in enumerate(mistakes)
    ]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mistake", one_in_four(SOUGHT), ids=lambda mistake: mistake.__name__)
def test_a_mistake_is_found_by_the_invariant_that_it_breaks(mistake, monkeypatch):
    invariants, first, faults = SOUGHT[mistake]
    mistake(with_the_same_signature(monkeypatch.setattr))

    for seed in range(first, first + SEEDS_MAX):
        violation = run_seed(seed, faults, is_compiled=mistake in COMPILED_MISTAKES).violation
        assert not SLIP.search(violation), f"the mistake itself is wrong: {violation}"
        if violation.startswith(tuple(f"{name}:" for name in invariants)):
            return

    pytest.fail(f"not found in {SEEDS_MAX} seeds from {first} on")


@pytest.mark.parametrize("mistake", one_in_four(QUIET_MISTAKES), ids=lambda mistake: mistake.__name__)
def test_a_quiet_mistake_fails_the_test_that_is_for_it(mistake):
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "tests.simulation.planted"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", f"tests/{QUIET_MISTAKES[mistake]}"],
        cwd=ROOT,
        env=os.environ | {"PLANTED": mistake.__name__, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )

    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert not SLIP.search(done.stdout), f"the mistake itself is wrong: {done.stdout}"


def test_a_mistake_that_no_longer_fits_the_code_is_refused(monkeypatch):
    class Owner:
        def method(self, first, second=1):
            """As production code has it."""

    patch = with_the_same_signature(monkeypatch.setattr)

    with pytest.raises(TypeError, match="too many positional arguments"):
        patch(Owner, "method", lambda self, first: None)
    patch(Owner, "method", lambda self, first, *rest: None)
