"""``cluster.testing.diagnosis``: each mistake of a service has its sentence, and the entry that shows it."""

import gc
import random
import sys
import threading
import time
from datetime import datetime

import pytest

from cluster.errors import MembersApart
from cluster.service.service_context import ServiceContext
from cluster.testing import SimulatedCluster
from cluster.testing.alike import in_forks
from cluster.testing.backwards import LogEntry, led_to
from cluster.testing.diagnosis import (
    BATCHES,
    BUFFER,
    CHANCE,
    CLOCK,
    MEMBER,
    OUTSIDE,
    PLACES,
    SHARED,
    SNAPSHOT,
    why_apart,
)
from cluster.testing.wire import Happening
from tests.testing import services


@pytest.fixture(scope="module")
def log():
    """Of some messages, a snapshot, and some more, and how far it goes."""
    cluster = SimulatedCluster(services.Counter)
    alice = cluster.connect("alice")
    for _ in range(2):
        for number in range(4):
            alice.offer(b"message %d" % number)
        cluster.take_snapshot()
    alice.offer(b"the last one")
    cluster.settle()
    return cluster._committed_log()


def why(service, log):
    found = why_apart(service, *log, ServiceContext(client_id=1))
    return "" if found is None else found.text


@pytest.mark.parametrize(
    ("service", "sentence", "where"),
    [
        (services.GoesByTheClock, CLOCK, "'message 0': record 0 of its snapshot is"),
        (services.GoesByADate, CLOCK, "'message 0': record 0 of its snapshot is"),
        (services.GoesByChance, CHANCE, "record 0 of its snapshot is"),
        (services.GoesByIdentifiers, CHANCE, "'message 0': record 0 of its snapshot is"),
        (services.SharesBetweenMembers, SHARED, "it sends an answer to a client"),
        (services.GoesByObjects, PLACES, "record 0 of its snapshot is"),
        (services.GoesByAFile, OUTSIDE, "'message 0': record 0 of its snapshot is"),
        (services.GoesByItsMember, MEMBER, "'message 0': record 0 of its snapshot is '0', or '1'"),
        (services.KeepsBuffers, BUFFER, "record 0 of its snapshot is"),
        (services.ForgetsItsState, SNAPSHOT, "'message 0': it sends an answer to a client"),
        (services.SetsTimersByMemory, SNAPSHOT, "it sends a timer set, or set again correlation_id=5"),
        (services.GoesByItsBatches, BATCHES, "'message 1': record 0 of its snapshot is '2', or '4'"),
    ],
)
def test_each_mistake_is_named_with_the_first_entry_that_shows_it(log, service, sentence, where):
    found = why(service, log)
    assert found.startswith(f"{sentence}. First after the entry that ends at ") and where in found


def look_at_clocks():
    time.monotonic()
    datetime.now()


def take_memory():
    kept = [type("", (), {"number": number})() for number in range(random.randrange(50))]
    del kept[::2]


@pytest.mark.parametrize(
    ("does", "service", "sentence"),
    [(look_at_clocks, services.GoesByADate, CLOCK), (take_memory, services.GoesByObjects, PLACES)],
)
def test_what_other_threads_do_changes_nothing(log, does, service, sentence):
    ended, interval = threading.Event(), sys.getswitchinterval()

    def go_on():
        while not ended.is_set():
            does()

    thread = threading.Thread(target=go_on)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        assert why(service, log).startswith(sentence)
    finally:
        sys.setswitchinterval(interval)
        ended.set()
        thread.join()


def test_what_processes_that_begin_alike_come_to_may_be_longer_than_a_pipe_holds():
    assert in_forks(lambda: bytes(200_000)) == [bytes(200_000)] * 3


def test_nor_does_a_look_at_a_clock_when_garbage_is_collected(log):
    """As Hypothesis looks at one, to take what collections took from the time of a test."""
    thresholds, looks = gc.get_threshold(), random.Random(0)

    def look(phase, info):
        for _ in range(looks.randrange(3)):
            time.perf_counter()

    gc.callbacks.append(look)
    gc.set_threshold(5)
    try:
        assert why(services.GoesByADate, log).startswith(CLOCK)
    finally:
        gc.callbacks.remove(look)
        gc.set_threshold(*thresholds)


def test_of_a_sound_service_nothing_is_said(log):
    assert why(services.Counter, log) == ""


def test_who_finds_members_apart_says_why_and_what_led_there():
    cluster = SimulatedCluster(services.GoesByItsMember, watched=True)
    alice = cluster.connect("alice")
    alice.offer(b"hello")
    cluster.settle()
    with pytest.raises(MembersApart) as raised:
        cluster.check()
    assert f"{MEMBER}. " in str(raised.value)
    assert "service 0 has one state on member 0, another on member 1, another on member 2. " in str(
        raised.value
    )
    [cause] = cluster.causes
    told = cluster.happenings
    assert "onTakeSnapshot" not in [each.name for each in told], "none was taken but by who compares"
    led = [(told[i].sender, told[i].receiver, told[i].name) for i in sorted(led_to(cause.entry, told))]
    leader = led[0][1]
    followers = sorted({f"member {i}" for i in range(3)} - {leader})
    assert led[0] == ("alice", leader, "SessionMessageHeader")
    assert sorted(led[1:3]) == [(leader, follower, "SessionMessageHeader") for follower in followers]
    assert sorted(led[3:]) == [(f"service 0 of member {i}", "", "onSessionMessage") for i in range(3)]


def test_who_differs_from_all_others_that_have_the_same_is_named():
    class Odd(services.GoesByItsMember):
        def on_session_message(self, session, timestamp, buffer):
            self.count += self.cluster.member_id() == 1

    cluster = SimulatedCluster(Odd)
    cluster.connect("alice").offer(b"hello")
    cluster.settle()
    with pytest.raises(MembersApart, match="service 0 has one state on members 0, 2, another on member 1"):
        cluster.check()


def test_of_entries_that_look_the_same_the_one_that_led_there_is_found():
    def said(*steps):
        return [Happening(number, *step) for number, step in enumerate(steps)]

    text = "SessionMessageHeader clusterSessionId=1 'it\\'s'"
    call = ("service 0 of member 1", "", "onSessionMessage 'it\\'s'")
    log = ("member 0", "member 1", f"Log: {text}")
    told = said(("alice", "member 0", text), log, call, ("alice", "member 0", text), log, call)
    assert list(led_to(LogEntry(text, 1), told)) == [3, 4, 5]
    assert list(led_to(LogEntry(text, 0), told)) == [0, 1, 2]
    timer = said(("member 0", "member 1", "Log: TimerEvent correlationId=1"), (call[0], "", "onTimerEvent 1"))
    assert list(led_to(LogEntry("TimerEvent correlationId=1", 0), timer)) == [0, 1]
