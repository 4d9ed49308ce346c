"""Timers as every member keeps them: one TimerEvent each, whatever comes first."""

import random
from collections import deque

import pytest

from cluster.consensus.timers import PriorityHeapTimerService


class Log:
    """Takes timer events after position 10,000 while it is willing; remembers them in order."""

    def __init__(self, capacity: int = 1_000_000) -> None:
        self.events: list[int] = []
        self.capacity = capacity

    def expire(self, correlation_id: int) -> int:
        if len(self.events) >= self.capacity:
            return 0
        self.events.append(correlation_id)
        return 10_000 + 64 * len(self.events)


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
    timers.on_replay_timer_event(7, timestamp=150, log_position=320)

    timers.on_schedule(7, 100, log_position=160)
    assert timers.next_deadline is None
    timers.on_schedule(7, 120, log_position=320)
    assert timers.next_deadline == 120
    timers.poll(200, log.expire, limit=20)
    assert log.events == [7]


def test_cancelling_an_unknown_id_does_not_touch_an_early_expiry():
    timers = PriorityHeapTimerService()
    timers.on_replay_timer_event(7, timestamp=150, log_position=320)

    timers.on_cancel(7)
    timers.on_schedule(7, 100, log_position=160)

    assert len(timers) == 0


def test_a_timer_that_was_moved_before_it_expired_leaves_nothing_on_whoever_reads_the_event_first():
    timers = PriorityHeapTimerService()
    timers.on_replay_timer_event(7, timestamp=150, log_position=320)

    timers.on_schedule(7, 100, log_position=160)
    timers.on_schedule(7, 150, log_position=192)

    assert len(timers) == 0


@pytest.mark.parametrize("order", ["moved first", "expired first", "expired before anything was asked for"])
def test_a_timer_that_is_moved_while_it_expires_expires_at_its_new_deadline_too(order):
    """It expired at 100 on the leader, which had not heard yet that it is to be 900 now."""
    timers = PriorityHeapTimerService()
    if order == "expired before anything was asked for":
        timers.on_replay_timer_event(7, timestamp=100, log_position=320)
    timers.on_schedule(7, 100, log_position=160)
    if order == "expired first":
        timers.on_replay_timer_event(7, timestamp=100, log_position=320)
    timers.on_schedule(7, 900, log_position=192)
    if order == "moved first":
        timers.on_replay_timer_event(7, timestamp=100, log_position=320)

    assert dict(timers) == {7: 900}
    timers.on_replay_timer_event(7, timestamp=900, log_position=640)
    timers.on_schedule(7, 1_700, log_position=640)
    assert dict(timers) == {7: 1_700}, "the next one is not taken for one that expired"


def test_a_timer_that_was_moved_after_its_lost_event_keeps_the_new_deadline():
    timers = timers_of(t7=100, t8=100, t9=100)
    ends = iter((320, 352, 384))
    timers.poll(100, lambda _: next(ends))

    timers.on_schedule(7, 900, log_position=160)
    timers.on_schedule(8, 90, log_position=192)
    timers.on_cancel(9)
    assert dict(timers) == {7: 900}
    timers.restore_uncommitted(commit_position=256)

    assert dict(timers) == {7: 900, 8: 90}


def test_an_event_that_ends_where_the_commit_does_is_known_when_leadership_is_lost():
    timers = timers_of(t7=100, t8=100)
    ends = iter((320, 352))
    timers.poll(100, lambda _: next(ends))

    timers.restore_uncommitted(commit_position=320)
    timers.on_schedule(7, 100, log_position=160)  # by a service that has not come to it

    assert dict(timers) == {8: 100}


