"""What ``tests/seconds.py`` says of two runs, and that the committed one is of this tree."""

from __future__ import annotations

import subprocess
import sys

from tests import seconds
from tests.seconds import COMMITTED, Run, Seconds, grown, processor_s, slowness_beside
from tests.tree import ROOT

PROCESSOR_S_MAX = 1_050  # of all folders, on a machine of usual speed; the goal is 900


def run(processor: str = "fast", **folders: float) -> Run:
    return Run(processor, {f"tests/{name}": Seconds(1, spent, spent) for name, spent in folders.items()})


BEFORE = run(archive=20.0, member=100.0, spark=200.0, log=2.0)


def test_a_folder_that_grew_by_more_than_a_fifth_is_named() -> None:
    assert grown(BEFORE, run(archive=20.0, member=119.0, spark=200.0, log=2.0)) == []
    (line,) = grown(BEFORE, run(archive=20.0, member=121.0, spark=200.0, log=2.0))
    assert line.startswith("tests/member took 121 s of processor time, and 100 s when it was committed: ")


def test_who_cannot_commit_another_run_fails_later() -> None:
    assert grown(BEFORE, run(archive=20.0, member=134.0, spark=200.0, log=2.0), 1.35) == []
    assert grown(BEFORE, run(archive=20.0, member=136.0, spark=200.0, log=2.0), 1.35) != []


def test_a_new_folder_costs_a_decision_too() -> None:
    (line,) = grown(BEFORE, run(archive=20.0, member=100.0, spark=200.0, log=2.0, new=30.0))
    assert line.startswith("tests/new took 30 s")


def test_a_folder_of_a_few_seconds_may_double() -> None:
    assert grown(BEFORE, run(archive=20.0, member=100.0, spark=200.0, log=4.0)) == []


def test_a_slow_machine_is_no_growth_and_hides_none() -> None:
    assert grown(BEFORE, run(archive=40.0, member=200.0, spark=400.0, log=4.0)) == []
    (line,) = grown(BEFORE, run(archive=40.0, member=300.0, spark=400.0, log=4.0))
    assert line.startswith("tests/member took 300 s of processor time, and 200 s")
    half = run(archive=10.0, member=50.0, spark=100.0, log=1.0)
    assert slowness_beside(BEFORE, half, "tests/member") == 1


def test_a_machine_that_is_slow_for_most_of_the_time_is_no_growth_of_one_folder() -> None:
    assert grown(BEFORE, run(archive=20.0, member=135.0, spark=240.0, log=2.0)) == []


def test_on_another_kind_of_processor_nothing_is_compared() -> None:
    assert grown(BEFORE, run("another", archive=90.0, member=100.0, spark=200.0, log=2.0)) == []


def test_processor_time_of_children_counts_while_they_run_and_afterwards() -> None:
    began = processor_s()
    busy = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert processor_s() - began >= 0.25
        child.communicate(b"\n")
    assert processor_s() - began >= 0.25


def test_a_file_is_read_as_it_was_written(tmp_path) -> None:
    folders = {"tests/log": Seconds(3, 1.5, 2.5), "tests": Seconds(1, 0.1, 0.2)}
    seconds.write(tmp_path / "seconds.json", folders)
    assert Run.read(tmp_path / "seconds.json") == Run(seconds.processor_name(), folders)


def test_the_committed_run_is_of_these_folders_and_within_the_budget() -> None:
    committed = Run.read(COMMITTED)
    with_tests = {seconds.folder_of(path) for path in (ROOT / "tests").rglob("test_*.py")}
    assert committed.folders.keys() <= with_tests
    assert sum(spent.processor for spent in committed.folders.values()) < PROCESSOR_S_MAX
