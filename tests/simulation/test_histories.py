"""Histories by name, and a slice of the seeded ones."""

import pytest

from tests.simulation.cluster import MS, SECOND, US, SimulatedCluster
from tests.simulation.history import History

MEMBER_COUNTS = [1, 3, 5, 7]


def loaded(cluster, client, count, size=100):
    for _ in range(count):
        client.send(b"%d:%d:" % (client.client_id, len(client.sent)) + bytes(size))


@pytest.mark.parametrize("member_count", MEMBER_COUNTS)
def test_members_that_start_together_find_a_leader_and_commit(member_count):
    cluster = SimulatedCluster(member_count, seed=1)
    cluster.await_leader(timeout_ns=5 * SECOND)
    client = cluster.add_client()
    loaded(cluster, client, 50)
    cluster.await_settled()
    cluster.await_level()

    cluster.check()
    cluster.check_promises()
    assert client.echoed == client.sent


@pytest.mark.parametrize("seed", range(5))
def test_a_killed_leader_costs_less_than_a_second_and_nothing_that_was_acknowledged(seed):
    cluster = SimulatedCluster(3, seed)
    leader = cluster.await_leader()
    client = cluster.add_client()
    loaded(cluster, client, 20)
    cluster.await_settled()
    loaded(cluster, client, 100)
    cluster.run(300 * US)
    leader.kill()
    killed_ns = cluster.world.now_ns
    cluster.await_leader()
    assert cluster.world.now_ns - killed_ns < 1 * SECOND

    cluster.await_settled()
    leader.start()
    cluster.await_level()
    cluster.check()
    cluster.check_promises()


def test_a_cluster_that_loses_its_power_comes_back_with_all_that_it_acknowledged():
    cluster = SimulatedCluster(3, seed=2)
    cluster.await_leader()
    client = cluster.add_client()
    for _ in range(10):
        loaded(cluster, client, 30, size=900)
        cluster.run(2 * MS)
    for member in cluster.members:
        member.power_cut()
    acknowledged = client.acknowledged
    for member in cluster.members:
        member.start()
    cluster.await_leader()
    cluster.await_level()
    cluster.check()

    assert acknowledged > 0
    applied = cluster.members[0].service.applied
    assert applied[:acknowledged] == client.sent[:acknowledged]


def test_a_follower_several_terms_behind_is_brought_level_term_by_term():
    cluster = SimulatedCluster(3, seed=3)
    cluster.await_leader()
    client = cluster.add_client()
    loaded(cluster, client, 20)
    cluster.await_settled()
    late = cluster.followers[0]
    late.kill()
    for _ in range(3):
        leader = cluster.leader
        leader.kill()
        cluster.run(1 * SECOND)
        leader.start()
        cluster.await_leader(timeout_ns=90 * SECOND)
        loaded(cluster, client, 40, size=1000)
        cluster.await_settled()
    late.start()
    cluster.await_level()

    cluster.check()
    cluster.check_promises()
    assert len(cluster.leader_of_term) >= 4


def test_a_wiped_member_comes_back_by_itself_while_the_cluster_works():
    cluster = SimulatedCluster(3, seed=4)
    cluster.await_leader()
    client = cluster.add_client()
    loaded(cluster, client, 200, size=1000)
    cluster.await_settled()
    wiped = cluster.followers[0]
    wiped.kill()
    wiped.disk.wipe()
    wiped.start()
    loaded(cluster, client, 50)
    cluster.await_settled()
    cluster.await_level()

    cluster.check()
    cluster.check_promises()


def test_a_wiped_member_cannot_make_a_majority_for_a_log_that_lacks_what_is_committed():
    cluster = SimulatedCluster(3, seed=5)
    leader = cluster.await_leader()
    client = cluster.add_client()
    behind = cluster.followers[0]
    behind.kill()
    loaded(cluster, client, 20)
    cluster.await_settled()
    holder = cluster.followers[0]
    leader.kill()
    holder.kill()
    holder.disk.wipe()
    holder.start()
    behind.start()
    cluster.run(200 * SECOND)
    assert cluster.leaders() == []

    leader.start()
    cluster.await_leader(timeout_ns=90 * SECOND)
    cluster.await_settled()
    cluster.await_level()
    cluster.check()
    cluster.check_promises()


def test_a_follower_that_hears_nothing_disturbs_nobody():
    """One-way loss for ever: the healthy majority keeps its leader and its term."""
    cluster = SimulatedCluster(3, seed=6)
    leader = cluster.await_leader()
    client = cluster.add_client()
    deaf = cluster.followers[0]
    for other in cluster.members:
        if other is not deaf:
            cluster.network.block(other.member_id, deaf.member_id)
    for _ in range(30):
        loaded(cluster, client, 5)
        cluster.run(2 * SECOND)

    assert cluster.leader is leader
    assert len(cluster.leader_of_term) == 1
    cluster.await_settled()
    cluster.network.heal()
    cluster.await_level(timeout_ns=60 * SECOND)
    cluster.check_promises()


def test_a_leader_that_was_paused_beyond_the_time_outs_acknowledges_nothing_of_its_old_term():
    cluster = SimulatedCluster(3, seed=7)
    leader = cluster.await_leader()
    client = cluster.add_client()
    loaded(cluster, client, 10)
    cluster.await_settled()
    leader.pause()
    loaded(cluster, client, 10)
    cluster.run(25 * SECOND)
    assert cluster.leader is not leader or len(cluster.leaders()) == 2
    leader.resume()
    cluster.await_leader()
    cluster.await_settled()
    cluster.await_level()

    cluster.check()
    cluster.check_promises()


def test_timers_and_service_messages_survive_their_leader():
    cluster = SimulatedCluster(3, seed=8)
    leader = cluster.await_leader()
    client = cluster.add_client()
    for number in range(40):
        client.send(b"timer %d" % number)
        client.send(b"again %d" % number)
    cluster.run(3 * MS)
    leader.kill()
    cluster.await_leader()
    cluster.await_settled()
    cluster.run(2 * SECOND)
    leader.start()
    cluster.await_level()

    cluster.check()
    for member in cluster.members:
        again = [payload for payload in member.service.applied if payload.isdigit()]
        assert again == [b"%d" % number for number in range(40)]
        assert sorted(member.service.timers) == list(range(40))


def test_the_same_seed_is_the_same_history():
    assert History(11, fault_count=6).run() == History(11, fault_count=6).run()


@pytest.mark.parametrize("seed", range(1, 41))
def test_a_seeded_history_keeps_every_promise(seed):
    History(seed).run()
