"""The table of timers: as a dictionary, and in the order of deadlines, at any size."""

from __future__ import annotations

import random

import numpy as np
import pytest

from cluster.log import timer_table
from cluster.log.timer_table import TimerTable
from tests.log.logs import seeds

IDS = (1, 32, 2**20, 2**32, 2**40, -1, -(2**33))  # apart by


def in_order(twin):
    return [(id_, deadline) for id_, (deadline, _) in sorted(twin.items(), key=lambda item: item[1])]


@pytest.mark.parametrize("seed", seeds(20))
def test_the_table_has_what_a_dictionary_has(seed):
    chance = random.Random(seed)
    table, twin = TimerTable(), {}
    apart, ids = chance.choice(IDS), chance.choice((5, 60, 3_000))
    for number in range(4_000):
        id_ = chance.randrange(ids) * apart
        if chance.random() < 0.65:
            deadline = chance.choice((chance.randrange(50), chance.randrange(-(2**63), 2**63)))
            table.schedule(id_, deadline)
            if id_ not in twin or twin[id_][0] != deadline:
                twin[id_] = deadline, number
        else:
            assert table.cancel(id_) == (twin.pop(id_, None) is not None)
        assert table.deadline_of(id_) == (twin[id_][0] if id_ in twin else None)
        assert len(table) == len(twin)
        if number % 50 == 0:
            assert table.first() == (in_order(twin)[0] if twin else None)
    assert list(map(tuple, table.in_order().tolist())) == in_order(twin)

    for expected in in_order(twin):
        assert table.first() == expected
        assert table.cancel(expected[0])
    assert (table.first(), len(table), len(table.in_order())) == (None, 0, 0)


def test_extreme_ids_and_deadlines_are_kept():
    table = TimerTable()
    extremes = [(2**63 - 1, -(2**63)), (-(2**63), 2**63 - 1), (0, 0), (-1, -1)]
    for id_, deadline in extremes:
        table.schedule(id_, deadline)

    assert sorted(map(tuple, table.in_order().tolist())) == sorted(extremes)
    assert table.first() == (2**63 - 1, -(2**63))


def test_rows_of_cancelled_timers_are_used_again():
    table = TimerTable()
    words = len(table._timers), len(table._places)
    for number in range(20_000):
        table.schedule(number, number)
        if number >= 500:
            assert table.cancel(number - 500)

    assert (len(table._timers), len(table._places)) == words


@pytest.mark.parametrize("apart", IDS)
def test_buckets_stay_short_whatever_the_ids_have_in_common(apart):
    table = TimerTable()
    for number in range(20_000):
        table.schedule(number * apart, number)
    places = table._places.reshape(-1, timer_table.PLACE_WORDS)
    heads = places[1 : table._places[timer_table.BUCKETS] + 1, timer_table.BUCKET]
    chain = table._timers.reshape(-1, timer_table.TIMER_WORDS)[:, timer_table.NEXT]
    longest, rows = 0, heads
    while np.any(rows):
        longest, rows = longest + 1, chain[rows[rows != 0]]

    assert longest <= 16
