"""When a member may sleep after a turn with work; the simulator judges the same of every turn (I-24)."""

from cluster.protocol.enums import ClusterControlToggle
from tests.member.cluster_steps import a_cluster_with_a_client, toggle
from tests.member.in_memory.cluster import MS


def rest(member):
    while member.take_turn(after_ns=0):
        pass


def test_a_leader_sends_the_commit_position_before_it_awaits_events():
    cluster, client = a_cluster_with_a_client()
    leader = cluster.leader
    rest(leader)
    assert leader.life.awaits_events
    before = leader.commit_position
    client.send(b"0:one")
    while leader.commit_position == before:
        cluster.step()
    sent = []
    send = leader.links.send
    leader.links.send = lambda to, *buffers: sent.append(to) or send(to, *buffers)

    assert not leader.life.awaits_events
    leader.take_turn()
    assert sorted(sent) == sorted(member.member_id for member in cluster.followers)
    while leader.take_turn():
        pass
    assert leader.life.awaits_events


def test_a_follower_awaits_events_once_its_service_has_what_is_committed():
    cluster, client = a_cluster_with_a_client()
    follower = cluster.followers[0]
    rest(follower)
    assert follower.life.awaits_events
    before = follower.notified_commit_position
    client.send(b"0:one")
    while follower.notified_commit_position == before:
        cluster.step()
    rest(follower)
    assert follower.service_agent.joined_position == follower.commit_position > before
    assert follower.life.awaits_events


def test_nobody_awaits_events_in_an_election_or_while_a_snapshot_is_made():
    cluster, _ = a_cluster_with_a_client()
    member = cluster.followers[0]
    rest(member)
    member.enter_election("test")
    assert not member.life.awaits_events

    leader = cluster.leader
    rest(leader)
    toggle(cluster, ClusterControlToggle.SNAPSHOT)
    leader.take_turn(after_ns=20 * MS)
    assert not leader.life.awaits_events