class Module:
    """A leader's timers, its log, and a service that hears of both late."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.timers = PriorityHeapTimerService()
        self.now = 0
        self.position = 0
        self.log: list[tuple[int, int | None]] = []  # (end, id that expired, None for a client's message)
        self.events: list[tuple[int, int, int]] = []  # id, time, position
        self.requests: list[tuple[int, int | None, int]] = []  # id, deadline (None: cancelled), position
        self.commit_position = 0
        self.processed = 0  # by the service, entries of the log
        self.under_way: deque[tuple[int, int | None, int]] = deque()

    def append(self, correlation_id: int | None) -> int:
        self.position += 32
        self.log.append((self.position, correlation_id))
        if correlation_id is not None:
            self.events.append((correlation_id, self.now, self.position))
        return self.position

    def turn(self) -> None:
        chance = self.chance
        self.now += chance.choice([0, 1, 5])
        for _ in range(chance.randrange(3)):
            self.append(None)
        if chance.random() < 0.5:
            self.commit_position = chance.randrange(self.commit_position, self.position + 1, 32)
        self.timers.sweep(self.commit_position)
        while self.processed < len(self.log) and self.log[self.processed][0] <= self.commit_position:
            self.process()
        while self.under_way and chance.random() < 0.6:
            ask(self.timers, self.under_way.popleft())
        self.timers.on_services_at(self.under_way[0][2] if self.under_way else self.service_position)
        self.timers.poll(self.now, self.append, limit=chance.choice([1, 20]))

    def process(self) -> None:
        position, expired = self.log[self.processed]
        self.processed += 1
        for _ in range(self.chance.randrange(3)):
            id_ = self.chance.randrange(3) if expired is None else expired
            deadline = None if self.chance.random() < 0.2 else self.now + self.chance.randrange(-10, 20)
            self.requests.append((id_, deadline, position))
            self.under_way.append(self.requests[-1])

    @property
    def service_position(self) -> int:
        return self.log[self.processed - 1][0] if self.processed else 0


def ask(timers: PriorityHeapTimerService, request: tuple[int, int | None, int]) -> None:
    id_, deadline, position = request
    if deadline is None:
        timers.on_cancel(id_)
    else:
        timers.on_schedule(id_, deadline, position)


def a_follower(module: Module, events: list[tuple[int, int, int]]) -> PriorityHeapTimerService:
    """Reads the events, and hears what its service, which is never ahead, asks for: in any order else."""
    timers, requests = PriorityHeapTimerService(), deque(module.requests)
    pending = deque(events)
    bias = module.chance.random()
    while pending or requests:
        if pending and (not requests or pending[0][2] <= requests[0][2] or module.chance.random() < bias):
            timers.on_replay_timer_event(*pending.popleft())
        else:
            timers.on_services_at(requests[0][2])
            ask(timers, requests.popleft())
    return timers


@pytest.mark.parametrize("seed", range(200))
def test_in_whatever_order_they_hear_of_requests_and_events_all_members_keep_the_same_timers(seed):
    module = Module(seed)
    for _ in range(module.chance.randrange(1, 120)):
        module.turn()
    while module.under_way:
        ask(module.timers, module.under_way.popleft())
    committed = [event for event in module.events if event[2] <= module.commit_position]
    module.timers.restore_uncommitted(module.commit_position)

    for _ in range(5):
        assert sorted(a_follower(module, committed)) == sorted(module.timers)
    module.timers.on_services_at(module.commit_position)
    assert not module.timers.has_events


def test_a_snapshot_sees_each_timer_once_however_often_it_was_moved():
    timers = PriorityHeapTimerService()
    for deadline in range(1_000):
        timers.schedule(deadline % 10, deadline)

    assert sorted(timers) == [(id_, 990 + id_) for id_ in range(10)]
    assert len(timers) == 10


def test_a_snapshot_has_timers_by_deadline_and_id_in_whatever_order_they_were_set(monkeypatch):
    monkeypatch.setattr("cluster.consensus.timers.RUN_LENGTH", 4)
    timers = PriorityHeapTimerService()
    for id_ in range(10, 0, -1):
        timers.schedule(id_, 100 + id_ % 2)

    captured = timers.capture()
    assert len(list(captured.sort())) == 3

    assert list(captured) == sorted((100 + id_ % 2, id_) for id_ in range(1, 11))


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
