"""Members that start over a directory that is not their own of before: what is committed stays."""

import pytest

from tests.simulation.history import History, Result
from tests.simulation.script import Script
from tests.simulation.wrong_directories import WrongDirectories

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


def test_the_own_disk_of_a_member_over_anothers_directory_can_be_wiped_meanwhile() -> None:
    """What the wipe and the lives after it have made of the disk stays when the member has its own again."""
    script = Script(3, 1)
    directories = WrongDirectories(script.history.nemesis)

    def storm() -> None:
        script.await_all()
        directories._exchange(script.history.members[1])
        script.wipe(1)
        script.start(1)
        script.await_all()

    script.run(storm)
