"""Members that do not run, and how long an election waits for them (C-57)."""

import pytest

from cluster.member.liveness import Liveness
from tests.member.in_memory.cluster import LONG_NS, QUICK, SECOND, SimulatedCluster


def stopped(seed=1, **settings):
    """Three members that have worked together, none of which runs."""
    cluster = SimulatedCluster(3, seed, **settings)
    cluster.await_leader(timeout_ns=90 * SECOND)
    client = cluster.add_client()
    client.send(b"0:before")
    cluster.await_settled()
    cluster.await_level()
    for member in cluster.members:
        member.kill()
    return cluster


def time_to_lead(cluster):
    began_ns = cluster.world.now_ns
    cluster.await_leader(timeout_ns=90 * SECOND)
    return (cluster.world.now_ns - began_ns) / SECOND


@pytest.mark.parametrize("absent", range(3))
def test_two_of_three_go_on_after_10_s_where_the_third_one_does_not_run(absent):
    cluster = stopped()
    for member in cluster.members:
        if member.member_id != absent:
            member.start()

    assert 10 <= time_to_lead(cluster) < 12
    assert any(f"member {absent} is not there" in line for line in cluster.events)


@pytest.mark.slow
@pytest.mark.conformance("C-57")
def test_but_they_wait_a_minute_for_one_whose_host_is_silent():
    cluster = stopped()
    for other in (0, 1):
        cluster.links.block(other, 2)
        cluster.links.block(2, other)
        cluster.members[other].start()

    assert 60 <= time_to_lead(cluster) < 62


def test_one_that_comes_up_in_the_meantime_has_its_say():
    cluster = stopped()
    cluster.members[0].start()
    cluster.members[1].start()
    cluster.run(8 * SECOND)
    assert cluster.leader is None
    cluster.members[2].start()

    assert time_to_lead(cluster) < 2
    cluster.await_level()
    cluster.check()


def test_the_only_one_that_runs_never_leads():
    cluster = stopped(**QUICK)
    cluster.members[0].start()
    cluster.run(LONG_NS)

    assert cluster.leader is None


def test_a_new_cluster_waits_for_all_of_its_members():
    """Without a log nobody can tell whether the one that is not there has one."""
    cluster = SimulatedCluster(3, is_started=False, **QUICK)
    cluster.members[0].start()
    cluster.members[1].start()
    cluster.run(LONG_NS)
    assert cluster.leader is None

    cluster.members[2].start()
    cluster.await_leader()


def test_who_was_there_is_gone_at_once_and_counts_again_when_its_link_is_stable():
    presence = Liveness(10 * SECOND)
    presence.start(0)
    presence.on_seen(1)
    assert presence.on_refused(1)
    assert not presence.on_refused(2)
    assert presence.gone_member_ids == {1}

    assert presence.update(9 * SECOND, lambda member_id: False) == []
    assert presence.update(10 * SECOND, lambda member_id: False) == [2]
    assert presence.gone_member_ids == {1, 2}
    assert presence.update(11 * SECOND, lambda member_id: member_id == 1) == []
    assert presence.gone_member_ids == {2}
