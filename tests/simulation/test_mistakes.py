"""The simulator finds mistakes: each is put into production code, and must be seen for what it is."""

import gc
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.simulation import sought
from tests.simulation.line_mistakes import LINE_MISTAKES
from tests.simulation.planted import told_by, with_the_same_signature
from tests.simulation.quiet_mistakes import QUIET_MISTAKES
from tests.simulation.turn_mistakes import TURN_MISTAKES
from tests.tree import ROOT

by_name = {"ids": lambda mistake: mistake.__name__}
# Shown after so many steps that each takes 3 to 15 s: only the search of the slow tests plays their seeds.
LONG = {
    "log_purged_beyond_the_snapshot",
    "lanes_are_forgotten_by_a_jump",
    "service_close_forgotten",
    "group_reports_do_not_wait_for_the_last_one",
    "bad_sector_ends_the_member",
    "sessions_never_time_out",
    "truncation_skipped",
    "quorum_counts_a_stale_term",
    "reader_goes_to_the_end_of_the_file",
}
# What a process that runs a test with a mistake in it has imported when it begins.
IMPORTED = [
    "hypothesis",
    "tests.simulation.planted",
    "tests.simulation.quiet_mistakes",
    "tests.member.in_memory.cluster",
    "tests.simulation.script",
]


@pytest.fixture(scope="module", autouse=True)
def _nothing_but_histories_is_collected() -> Iterator[None]:
    """Behind each one its memory is: the collector need not look at all else again."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("mistake", [m for m in sought.SOUGHT if m.__name__ not in LONG], **by_name)
def test_a_mistake_is_found_by_the_invariant_that_it_breaks(mistake, monkeypatch):
    seed = sought.known().get(mistake.__name__, 1)
    mistake(with_the_same_signature(monkeypatch.setattr))

    assert sought.run(mistake, seed) is not None, (
        f"seed {seed} no longer shows it: find another with python -m tests.simulation --mistakes"
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mistake", sought.SOUGHT, **by_name)
def test_a_mistake_can_be_found_whatever_has_moved_its_seed(mistake, monkeypatch):
    seed = sought.known().get(mistake.__name__, 1)
    mistake(with_the_same_signature(monkeypatch.setattr))

    assert sought.find(mistake, seed) is not None, f"not in {sought.SEEDS_MAX} seeds from {seed} on"


def test_a_seed_is_kept_of_each_mistake_and_of_nothing_else():
    assert list(sought.known()) == [mistake.__name__ for mistake in sought.SOUGHT]


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    """Each forks from one that has imported what they need, and runs one test."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        yield pool


def test_the_line_of_a_mistake_and_the_test_for_it_are_still_there():
    missing = []
    for name, mistake in (LINE_MISTAKES | TURN_MISTAKES).items():
        path, _, test = mistake.test.partition("::")
        text = (ROOT / f"{mistake.module.replace('.', '/')}.py").read_text()
        is_there = f"def {test.partition('[')[0]}(" in (ROOT / "tests" / path).read_text()
        if text.count(mistake.right) != 1 or not is_there:
            missing.append(name)
    assert not missing


@pytest.mark.slow
@pytest.mark.parametrize("name", LINE_MISTAKES | TURN_MISTAKES)
def test_a_mistake_of_a_line_fails_the_test_that_is_for_it(name):
    """In a new process: it is in the text of a module that nobody has imported."""
    test = (LINE_MISTAKES | TURN_MISTAKES)[name].test
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        exit_code, told = pool.submit(told_by, name, test).result()

    assert exit_code == pytest.ExitCode.TESTS_FAILED, told
    assert not sought.SLIP.search(told), f"the mistake itself is wrong: {told}"


@pytest.mark.parametrize("mistake", QUIET_MISTAKES, **by_name)
def test_a_quiet_mistake_fails_the_test_that_is_for_it(mistake, processes):
    exit_code, told = processes.submit(told_by, mistake.__name__, QUIET_MISTAKES[mistake]).result()

    assert exit_code == pytest.ExitCode.TESTS_FAILED, told
    assert not sought.SLIP.search(told), f"the mistake itself is wrong: {told}"


def test_a_mistake_that_no_longer_fits_the_code_is_refused(monkeypatch):
    class Owner:
        def method(self, first, second=1):
            """As production code has it."""

    patch = with_the_same_signature(monkeypatch.setattr)

    with pytest.raises(TypeError, match="too many positional arguments"):
        patch(Owner, "method", lambda self, first: None)
    patch(Owner, "method", lambda self, first, *rest: None)
