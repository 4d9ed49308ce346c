"""A client with ``reopen``: another session in place of one that was lost, and never in silence."""

import errno
import os

import pytest

from cluster.client import ClientState, Offer
from cluster.client.session_conductor import SessionConductor
from cluster.errors import ClientClosed, ConfigurationError
from cluster.protocol.enums import EventCode
from cluster.protocol.session import SessionCloseRequest, SessionMessageHeader
from tests.client.scripted import Listener, connect, poll_until


class ReopeningListener(Listener):
    def on_session_lost(self, *lost: object) -> None:
        self.told.append(("session lost", *lost))


def close_session(cluster, why):
    closed = cluster.event(EventCode.CLOSED, 0, why, session_id=cluster.session_id)
    cluster.leader.send(cluster.leader.connection, closed)
    cluster.session_id += 1


def test_a_lost_session_is_told_with_what_was_not_committed_and_another_one_opened(cluster):
    listener = ReopeningListener()
    client = connect(cluster, listener, reopen=True)
    client.offer_batch([b"1", b"2", b"3"])
    cluster.acknowledge(1)
    client.poll_egress()
    close_session(cluster, "TIMEOUT")
    poll_until(client, lambda: client.cluster_session_id == 8)

    assert client.state is ClientState.CONNECTED
    assert [told[0] for told in listener.told] == ["session event", "session lost", "session event"]
    assert listener.told[1] == ("session lost", 7, "TIMEOUT", 2)
    assert (listener.told[2][2], listener.told[2][5]) == (8, EventCode.OK)
    assert (client.offered, client.acknowledged, client.committed_position) == (0, 0, -1)
    sent_before = len(cluster.leader.of_type(SessionMessageHeader))
    assert client.offer(b"4") > 0
    assert cluster.leader.of_type(SessionMessageHeader)[sent_before:] == [SessionMessageHeader(1, 8, 0)]
    cluster.answer(b"to the new one")
    client.poll_egress()
    assert listener.payloads == [b"to the new one"]


def test_while_no_session_is_open_offers_return_a_code_and_nothing_raises(cluster):
    client = connect(cluster, ReopeningListener(), reopen=True, new_leader_timeout_s=1.0)
    for member in cluster.members:
        member.stop()
    poll_until(client, lambda: client.state is ClientState.AWAIT_NEW_SESSION)
    for _ in range(2_000):  # longer than an attempt has
        assert client.offer(b"x") == Offer.NOT_CONNECTED
        assert client.offer_batch([b"x"]) == Offer.NOT_CONNECTED
        assert not client.send_keep_alive()
        client.wait(0.01)
    assert not client.is_closed

    cluster.session_id = 8
    for member in cluster.members:
        member.is_up = True
    poll_until(client, lambda: client.state is ClientState.CONNECTED)
    assert client.cluster_session_id == 8


def test_who_waits_for_commits_is_told_that_they_may_never_come(cluster):
    client = connect(cluster, ReopeningListener(), reopen=True)
    client.offer_batch([b"1", b"2"])
    close_session(cluster, "TIMEOUT")

    with pytest.raises(ClientClosed, match=r"session 7 closed \(TIMEOUT\) with 2 of 2 messages"):
        client.await_committed(1)
    assert not client.is_closed


def test_a_session_that_a_service_closed_is_not_opened_again(cluster):
    client = connect(cluster, ReopeningListener(), reopen=True)
    close_session(cluster, "SERVICE_ACTION")
    poll_until(client, lambda: client.is_closed)

    assert client.why_closed == "SERVICE_ACTION"
    assert cluster.is_released


def test_a_cluster_that_refuses_another_session_ends_the_client_with_both_reasons(cluster):
    client = connect(cluster, ReopeningListener(), reopen=True)
    leader = cluster.leader
    leader.on_connect_request = lambda connection, request: leader.send(
        connection, cluster.event(EventCode.ERROR, request.correlation_id, "concurrent session limit")
    )
    close_session(cluster, "TIMEOUT")
    poll_until(client, lambda: client.is_closed)

    assert client.why_closed == (
        "TIMEOUT; no other was opened: the cluster refused the session: concurrent session limit"
    )
    assert client.offer(b"x") == Offer.CLOSED
    assert cluster.is_released


def test_closing_meanwhile_ends_the_search(cluster):
    client = connect(cluster, ReopeningListener(), reopen=True)
    close_session(cluster, "TIMEOUT")
    cluster.elect(None)
    poll_until(client, lambda: client.state is ClientState.AWAIT_NEW_SESSION)
    client.close()

    assert client.is_closed
    assert cluster.is_released
    assert all(connection.is_closed for member in cluster.members for connection in member.connections)
    assert not any(member.of_type(SessionCloseRequest) for member in cluster.members)


def test_a_listener_that_would_not_hear_of_it_is_refused(cluster):
    with pytest.raises(ConfigurationError, match="expected a listener with on_session_lost, got None"):
        connect(cluster, reopen=True)


def break_while_the_leader_is_sought(cluster, monkeypatch):
    """Let the leader die, and the client stumble over that."""

    def stumble(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(SessionConductor, "_seek_leader", stumble)
    cluster.leader.stop()


def test_a_session_that_ends_by_what_it_raises_is_replaced_as_well(cluster, monkeypatch):
    listener = ReopeningListener()
    client = connect(cluster, listener, reopen=True)
    client.offer(b"1")
    break_while_the_leader_is_sought(cluster, monkeypatch)
    cluster.session_id = 8
    cluster.elect(1)
    poll_until(client, lambda: client.cluster_session_id == 8)

    assert client.state is ClientState.CONNECTED
    assert ("session lost", 7, "ZeroDivisionError: a bug", 1) in listener.told


def test_a_session_that_ends_by_what_it_raises_releases_the_world(cluster, monkeypatch):
    client = connect(cluster)
    break_while_the_leader_is_sought(cluster, monkeypatch)
    with pytest.raises(ZeroDivisionError):
        poll_until(client, lambda: client.is_closed)

    assert client.why_closed == "ZeroDivisionError: a bug"
    assert cluster.is_released


def test_a_session_outlives_dials_for_which_the_process_has_no_descriptor(cluster, monkeypatch):
    client, dial = connect(cluster), cluster.dial
    refused = []

    def dial_later(endpoint):
        if len(refused) < 5:
            refused.append(endpoint)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return dial(endpoint)

    monkeypatch.setattr(cluster, "dial", dial_later)
    cluster.leader.stop()
    cluster.elect(1)
    poll_until(client, lambda: client.leader_member_id == 1)
    assert client.cluster_session_id == 7
    assert client._session._publications.why_failed[2] == "Too many open files"
