"""``cluster.testing.wire``: who watches a simulated cluster reads every message by its name."""

from __future__ import annotations

from cluster.service.echo import EchoService
from cluster.testing import SimulatedCluster


def played(*, watched: bool) -> SimulatedCluster:
    cluster = SimulatedCluster(EchoService, watched=watched)
    cluster.connect("alice").offer(b"hello")
    cluster.settle()
    return cluster


def test_a_history_goes_the_same_way_whoever_watches():
    assert played(watched=True).world.trace.hash == played(watched=False).world.trace.hash


def test_messages_of_clients_members_and_services_are_seen_with_their_fields_in_the_order_of_time():
    seen = played(watched=True).happenings

    said = {(line.sender, line.receiver, line.text) for line in seen}
    assert ("alice", "member 0", "SessionMessageHeader leadershipTermId=0 clusterSessionId=1 'hello'") in said
    assert ("member 0", "alice", "SessionMessageHeader leadershipTermId=0 clusterSessionId=1 'hello'") in said
    assert (
        "member 0",
        "member 1",
        "Log: SessionMessageHeader leadershipTermId=0 clusterSessionId=1 'hello'",
    ) in said
    assert (
        "member 1",
        "member 0",
        "AppendPosition leadershipTermId=0 logPosition=96 followerMemberId=1",
    ) in said
    assert ("service 0 of member 1", "member 1", "ServiceAck logPosition=0 ackId=0 serviceId=0") in said
    assert ("service 0 of member 2", "", "onSessionOpen clusterSessionId=1") in said
    assert [line.time_ns for line in seen] == sorted(line.time_ns for line in seen)


def test_what_is_sent_into_a_cut_path_is_marked():
    cluster = SimulatedCluster(EchoService, watched=True)
    leader = cluster.await_leader()
    follower = (leader + 1) % 3
    cluster.cut(follower, leader)
    cluster.run(0.5)

    marked = {(line.sender, line.receiver) for line in cluster.happenings if line.is_cut}
    assert marked == {(f"member {follower}", f"member {leader}")}


def test_a_client_that_is_given_a_member_asks_that_one_first():
    cluster = SimulatedCluster(EchoService, watched=True)
    follower = (cluster.await_leader() + 1) % 3
    cluster.connect("alice", member=follower)

    asked = [line.receiver for line in cluster.happenings if line.name == "SessionConnectRequest"]
    assert asked == [f"member {follower}", f"member {cluster.leader}"]


def test_what_happens_at_one_time_is_told_as_it_came_about():
    cluster = played(watched=True)
    cluster.note(0, "first")
    cluster.world.trace.say(cluster.world.now_ns, "member 0", "second")
    cluster.note(0, "third")
    assert [line.text for line in cluster.happenings[-3:]] == ["first", "second", "third"]
