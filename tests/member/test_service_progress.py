"""What the module has of a service in all its processes, and what it tells the next of them."""

from __future__ import annotations

import pytest

from cluster.member.services.service_progress import LogScript, TakenFromService, replay
from cluster.protocol.service import JoinLog
from cluster.service.channel import LogClosed, LogJoined


def answers_again(taken: TakenFromService, counts: list[int]) -> list[int]:
    return [taken.known_answers(count) for count in counts]


def test_the_next_process_says_again_what_was_taken_beyond_the_position():
    taken = TakenFromService(96)
    assert [taken.is_new_request(position) for position in (96, 128, 160)] == [False, True, True]
    assert answers_again(taken, [3, 2]) == [0, 0]
    assert not taken.is_said_again

    taken.on_process_lost()

    assert taken.is_said_again
    assert answers_again(taken, [2, 2, 3]) == [2, 2, 1]
    assert [taken.is_new_request(position) for position in (128, 160, 192)] == [False, False, True]
    assert not taken.is_said_again
    assert taken.answers == 7


def test_what_is_said_again_until_another_process_dies_is_said_again_from_its_begin():
    taken = TakenFromService(0)
    taken.is_new_request(32)
    taken.known_answers(3)
    taken.on_process_lost()
    taken.known_answers(2)

    taken.on_process_lost()

    assert answers_again(taken, [3, 1]) == [3, 0]
    assert [taken.is_new_request(32), taken.is_new_request(64)] == [False, True]


def test_a_position_takes_what_lies_before_it_with_it():
    """What comes behind it is new, also where the process had yet to say again what the one before it had."""
    taken = TakenFromService(0)
    taken.is_new_request(32)
    taken.known_answers(3)
    taken.on_process_lost()

    taken.on_position(64)

    assert not taken.is_said_again
    assert taken.answers == 0
    assert taken.known_answers(2) == 0
    assert taken.is_new_request(96)
    taken.on_process_lost()
    assert answers_again(taken, [3]) == [2]
    assert not taken.is_new_request(128)


def test_a_position_that_is_known_takes_nothing_back():
    """A process that catches up reports those of the replay."""
    taken = TakenFromService(64)
    taken.known_answers(3)
    taken.is_new_request(96)
    taken.on_process_lost()

    for position in (32, 64):
        taken.on_position(position)

    assert taken.is_said_again
    assert not taken.is_new_request(64), "of the position, and no news"
    assert [taken.is_new_request(96), taken.is_new_request(128)] == [False, True]
    assert answers_again(taken, [4]) == [3]


def a_script() -> LogScript:
    """A log up to 192 that was replayed, one from there on that was left at 320, and the next."""
    script = LogScript()
    script.add(replay(None, 0, 192, 0))
    script.add(replay(None, 192, 1 << 40, 0))
    script.add(LogClosed(320))
    script.add(b"TerminationPosition")
    script.add(replay(None, 320, 1 << 40, 0))
    return script


def told(script: LogScript, position: int) -> list[object]:
    def shown(item: object) -> object:
        if not isinstance(item, LogJoined):
            return item
        join = JoinLog.decode(item.message)
        return join.log_position, join.is_startup

    return [shown(item) for item in script.resumed(position)]


@pytest.mark.parametrize(
    ("position", "first"), [(0, (0, True)), (191, (0, True)), (192, (192, True)), (319, (192, True))]
)
def test_a_log_is_forgotten_once_it_is_read_to_its_end_and_no_sooner(position, first):
    script = a_script()
    script.prune(position)

    assert told(script, 0)[0] == first
    assert told(script, 0)[-3:] == [LogClosed(320), b"TerminationPosition", (320, True)]


def test_what_is_told_between_logs_is_told_again_with_the_logs_behind_it():
    script = a_script()
    script.prune(320)

    assert told(script, 320) == [b"TerminationPosition", (320, True)]


def test_the_end_of_a_log_is_forgotten_once_the_log_is_read():
    script = LogScript()
    script.add(LogClosed(320))
    script.prune(319)
    assert told(script, 0) == [LogClosed(320)]

    script.prune(320)
    assert told(script, 0) == []


def test_a_log_that_was_being_read_goes_on_and_is_no_start_of_the_cluster():
    script = a_script()
    script.prune(200)

    assert told(script, 200)[0] == (200, False)
    assert told(script, 192)[0] == (192, True)
