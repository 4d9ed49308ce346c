"""Members that start over a directory that is not their own of before: what is committed stays."""

import pytest

from tests.simulation.history import History, Result

FAULTS = ("wrong directory", "kill", "kill the leader")


def played(seed: int) -> tuple[Result, int]:
    history = History(seed, only_faults=FAULTS)
    result = history.run()
    return result, history.nemesis.counts.get("wrong directory", 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [4, 13, 20])
def test_nothing_committed_is_lost_to_older_copies_others_directories_and_copies_that_led(seed: int) -> None:
    result, strikes = played(seed)
    assert not result.violation, result.violation
    assert strikes
