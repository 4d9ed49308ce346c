"""A fixed slice of the seeds, and that a seed is a history: the same one each time."""

import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.simulation import effects
from tests.simulation.__main__ import main, summary
from tests.simulation.history import ELECTION_STATES
from tests.simulation.seeds import run_seed

ROOT = Path(__file__).resolve().parents[2]
QUICK, MORE = range(1, 3), range(3, 41)


def without_violation(results):
    """What became of some seeds."""
    assert [f"seed {r.seed}: {r.violation}" for r in results if r.violation] == []
    known = effects.known()
    assert [r.seed for r in results if r.effects_hash != known[r.seed]] == [], (
        "what these seeds did has changed"
    )
    assert sum(result.acknowledged for result in results) > 10 * len(results), "too harsh to prove anything"
    return results


@pytest.fixture(scope="module")
def seventh():
    """What became of seed 7."""
    return run_seed(7)


@pytest.mark.conformance("S-59", "S-60", "S-183", "S-184")
@pytest.mark.timeout(300)
def test_a_slice_of_seeds_keeps_every_invariant(seventh):
    without_violation([seventh, *map(run_seed, QUICK)])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_more_seeds_keep_every_invariant_and_reach_every_state():
    # Spawned: a fork of this process would inherit the locks that gRPC's threads held at that moment.
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        results = without_violation(list(pool.map(run_seed, MORE)))
    reached = {name.split(" -> ")[1] for result in results for name in result.transitions}
    assert reached == set(ELECTION_STATES)


@pytest.mark.slow
def test_a_seed_has_the_same_trace_in_another_process_under_another_hash_seed(seventh):
    command = "from tests.simulation.seeds import run_seed; print(run_seed(7).trace_hash)"
    there = subprocess.run(
        [sys.executable, "-c", command],
        cwd=ROOT,
        env={"PYTHONHASHSEED": "12345", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )

    assert there.stdout.split() == [seventh.trace_hash]


def test_a_seed_goes_as_before_and_its_story_is_told_in_the_words_of_the_election(capsys, seventh):
    assert main(["--seed", "7", "--story"]) == 0

    *story, end, _ = capsys.readouterr().out.split("\n")
    assert end == summary(seventh)
    story = "\n".join(story)
    assert "election INIT -> CANVASS: several members" in story
    assert "storm: " in story
    assert "calm: clients send no more" in story
