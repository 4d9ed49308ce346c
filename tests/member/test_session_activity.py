"""What keeps a session open, and when its answers were given."""

from __future__ import annotations

import pytest

from cluster.protocol.enums import AdminRequestType, CloseReason, ClusterControlToggle
from cluster.protocol.link import CommitAck
from cluster.protocol.log import SessionCloseEvent
from cluster.protocol.session import AdminRequest, SessionMessageHeader
from tests.member.cluster_steps import a_cluster_with_a_client, asks, entries, heard, toggle
from tests.member.in_memory.cluster import MS, SECOND


@pytest.mark.conformance("S-42")
def test_admin_requests_do_not_keep_a_session_open():
    cluster, client = a_cluster_with_a_client()
    client._keep_alive = lambda: None
    request = AdminRequest(client.leadership_term_id, client.session_id, 9, AdminRequestType.SNAPSHOT)
    cluster.run(SECOND)  # the last keep-alive was due within it
    for _ in range(11):
        asks(client, request)
        cluster.run(SECOND)

    closed = [entry for entry in entries(cluster.leader) if isinstance(entry, SessionCloseEvent)]
    assert [(entry.cluster_session_id, entry.close_reason) for entry in closed] == [
        (client.session_id, CloseReason.TIMEOUT)
    ]


@pytest.mark.slow
@pytest.mark.conformance("S-39", "S-40")
def test_keep_alives_hold_a_session_open_and_leave_nothing_in_the_log():
    cluster, client = a_cluster_with_a_client()
    end = cluster.leader.published_position
    cluster.run(60 * SECOND)

    assert client.is_open
    assert client.session_id in cluster.leader.replica.sessions.sessions
    assert cluster.leader.published_position == end


def suspended(cluster):
    toggle(cluster, ClusterControlToggle.SUSPEND)


def awaiting_a_service_for_its_snapshot(cluster):
    cluster.leader.stall_service()
    toggle(cluster)


def without_room(cluster):
    for member in cluster.members:
        member.agent.context.log_bytes_max = 1


@pytest.mark.parametrize("is_busy", [suspended, awaiting_a_service_for_its_snapshot, without_room])
def test_a_leader_that_takes_nothing_of_its_clients_gives_signs_of_life(is_busy):
    """Else they look for another one after the heartbeat timeout, and miss what is answered meanwhile."""
    cluster, client = a_cluster_with_a_client()
    is_busy(cluster)
    cluster.run(SECOND)
    messages = heard(client)
    cluster.run(10 * SECOND)
    acks = [message for message in messages if isinstance(message, CommitAck)]
    assert len(acks) == 4
    assert {ack.cluster_session_id for ack in acks} == {client.session_id}


def test_a_leader_without_a_majority_gives_no_sign_of_life():
    cluster, client = a_cluster_with_a_client()
    awaiting_a_service_for_its_snapshot(cluster)
    cluster.run(SECOND)
    for other in cluster.followers:
        other.pause()
    cluster.run(10 * SECOND)
    messages = heard(client)
    cluster.run(10 * SECOND)
    assert messages == []


@pytest.mark.conformance("C-296")
@pytest.mark.parametrize("is_busy", [suspended, awaiting_a_service_for_its_snapshot])
def test_a_session_is_silent_from_when_somebody_is_heard_again(is_busy):
    cluster, client = a_cluster_with_a_client()
    client._keep_alive = lambda: None
    cluster.run(4 * SECOND)
    is_busy(cluster)
    cluster.run(15 * SECOND)
    cluster.leader.release_service()
    toggle(cluster, ClusterControlToggle.RESUME)
    cluster.run(9 * SECOND)
    assert client.is_open and not client.is_lost
    cluster.run(2 * SECOND)
    assert client.is_lost


def test_a_leader_that_wakes_up_takes_back_who_gave_it_up_meanwhile():
    cluster, client = a_cluster_with_a_client(members=1)
    client._keep_alive = lambda: None  # what it sends is lost with the connection
    cluster.run(SECOND)
    cluster.leader.pause()
    cluster.run(12 * SECOND)
    client._connection.close()
    client._on_closed(client._attempt)
    cluster.leader.resume()
    cluster.run(SECOND)
    assert client.is_open and not client.is_lost


@pytest.mark.conformance("S-49")
def test_an_answer_has_the_cluster_time_of_what_it_answers():
    cluster, client = a_cluster_with_a_client()
    messages = heard(client)
    for number in range(3):
        client.send(b"0:%d" % number)
        cluster.run(70 * MS)

    answered = [message.timestamp for message in messages if isinstance(message, SessionMessageHeader)]
    logged = [e.timestamp for e in entries(cluster.leader) if isinstance(e, SessionMessageHeader)]
    assert answered == logged[-3:]
    assert len(set(answered)) == 3
