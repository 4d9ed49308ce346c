"""A first slice of ``python -m benchmarks.kills``: kills of Spark and of members while rows go round."""

import pytest

from benchmarks.kills.rounds import KILLS, STOPS, stage

pytestmark = pytest.mark.faults


@pytest.mark.conformance("P-112")
@pytest.mark.timeout(1200)
def test_no_row_is_lost_or_doubled_by_kills_at_random_moments(tmp_path):
    with stage(tmp_path, print) as running:
        found = running.run_round(118, 5, KILLS)
    assert found["rows"] > 0 and found["delta_rows"] > 2 * found["rows"]
    assert found["kills"].keys() == KILLS.keys(), "each kind is among them"


@pytest.mark.conformance("P-112")
@pytest.mark.timeout(1200)
def test_no_row_is_lost_or_doubled_by_what_stood_still_and_wakes_when_others_have_taken_over(tmp_path):
    with stage(tmp_path, print) as running:
        found = running.run_round(118, 5, STOPS)
    assert found["rows"] > 0 and found["delta_rows"] > 2 * found["rows"]
    assert found["stops"].keys() == STOPS.keys(), "each kind is among them"
