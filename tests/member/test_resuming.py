"""Whose a session is, and how its client gets it back: by the token whose hash it was opened with."""

import pytest

from cluster.consensus.authentication import DefaultAuthenticator
from cluster.protocol.enums import EventCode
from cluster.protocol.link import SessionResume, SessionResumed
from cluster.protocol.session import NewLeaderEvent, SessionEvent
from tests.member.in_memory.cluster import SECOND, SimulatedCluster
from tests.member.in_memory.stranger import TOKEN, Stranger


@pytest.mark.parametrize("session_id", [1, -1])
def test_a_stranger_gets_nobodys_session_and_disturbs_nobody(session_id):
    cluster = SimulatedCluster(3, 1)
    leader = cluster.await_leader()
    client = cluster.add_client()
    cluster.await_settled()
    assert client.session_id == 1

    thief = Stranger(leader)
    thief.says(SessionResume(2**62, session_id, client.leadership_term_id, resume_token=bytes(16)))
    cluster.run_until(lambda: thief.heard)
    client.send(b"mine")
    cluster.await_settled()
    client._connection.close()  # the highest correlation id that the thief could think of locks nobody out
    client._connect(leader.member_id)
    client.send(b"still mine")
    cluster.await_settled()

    (answer,) = thief.heard
    assert (type(answer), answer.code) == (SessionEvent, EventCode.CLOSED)
    assert answer.detail == f"session {session_id} is not open, or not this client's"
    assert client.session_id == 1 and not client.is_lost
    assert client.acknowledged == 2


def test_who_reads_the_hash_in_the_log_cannot_resume_by_it():
    cluster = SimulatedCluster(3, 1)
    leader = cluster.await_leader()
    client = cluster.add_client()
    cluster.await_settled()
    known_hash = leader.sessions[1].resume_hash

    for token in (known_hash.encode(), bytes.fromhex(known_hash)):
        thief = Stranger(leader)
        thief.says(SessionResume(9, 1, client.leadership_term_id, resume_token=token))
        cluster.run_until(lambda: thief.is_closed)  # noqa: B023
        assert [message.code for message in thief.heard] == [EventCode.CLOSED]


@pytest.mark.conformance("C-226", "C-229")
def test_a_client_whose_ok_was_lost_with_its_leader_gets_the_session_that_it_has_opened():
    cluster = SimulatedCluster(3, 1)
    old = cluster.await_leader()
    client = Stranger(old)
    client.connects()
    cluster.run_until(lambda: old.sessions)
    client.connection.close()  # before the OK is out
    followers = [member for member in cluster.members if member is not old]
    cluster.run_until(lambda: all(member.sessions for member in followers))
    old.kill()
    new = cluster.await_leader()

    again = Stranger(new)
    again.says(SessionResume(8, -1, -1, resume_token=TOKEN))
    cluster.run_until(lambda: len(again.heard) >= 2)

    assert client.heard == []
    first, second = again.heard
    assert (type(first), first.code, first.cluster_session_id) == (SessionEvent, EventCode.OK, 1)
    assert (type(second), second.leader_member_id) == (NewLeaderEvent, new.member_id)
    assert list(new.sessions) == [1]
    assert new.replica.sessions.next_session_id == 2


def test_a_client_whose_ok_was_lost_with_its_connection_is_told_again():
    cluster = SimulatedCluster(3, 1)
    leader = cluster.await_leader()
    client = Stranger(leader)
    client.connects()
    cluster.run_until(lambda: leader.sessions)
    client.connection.close()
    cluster.run(SECOND)

    again = Stranger(leader)
    again.says(SessionResume(8, -1, -1, resume_token=TOKEN))
    cluster.run_until(lambda: again.heard)

    (answer,) = again.of_type(SessionEvent)
    assert (answer.code, answer.cluster_session_id, answer.correlation_id) == (EventCode.OK, 1, 7)
    assert again.of_type(SessionResumed) == []


