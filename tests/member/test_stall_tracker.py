"""How long a member was away between two cycles (counters 216 and 217)."""

import pytest

from cluster.consensus.context import ConsensusModuleContext
from cluster.counters import CountersFile
from cluster.member.counters import DutyCycleStallTracker, MemberCounters

MS = 1_000_000


def tracked(*cycles_ns):
    counters = MemberCounters(CountersFile.in_memory(), ConsensusModuleContext())
    tracker = DutyCycleStallTracker(counters, 100 * MS)
    tracker.update(0)
    for now_ns in cycles_ns:
        tracker.measure_and_update(now_ns)
    return counters.max_cycle_time_ns.get(), counters.cycle_time_exceeded.get()


@pytest.mark.conformance("C-2")
def test_the_largest_gap_between_two_cycles_is_kept():
    assert tracked(5 * MS, 30 * MS, 31 * MS)[0] == 25 * MS


@pytest.mark.conformance("C-3", "C-4")
def test_a_gap_above_the_threshold_is_counted_and_one_of_exactly_the_threshold_is_not():
    assert tracked(100 * MS)[1] == 0
    assert tracked(100 * MS + 1)[1] == 1
    assert tracked(101 * MS, 102 * MS, 300 * MS)[1] == 2
