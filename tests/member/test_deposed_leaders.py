"""What the clients of a leader that is none any more hear from it: who leads, then the end of the stream."""

import pytest

from cluster.protocol.enums import EventCode
from cluster.protocol.session import NewLeaderEvent, SessionEvent, SessionKeepAlive
from tests.member.in_memory.cluster import MS, SECOND, SimulatedCluster
from tests.member.in_memory.stranger import Stranger


def a_session(cluster, member):
    client = Stranger(member)
    client.connects()
    cluster.run_until(lambda: client.heard)
    assert client.heard[0].code is EventCode.OK
    return client, client.heard[0].cluster_session_id


def replace(cluster, leader):
    """The leader sleeps until the others have another one; it wakes, and hears of that."""
    leader.pause()
    for member in cluster.members:
        if member is not leader:
            member.enter_election("test")
    cluster.run_until(lambda: cluster.leader is not leader)
    leader.resume()


def isolate(cluster, leader):
    for member in cluster.members:
        if member is not leader:
            cluster.links.block(leader.member_id, member.member_id)
            cluster.links.block(member.member_id, leader.member_id)


@pytest.mark.parametrize("seed", range(5))
def test_it_tells_each_session_who_leads_and_lets_go_of_the_connection(seed):
    cluster = SimulatedCluster(3, seed)
    old = cluster.await_leader()
    client, session_id = a_session(cluster, old)
    client.connects(correlation_id=8)
    cluster.run_until(lambda: len(client.heard) == 2)
    replace(cluster, old)
    woken_ns = cluster.world.now_ns
    cluster.run_until(lambda: client.is_closed)

    new = cluster.leader
    term_id = new.leadership_term_id
    assert client.heard[2:] == [
        NewLeaderEvent(term_id, session_id + n, new.member_id, new.context.ingress_endpoints)
        for n in range(2)
    ]
    assert cluster.world.now_ns - woken_ns < SECOND


def test_cut_off_from_all_others_it_lets_go_when_the_election_timeout_is_over():
    """Nobody tells it who leads, and its clients may reach who does."""
    cluster = SimulatedCluster(3, 1, session_timeout_ns=60 * SECOND)
    old = cluster.await_leader()
    client, _ = a_session(cluster, old)
    isolate(cluster, old)
    cluster.run_until(lambda: not old.is_leading)
    deposed_ns = cluster.world.now_ns
    cluster.run_until(lambda: client.is_closed)

    assert client.of_type(NewLeaderEvent) == []
    assert SECOND <= cluster.world.now_ns - deposed_ns < SECOND + 100 * MS


def test_a_leader_that_is_elected_again_keeps_the_connection_and_tells_of_its_term():
    cluster = SimulatedCluster(3, 1, appointed_leader_id=2)
    leader = cluster.await_leader()
    client, session_id = a_session(cluster, leader)
    old_term = leader.leadership_term_id
    leader.enter_election("test")
    cluster.run_until(lambda: client.of_type(NewLeaderEvent))
    term_id = leader.leadership_term_id

    (event,) = client.of_type(NewLeaderEvent)
    assert (event.leadership_term_id, event.leader_member_id) == (term_id, leader.member_id)
    assert term_id > old_term
    for _ in range(12):  # the session is served on the connection that it had
        client.says(SessionKeepAlive(term_id, session_id))
        cluster.run(SECOND)
    assert not client.is_closed
    assert list(leader.sessions) == [session_id]


def test_what_was_asked_and_not_answered_is_refused_and_its_connection_closed():
    cluster = SimulatedCluster(3, 1, session_timeout_ns=60 * SECOND)
    old = cluster.await_leader()
    isolate(cluster, old)
    client = Stranger(old)
    client.connects()
    cluster.run_until(lambda: client.is_closed)

    assert [(event.code, event.detail) for event in client.of_type(SessionEvent)] == [
        (EventCode.CLOSED, "election")
    ]


@pytest.mark.parametrize("seed", range(5))
def test_a_client_that_is_told_goes_on_with_the_new_leader_at_once(seed):
    cluster = SimulatedCluster(3, seed)
    old = cluster.await_leader()
    clients = [cluster.add_client() for _ in range(3)]
    cluster.await_settled()
    session_ids = [client.session_id for client in clients]
    replace(cluster, old)
    for number, client in enumerate(clients):  # not all have heard of it
        client.send(b"%d:sent" % number)
    woken_ns = cluster.world.now_ns
    cluster.await_settled()

    assert cluster.world.now_ns - woken_ns < SECOND
    assert [client.session_id for client in clients if not client.is_lost] == session_ids
    cluster.await_level()
    cluster.check_promises()