@pytest.mark.conformance("S-51")
def test_the_new_leader_of_a_session_tells_the_client_that_comes_back_who_leads():
    cluster = SimulatedCluster(3, 1)
    old = cluster.await_leader()
    client = Stranger(old)
    client.connects()
    cluster.run_until(lambda: client.heard)
    session_id, term_id = client.heard[0].cluster_session_id, client.heard[0].leadership_term_id
    old.kill()
    new = cluster.await_leader()

    again = Stranger(new)
    again.says(SessionResume(8, session_id, term_id, resume_token=TOKEN))
    cluster.run_until(lambda: again.of_type(NewLeaderEvent))

    new_term_id = new.leadership_term_id
    (resumed,), (event,) = again.of_type(SessionResumed), again.of_type(NewLeaderEvent)
    assert (resumed.cluster_session_id, resumed.leadership_term_id) == (session_id, new_term_id)
    assert event == NewLeaderEvent(new_term_id, session_id, new.member_id, new.context.ingress_endpoints)
    assert new_term_id > term_id


class DecidesLater(DefaultAuthenticator):
    """Says twice that it does not know yet whether a session may be resumed."""

    def __init__(self, answer):
        self.answers = [None, None, answer]

    def may_resume(self, encoded_principal, encoded_credentials, now_ms, certificate_name):
        return self.answers.pop(0)


@pytest.mark.parametrize("answer", [True, False])
def test_a_client_that_resumes_is_answered_once_the_authenticator_has_decided(answer):
    cluster = SimulatedCluster(3, 1)
    leader = cluster.await_leader()
    client = Stranger(leader)
    client.connects()
    cluster.run_until(lambda: client.heard)
    session_id, term_id = client.heard[0].cluster_session_id, client.heard[0].leadership_term_id
    later = DecidesLater(answer)
    leader.replica.sessions.admission._authenticator = later

    again = Stranger(leader)
    again.says(SessionResume(8, session_id, term_id, resume_token=TOKEN))
    cluster.run_until(lambda: again.heard)

    assert later.answers == []
    if answer:
        assert [resumed.cluster_session_id for resumed in again.of_type(SessionResumed)] == [session_id]
    else:
        assert [event.code for event in again.of_type(SessionEvent)] == [EventCode.CLOSED]


CHANNEL = "aeron:udp?endpoint=10.0.0.7:9020"


def test_a_client_that_cannot_come_is_dialled_by_the_new_leader_and_goes_on_with_its_session(monkeypatch):
    cluster = SimulatedCluster(3, 1)
    old = cluster.await_leader()
    client = Stranger(old)
    client.connects(channel=CHANNEL)
    followers = [member for member in cluster.members if member is not old]
    cluster.run_until(lambda: all(member.sessions for member in followers))
    dialled = []
    for member in followers:
        monkeypatch.setattr(member.clients, "dial", lambda *whose: dialled.append(whose))
    old.kill()
    new = cluster.await_leader()
    cluster.run_until(lambda: dialled)
    assert dialled == [(1, CHANNEL, 102)]

    monkeypatch.setattr(new.clients, "dialled_session", lambda _: 1)
    reached = Stranger(new)
    cluster.run_until(lambda: len(reached.heard) >= 2)

    first, second = reached.heard
    assert (first.code, first.cluster_session_id, first.correlation_id) == (EventCode.OK, 1, 7)
    assert (type(second), second.leader_member_id) == (NewLeaderEvent, new.member_id)
    assert new.replica.sessions.table.count_of(new.sessions[1].connection_id) == 1


def test_a_connection_that_was_dialled_for_a_session_that_is_closed_meanwhile_ends(monkeypatch):
    cluster = SimulatedCluster(3, 1)
    leader = cluster.await_leader()
    monkeypatch.setattr(leader.clients, "dialled_session", lambda _: 9)
    reached = Stranger(leader)
    cluster.run_until(lambda: reached.is_closed)
