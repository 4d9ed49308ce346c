"""Cluster time of members whose clocks are wrong."""

import pytest

from cluster.consensus.cluster_session import SessionState
from tests.member.cluster_steps import send
from tests.member.in_memory.cluster import MS, SECOND, SimulatedCluster

HOUR_NS = 3600 * SECOND


def test_after_a_leader_whose_clock_was_an_hour_ahead_time_goes_on():
    cluster = SimulatedCluster(1)
    leader = cluster.await_leader()
    leader.clock.jump(HOUR_NS)
    cluster.run(SECOND)
    leader.clock.jump(-HOUR_NS)
    cluster.run(SECOND)
    before, clock = leader.life.consensus_module.replica.cluster_time, leader.cluster_time
    assert before > clock + HOUR_NS // MS - 2_000
    cluster.run(10 * SECOND)
    passed = leader.cluster_time - clock
    assert passed * 9 // 10 <= leader.life.consensus_module.replica.cluster_time - before < passed


def test_a_leader_whose_clock_is_an_hour_ahead_stamps_within_a_second_of_the_others():
    cluster = SimulatedCluster(3)
    leader = cluster.await_leader()
    leader.clock.jump(HOUR_NS)
    cluster.run(2 * SECOND)
    ahead = leader.life.consensus_module.replica.cluster_time - cluster.followers[0].cluster_time
    assert abs(ahead) <= 1_001


def test_a_leader_within_a_second_of_the_others_stamps_its_own_clock():
    cluster = SimulatedCluster(3)
    leader = cluster.await_leader()
    leader.clock.jump(900 * MS)
    cluster.run(2 * SECOND)
    assert 0 <= leader.cluster_time - leader.life.consensus_module.replica.cluster_time <= 10
    leader.kill()
    second = cluster.await_leader()
    cluster.run(10 * SECOND)
    assert 0 <= second.cluster_time - second.life.consensus_module.replica.cluster_time <= 10


def with_a_session(members=1):
    """A cluster, its leader, its client, and the leader's sessions by their ids."""
    cluster = SimulatedCluster(members)
    leader = cluster.await_leader()
    client = cluster.add_client()
    send(cluster, 1)
    sessions = leader.replica.sessions.sessions
    assert list(sessions) == [client.session_id]
    return cluster, leader, client, sessions


@pytest.mark.parametrize("by_ns", [HOUR_NS, -HOUR_NS], ids=["forward", "back"])
def test_a_jump_of_the_clock_ends_no_session(by_ns):
    """Nor does a leader that hears the others' clocks only after its term has begun."""
    cluster, leader, client, sessions = with_a_session()
    leader.clock.jump(by_ns)
    cluster.run(2 * SECOND)
    assert list(sessions) == [client.session_id]
    assert sessions[client.session_id].state is SessionState.OPEN


def test_a_clock_that_runs_at_twenty_times_the_speed_ends_no_session():
    cluster, leader, client, sessions = with_a_session()
    for _ in range(100):
        leader.clock.jump(950 * MS)
        cluster.run(50 * MS)
    assert list(sessions) == [client.session_id]
    assert sessions[client.session_id].state is SessionState.OPEN


@pytest.mark.parametrize("by_ns", [0, HOUR_NS, -HOUR_NS], ids=["right", "ahead", "back"])
def test_a_silent_session_ends_after_its_time_out_whatever_the_clock_says(by_ns):
    """Monotonic time, also while cluster time goes on at nine tenths of it."""
    cluster, leader, client, sessions = with_a_session()
    leader.clock.jump(by_ns)
    cluster.run(SECOND)
    leader.clock.jump(-by_ns)
    client.is_lost = True  # as it believes: it says nothing any more
    client.send(b"the last word")
    cluster.run(9_900 * MS)
    assert list(sessions) == [client.session_id]
    cluster.run(300 * MS)
    assert not sessions


def test_a_clock_that_is_off_is_told_by_who_hears_it_and_counted_by_who_has_it():
    cluster = SimulatedCluster(3)
    cluster.await_leader()
    other = cluster.followers[0]
    cluster.run(2 * SECOND)
    assert not [event for event in cluster.events if "the clock of" in event]
    other.clock.jump(-5 * SECOND)
    cluster.run(12 * SECOND)
    told = [event for event in cluster.events if "the clock of" in event]
    assert sum(f"the clock of member {other.member_id} shows " in event for event in told) == 2
    assert sum(event.endswith(" s less than this member's") for event in told) == 2
    assert len(told) == 4, "each pair once, from both sides"
    offsets = {m.member_id: round(m.counters.clock_offset_ns.get() / SECOND) for m in cluster.members}
    assert offsets == {m.member_id: -5 if m is other else 0 for m in cluster.members}
