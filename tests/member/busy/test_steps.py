"""One turn at a time: compiled code and Python make the same calls, and leave a member in the same state."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.member.busy.step_runs import RUNS, half_frames_and_fragments


@pytest.mark.parametrize(
    "take_steps",
    [pytest.param(run, marks=[pytest.mark.slow] * (run is not half_frames_and_fragments)) for run in RUNS],
)
def test_a_turn_makes_the_same_calls_whoever_takes_it(take_steps):
    counts = take_steps()

    assert min(counts["leader"], counts["follower"]) >= 8


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_mistakes_in_compiled_turns_are_seen_in_a_step():
    root = str(Path(__file__).resolve().parents[3])
    done = subprocess.run(
        [sys.executable, "-m", "tests.member.busy.step_mistakes"],
        cwd=root,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": root},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0, done.stdout
