"""Attempts to write a lane's batch, in random histories of kills, lost leaders and zombies."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.aeron.lane_histories import History


def run(seeds):
    kills = 0
    for seed in seeds:
        history = History(seed)
        history.run()
        expected = {lane: Counter(rows) for lane, rows in history.rows.items()}
        assert history.messages() == expected, f"seed {seed}"
        kills += history.kills
    return kills


def test_each_row_is_in_the_log_once_whoever_is_killed_and_whoever_goes_on():
    assert run(range(20)) > 20


@pytest.mark.slow
def test_each_row_is_in_the_log_once_in_a_thousand_histories():
    assert run(range(1000, 2000)) > 1000
