"""Cluster time of members whose clocks are wrong."""

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


def test_a_jump_of_the_clock_ends_no_session():
    """Nor does a leader that hears the others' clocks only after its term has begun."""
    cluster = SimulatedCluster(1)
    leader = cluster.await_leader()
    client = cluster.add_client()
    send(cluster, 1)
    sessions = leader.replica.sessions.sessions
    assert list(sessions) == [client.session_id]
    leader.clock.jump(HOUR_NS)
    cluster.run(2 * SECOND)
    assert list(sessions) == [client.session_id]
    assert sessions[client.session_id].state is SessionState.OPEN
