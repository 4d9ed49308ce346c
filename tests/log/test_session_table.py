"""Sessions as kernels find them."""

import random

import pytest

from cluster.log.session_table import SessionTable
from tests.log import naive
from tests.log.logs import seeds


@pytest.mark.parametrize("seed", seeds(20))
def test_the_table_finds_what_a_dictionary_finds(seed):
    rng = random.Random(seed)
    table, twin = SessionTable(16), {}
    for _ in range(400):
        session = rng.randrange(1, 60) * rng.choice((1, 32, 2**40))
        if session in twin and rng.random() < 0.7:
            table.close(session)
            del twin[session]
        elif session not in twin and len(twin) < 16:
            twin[session] = rng.randrange(5)
            table.open(session, twin[session])
        for probe in (session, -session, rng.randrange(-(2**63), 2**63)):
            slot = table.slot_of(probe)
            assert (slot >= 0) == (probe in twin)
            if slot >= 0:
                assert table.slots["connection_id"][slot] == twin[probe]
        assert len(table) == len(twin)


def test_a_slot_is_clean_when_another_session_gets_it():
    table = SessionTable(1)
    slot = table.open(5, connection_id=3)
    table.slots["appended"][slot] = 9
    table.close(5)

    assert table.open(6) == slot
    assert table.slots[slot].tolist()[:6] == (6, 1, -1, 0, 0, 0)


def test_a_lost_connection_names_the_sessions_it_had():
    table = SessionTable(8)
    for session, connection in ((3, 7), (1, 7), (2, 9)):
        table.open(session, connection)

    assert table.unlink(7) == [1, 3]
    assert table.slots["connection_id"][table.slot_of(1)] == -1
    assert table.slots["connection_id"][table.slot_of(2)] == 9
    assert table.unlink(7) == []


def test_silent_sessions_are_those_whose_last_activity_lies_before_a_time():
    table = SessionTable(8)
    for session, time in ((2, 100), (1, 99), (3, 101)):
        table.open(session, active_ns=time)

    assert table.inactive_since(100) == [1]
    assert table.inactive_since(101) == [1, 2]


@pytest.mark.conformance("C-230")
def test_a_new_leader_restarts_the_clock_of_every_session():
    table = SessionTable(8)
    table.open(1, active_ns=5)
    table.touch_all(1000)

    assert table.inactive_since(1000) == []
    table.open(2)
    assert table.inactive_since(1000) == [2], "a free slot has no clock"


def test_a_new_term_counts_on_from_what_is_committed():
    table = SessionTable(2)
    slot = table.open(1)
    table.slots["appended"][slot], table.slots["committed"][slot] = 9, 4
    table.restart_appended()

    assert table.slots["appended"][slot] == 4


def test_clearing_forgets_sessions_and_counts():
    table = SessionTable(2)
    table.open(1)
    table.words[3] = 5
    table.clear()

    assert (len(table), table.slot_of(1), naive.counts(table)["messages"]) == (0, -1, 0)
    table.open(1)
    table.open(2)
