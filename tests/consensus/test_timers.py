"""Timers as every member keeps them: one TimerEvent each, whatever comes first."""

import random

import pytest

from cluster.consensus.timers import PriorityHeapTimerService


class Log:
    """Takes timer events while it is willing; remembers them in order."""

    def __init__(self, capacity: int = 1_000_000) -> None:
        self.events: list[int] = []
        self.capacity = capacity

    def expire(self, correlation_id: int) -> bool:
        if len(self.events) >= self.capacity:
            return False
        self.events.append(correlation_id)
        return True


def timers_of(**deadlines: int) -> PriorityHeapTimerService:
    timers = PriorityHeapTimerService()
    for name, deadline in deadlines.items():
        timers.schedule(int(name[1:]), deadline)
    return timers


@pytest.mark.conformance("C-266")
def test_timers_fire_in_the_order_of_their_deadlines_also_when_all_are_overdue():
    timers = timers_of(t1=300, t2=100, t3=200)
    log = Log()

    assert timers.poll(10_000, log.expire, limit=20) == 3
    assert log.events == [2, 3, 1]


def test_equal_deadlines_fire_in_the_order_they_were_asked_for():
    timers, log = timers_of(t9=5, t1=5, t4=5), Log()

    timers.poll(5, log.expire, limit=20)

    assert log.events == [9, 1, 4]


def test_a_timer_fires_at_its_deadline_and_not_before():
    timers, log = timers_of(t1=100), Log()

    assert timers.next_deadline == 100
    assert timers.poll(99, log.expire, limit=20) == 0
    assert timers.poll(100, log.expire, limit=20) == 1
    assert timers.next_deadline is None


@pytest.mark.conformance("C-262")
def test_a_poll_lets_no_more_than_its_limit_expire():
    timers, log = PriorityHeapTimerService(), Log()
    for correlation_id in range(50):
        timers.schedule(correlation_id, 1)

    assert [timers.poll(1, log.expire, limit=20) for _ in range(4)] == [20, 20, 10, 0]
    assert log.events == list(range(50))


@pytest.mark.conformance("C-263")
@pytest.mark.parametrize("deadline", [50, 150])
def test_scheduling_a_known_id_moves_its_deadline(deadline):
    timers, log = timers_of(t1=100), Log()

    timers.schedule(1, deadline)

    assert timers.poll(deadline - 1, log.expire, limit=20) == 0
    assert timers.poll(1_000, log.expire, limit=20) == 1
    assert log.events == [1]


@pytest.mark.conformance("C-264")
def test_cancelling_an_unknown_timer_is_false_and_harmless():
    timers, log = timers_of(t1=100), Log()

    assert timers.cancel(2) is False
    timers.schedule(2, 100)

    assert timers.poll(100, log.expire, limit=20) == 2


@pytest.mark.conformance("C-265")
def test_a_cancelled_timer_never_fires():
    timers, log = timers_of(t1=100, t2=100), Log()

    assert timers.cancel(1) is True
    timers.poll(1_000, log.expire, limit=20)

    assert log.events == [2]


@pytest.mark.conformance("C-268")
def test_a_timer_whose_event_the_log_refuses_fires_in_a_later_cycle():
    timers, log = timers_of(t1=1, t2=2, t3=3), Log(capacity=1)

    assert timers.poll(10, log.expire, limit=20) == 1
    log.capacity = 10
    assert timers.poll(10, log.expire, limit=20) == 2
    assert log.events == [1, 2, 3]


@pytest.mark.conformance("C-270")
def test_an_event_that_came_first_is_spent_on_exactly_one_request():
    timers, log = PriorityHeapTimerService(), Log()
    timers.on_replay_timer_event(7)

    timers.on_schedule(7, 100)
    assert timers.next_deadline is None
    timers.on_schedule(7, 200)
    assert timers.next_deadline == 200
    timers.poll(200, log.expire, limit=20)
    assert log.events == [7]


def test_cancelling_an_unknown_id_does_not_touch_an_early_expiry():
    timers = PriorityHeapTimerService()
    timers.on_replay_timer_event(7)

    timers.cancel(7)
    timers.on_schedule(7, 100)

    assert len(timers) == 0


def test_a_snapshot_sees_each_timer_once_however_often_it_was_moved():
    timers = PriorityHeapTimerService()
    for deadline in range(1_000):
        timers.schedule(deadline % 10, deadline)

    assert sorted(timers) == [(id_, 990 + id_) for id_ in range(10)]
    assert len(timers._heap) <= 2 * 10 + 64 + 1, "moved timers pile up in the heap"


def test_any_history_of_requests_fires_what_a_plain_table_would():
    chance = random.Random(11)
    timers, table, log = PriorityHeapTimerService(), {}, Log()
    for now in range(3_000):
        id_ = chance.randrange(40)
        if chance.random() < 0.7:
            deadline = now + chance.randrange(60)
            timers.schedule(id_, deadline)
            table[id_] = deadline
        elif chance.random() < 0.5:
            assert timers.cancel(id_) == (table.pop(id_, None) is not None)
        due = {other for other, deadline in table.items() if deadline <= now}
        before = len(log.events)
        timers.poll(now, log.expire, limit=1_000)
        assert set(log.events[before:]) == due and len(log.events) - before == len(due)
        for other in due:
            del table[other]
    assert sorted(timers) == sorted(table.items())


@pytest.mark.conformance("C-267")
def test_while_time_passes_timers_fire_in_the_order_of_their_ticks():
    timers, log = timers_of(t1=30, t2=10, t3=20, t4=10), Log()

    fired_at = {}
    for now in range(0, 40, 5):
        before = len(log.events)
        timers.poll(now, log.expire, limit=20)
        fired_at.update({id_: now for id_ in log.events[before:]})

    assert log.events == [2, 4, 3, 1]
    assert fired_at == {2: 10, 4: 10, 3: 20, 1: 30}


@pytest.mark.conformance("C-271")
def test_what_a_snapshot_sees_is_what_fires_after_the_restart():
    before, log = timers_of(t1=300, t2=100, t3=100), Log()
    before.poll(99, log.expire, limit=20)

    after = PriorityHeapTimerService()
    for correlation_id, deadline in before:
        after.schedule(correlation_id, deadline)
    after.poll(10_000, log.expire, limit=20)

    assert list(before) == [(2, 100), (3, 100), (1, 300)]
    assert log.events == [2, 3, 1]
