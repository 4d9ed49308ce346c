"""What a leader has written and not seen committed, and what losing the leadership undoes."""

import pytest

from cluster.consensus.context import SECOND
from cluster.consensus.module import ModuleState, UncommittedEntries
from cluster.consensus.timers import PriorityHeapTimerService
from cluster.protocol.enums import ClusterTimeUnit, ConsensusModuleState
from tests.consensus.language import a_context

State = ConsensusModuleState


def uncommitted(*entries: tuple[int, int]) -> UncommittedEntries:
    queue = UncommittedEntries()
    for position, value in entries:
        queue.add(position, value)
    return queue


def an_active_module() -> ModuleState:
    module = ModuleState()
    module.change(State.ACTIVE)
    return module


@pytest.mark.conformance("C-32")
@pytest.mark.parametrize(
    ("commit", "let_go"), [(95, []), (96, [1]), (191, [1]), (192, [1, 2]), (999, [1, 2, 3])]
)
def test_a_commit_lets_go_what_ends_at_or_below_it(commit, let_go):
    queue = uncommitted((96, 1), (192, 2), (288, 3))

    assert queue.sweep(commit) == let_go
    assert len(queue) == 3 - len(let_go)


def test_a_lost_leadership_returns_what_is_not_committed_oldest_first_and_keeps_nothing():
    queue = uncommitted((96, 1), (192, 2), (288, 3))

    assert queue.take_uncommitted(96) == [2, 3]
    assert len(queue) == 0


@pytest.mark.conformance("C-309")
def test_uncommitted_actions_are_undone_back_to_the_state_before_the_first_of_them():
    module = an_active_module()
    module.change_by_log(State.SUSPENDED, 96)
    module.change_by_log(State.ACTIVE, 192)
    module.change_by_log(State.SNAPSHOT, 288)

    module.restore_uncommitted(96)

    assert module.state is State.SUSPENDED, "the suspension is committed, the rest is not"


@pytest.mark.conformance("C-309")
def test_committed_actions_stay():
    module = an_active_module()
    module.change_by_log(State.SUSPENDED, 96)
    module.sweep(96)

    module.restore_uncommitted(96)

    assert module.state is State.SUSPENDED


@pytest.mark.conformance("C-309")
def test_a_closed_module_is_not_opened_again():
    module = an_active_module()
    module.change_by_log(State.SUSPENDED, 96)
    module.change(State.CLOSED)

    module.restore_uncommitted(0)

    assert module.state is State.CLOSED


def test_a_follower_reads_its_log_while_active_or_suspended():
    assert [state.name for state in State if reads(state)] == ["ACTIVE", "SUSPENDED"]


def reads(state: State) -> bool:
    module = ModuleState()
    module.change(state)
    return module.reads_log


# ---- timers that a lost leadership had let expire


@pytest.mark.conformance("C-269")
def test_a_timer_event_that_was_not_committed_fires_again_at_once():
    timers = expired_at_position(96)

    timers.restore_uncommitted(64)

    assert fired(timers, now=100) == [7]


@pytest.mark.conformance("C-269")
def test_or_is_cancelled_by_the_log_of_the_next_leader():
    timers = expired_at_position(96)
    timers.restore_uncommitted(64)

    timers.on_replay_timer_event(7, timestamp=130, log_position=96)

    assert fired(timers, now=10_000) == []
    timers.on_schedule(7, 120, log_position=96)
    assert fired(timers, now=10_000) == [7], "the event was the timer's own: it suppresses nothing later"


@pytest.mark.conformance("C-269")
def test_one_that_was_committed_does_not_come_back():
    timers = expired_at_position(96)

    timers.restore_uncommitted(96)

    assert len(timers) == 0


def expired_at_position(position: int) -> PriorityHeapTimerService:
    timers = PriorityHeapTimerService()
    timers.schedule(7, 100)
    assert timers.poll(100, lambda _: position) == 1
    return timers


def fired(timers: PriorityHeapTimerService, now: int) -> list[int]:
    events: list[int] = []
    timers.poll(now, lambda id_: events.append(id_) or 1_000)
    return events


@pytest.mark.conformance("C-273")
@pytest.mark.parametrize(
    ("unit", "duration_ns", "expected"),
    [
        (ClusterTimeUnit.MILLIS, 10 * SECOND, 10_000),
        (ClusterTimeUnit.MICROS, 10 * SECOND, 10_000_000),
        (ClusterTimeUnit.NANOS, 10 * SECOND, 10 * SECOND),
        (ClusterTimeUnit.MILLIS, 1_500_001, 2),
    ],
)
def test_durations_are_told_in_the_unit_of_cluster_time_rounded_up(unit, duration_ns, expected):
    assert a_context(time_unit=unit).cluster_duration(duration_ns) == expected
