"""A first slice of ``python -m benchmarks.kills``: kills of Spark and of members while rows go round."""

import pytest

from benchmarks.kills.rounds import KILLS, STOPS, stage

pytestmark = pytest.mark.faults


@pytest.mark.conformance("P-112")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("what, kinds", [("kills", KILLS), ("stops", STOPS)])
def test_no_row_is_lost_or_doubled_by_kills_and_stops_at_random_moments(tmp_path, what, kinds):
    """What was stopped wakes when others have taken over."""
    with stage(tmp_path, print) as running:
        found = running.run_round(64, 5, kinds)
    assert found["rows"] > 0 and found["delta_rows"] > 2 * found["rows"]
    assert found[what].keys() == kinds.keys(), "each kind is among them"
