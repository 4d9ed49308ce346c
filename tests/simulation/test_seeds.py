"""A fixed slice of the seeds, and that a seed is a history: the same one each time."""

import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.simulation import effects
from tests.simulation.__main__ import main
from tests.simulation.history import ELECTION_STATES
from tests.simulation.seeds import run_seed

ROOT = Path(__file__).resolve().parents[2]
QUICK, MORE = range(1, 5), range(5, 41)


def without_violation(seeds):
    """What became of them."""
    # Spawned: a fork of this process would inherit the locks that gRPC's threads held at that moment.
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        results = list(pool.map(run_seed, seeds))

    assert [f"seed {r.seed}: {r.violation}" for r in results if r.violation] == []
    known = effects.known()
    assert [r.seed for r in results if r.effects_hash != known[r.seed]] == [], (
        "what these seeds did has changed"
    )
    assert sum(result.acknowledged for result in results) > 10 * len(seeds), "too harsh to prove anything"
    return results


@pytest.mark.conformance("S-59", "S-60", "S-183", "S-184")
@pytest.mark.timeout(300)
def test_a_slice_of_seeds_keeps_every_invariant():
    without_violation(QUICK)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_more_seeds_keep_every_invariant_and_reach_every_state():
    results = without_violation(MORE)
    reached = {name.split(" -> ")[1] for result in results for name in result.transitions}
    assert reached == set(ELECTION_STATES)


def test_a_seed_has_the_same_trace_in_another_process_under_another_hash_seed():
    seed = 7
    here = run_seed(seed)
    command = f"from tests.simulation.seeds import run_seed; print(run_seed({seed}).trace_hash)"
    there = subprocess.run(
        [sys.executable, "-c", command],
        cwd=ROOT,
        env={"PYTHONHASHSEED": "12345", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )

    assert there.stdout.split() == [here.trace_hash]
    assert run_seed(seed) == here


def test_a_story_is_told_in_the_words_of_the_election(capsys):
    assert main(["--seed", "7", "--story"]) == 0

    story = capsys.readouterr().out
    assert "election INIT -> CANVASS: several members" in story
    assert "storm: " in story
    assert "calm: clients send no more" in story
