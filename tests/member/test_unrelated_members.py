"""Who is configured as a member and is of another cluster: nothing that it says counts."""

from cluster.consensus.context import ConsensusModuleContext
from cluster.counters import CountersFile
from cluster.member.counters import MemberCounters
from cluster.member.reporter import Reporter
from cluster.member.unrelated import Unrelated
from tests.member.cluster_steps import a_cluster_with_an_entry
from tests.member.in_memory.cluster import LONG_NS, SECOND


def part(cluster, one, others):
    """Each side of the links takes the other for unrelated, as it stays while the links do."""
    for other in others:
        for member, id_ in ((one, other.member_id), (other, one.member_id)):
            member.agent.parts.unrelated.add(id_, "of another cluster")
            member.agent.on_unrelated()


def test_each_reason_is_told_once_for_each_member():
    told, counters = [], MemberCounters(CountersFile.in_memory(), ConsensusModuleContext())
    unrelated = Unrelated(Reporter(counters.errors, told.append, told.append))

    unrelated.add(1, "its ids are 1")
    unrelated.add(1, "its ids are 1")
    assert 1 in unrelated and 2 not in unrelated
    assert (unrelated.take_new(), unrelated.take_new()) == ([1], [])
    unrelated.remove(1)
    assert 1 not in unrelated
    unrelated.add(1, "its ids are 1")
    unrelated.add(2, "its ids are 1")
    unrelated.add(1, "its log is another")
    assert unrelated.take_new() == [1, 2]

    assert [str(error) for error in told] == [
        "member 1 is not counted: its ids are 1",
        "member 2 is not counted: its ids are 1",
        "member 1 is not counted: its log is another",
    ]


def test_a_leader_does_not_count_an_unrelated_follower_and_sends_it_nothing():
    cluster, client = a_cluster_with_an_entry()
    leader, (one, two) = cluster.leader, cluster.followers
    end = one.append_position
    part(cluster, one, (leader, two))
    client.send(b"0:without it")
    cluster.await_settled()
    assert one.append_position == end

    two.kill()
    client.send(b"0:waits")
    cluster.run(SECOND)
    assert client.acknowledged < len(client.sent)
    cluster.run(LONG_NS)
    assert cluster.leader is None


def test_an_unrelated_leader_is_left_and_nobody_waits_for_it():
    cluster, client = a_cluster_with_an_entry()
    leader, (one, two) = cluster.leader, cluster.followers
    part(cluster, leader, (one, two))
    began_ns = cluster.world.now_ns
    cluster.run_until(lambda: one.is_leading or two.is_leading)
    assert cluster.world.now_ns - began_ns < SECOND
    cluster.run(LONG_NS)
    assert not leader.is_leading
    client.send(b"0:second")
    cluster.await_settled()


def test_who_is_no_stranger_any_more_over_a_new_link_is_taken_back():
    cluster, client = a_cluster_with_an_entry()
    leader, (one, two) = cluster.leader, cluster.followers
    part(cluster, one, (leader, two))
    cluster.run(SECOND)
    one.kill()
    one.start()
    client.send(b"0:second")
    cluster.await_settled()
    cluster.await_level(60 * SECOND)
    cluster.check()
