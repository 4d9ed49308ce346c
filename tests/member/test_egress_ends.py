"""A client's connection ends with what the cluster has to say on it: REDIRECT, a refusal, a session's end."""

import pytest

from cluster.protocol.enums import AdminRequestType, EventCode
from cluster.protocol.link import SessionResume, SessionResumed
from cluster.protocol.session import (
    AdminRequest,
    ChallengeResponse,
    NewLeaderEvent,
    SessionCloseRequest,
    SessionConnectRequest,
    SessionEvent,
    SessionKeepAlive,
)
from tests.member.in_memory.cluster import SECOND, SimulatedCluster
from tests.member.in_memory.stranger import TOKEN, Stranger


@pytest.fixture
def cluster():
    cluster = SimulatedCluster(
        3, 1, term_length=256 * 1024
    )  # in which a request above its bound is a message
    cluster.await_leader()
    return cluster


def an_open_session(cluster):
    client = Stranger(cluster.leader)
    client.connects()
    cluster.run_until(lambda: client.heard)
    return client, client.heard[0].cluster_session_id


def codes(client):
    return [event.code for event in client.of_type(SessionEvent)]


@pytest.mark.conformance("C-173")
def test_a_follower_closes_the_connection_behind_its_redirect(cluster):
    client = Stranger(cluster.followers[0])
    client.connects()
    cluster.run_until(lambda: client.is_closed)

    assert codes(client) == [EventCode.REDIRECT]


@pytest.mark.conformance("C-172")
def test_who_came_by_tcp_is_told_where_the_members_take_tcp():
    told = "0=tcp:a:1,1=tcp:b:1,2=tcp:c:1"
    cluster = SimulatedCluster(3, 1, tcp_ingress_endpoints=told)
    leader = cluster.await_leader()
    cluster.run_until(lambda: len(cluster.followers) == 2)
    redirected, resumes = Stranger(cluster.followers[0]), Stranger(cluster.followers[1])
    redirected.connects()
    resumes.says(SessionResume(8, 1, 1, resume_token=TOKEN))
    client, session_id = an_open_session(cluster)
    client.says(SessionResume(9, session_id, leader.leadership_term_id, resume_token=TOKEN))
    cluster.run_until(lambda: redirected.is_closed and resumes.heard and client.of_type(SessionResumed))

    assert [event.detail for event in (*redirected.heard, *resumes.heard)] == [told, told]
    assert client.of_type(SessionResumed)[0].ingress_endpoints == told
    leader.kill()
    again = Stranger(cluster.await_leader())
    again.says(SessionResume(10, session_id, 1, resume_token=TOKEN))
    cluster.run_until(lambda: again.of_type(NewLeaderEvent))
    assert again.of_type(NewLeaderEvent)[0].ingress_endpoints == told


def test_the_leader_closes_the_connection_behind_a_refusal(cluster):
    client = Stranger(cluster.leader)
    client.connects(version=9 << 16)
    cluster.run_until(lambda: client.is_closed)

    assert codes(client) == [EventCode.ERROR]


def test_the_connection_of_a_session_that_timed_out_is_closed_behind_the_event(cluster):
    client, _ = an_open_session(cluster)
    cluster.run_until(lambda: client.is_closed)

    assert codes(client) == [EventCode.OK, EventCode.CLOSED]
    assert cluster.leader.sessions == {}


def test_the_connection_of_a_session_that_its_client_closed_is_closed(cluster):
    client, session_id = an_open_session(cluster)
    client.says(SessionCloseRequest(cluster.leader.leadership_term_id, session_id))
    cluster.run_until(lambda: client.is_closed, SECOND)

    assert codes(client) == [EventCode.OK]


def test_who_asks_for_a_session_that_is_not_his_is_told_and_cut_off(cluster):
    _, session_id = an_open_session(cluster)
    thief = Stranger(cluster.leader)
    thief.says(SessionResume(1, session_id, 0, resume_token=TOKEN[::-1]))
    cluster.run_until(lambda: thief.is_closed, SECOND)

    assert codes(thief) == [EventCode.CLOSED]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"response_channel_length_max": 70},
            "a response channel of 86 characters, expected at most 70 (response_channel_length_max)",
        ),
        (
            {"connection_sessions_max": 0},
            "0 sessions of one connection, as many as connection_sessions_max allows",
        ),
    ],
)
def test_a_connect_beyond_a_bound_is_refused_with_the_bound_and_leaves_nothing(settings, told):
    cluster = SimulatedCluster(3, 1, **settings)
    leader = cluster.await_leader()
    cluster.await_level()
    before = leader.commit_position
    client = Stranger(leader)
    client.connects()
    cluster.run_until(lambda: client.is_closed)

    assert [(event.code, event.detail) for event in client.of_type(SessionEvent)] == [(EventCode.ERROR, told)]
    assert leader.commit_position == before


@pytest.mark.parametrize("channel", ["", "aeron:ipc\n", "aeron:udp?endpoint=a:1\x00|b", "\x7f"], ids=repr)
def test_a_channel_that_no_log_should_have_is_refused_and_leaves_nothing(cluster, channel):
    cluster.await_level()
    before = cluster.leader.commit_position
    client = Stranger(cluster.leader)
    client.says(SessionConnectRequest(7, 102, 3 << 8, channel))
    cluster.run_until(lambda: client.is_closed)

    [event] = client.of_type(SessionEvent)
    assert event.code is EventCode.ERROR and "aeron:ipc" in event.detail
    assert cluster.leader.commit_position == before


TOO_LONG = bytes(16 * 1024)


@pytest.mark.parametrize(
    "request_",
    [
        SessionConnectRequest(7, 102, 3 << 8, "aeron:ipc", TOO_LONG),
        SessionConnectRequest(7, 102, 3 << 8, "aeron:ipc", b"", "x" * len(TOO_LONG)),
        ChallengeResponse(7, 1, TOO_LONG),
        SessionResume(7, 1, 0, TOO_LONG, TOKEN),
        SessionResume(7, 1, 0, b"", TOO_LONG),
        AdminRequest(0, 1, 7, AdminRequestType.SNAPSHOT, TOO_LONG),
    ],
    ids=lambda request: type(request).__name__,
)
@pytest.mark.parametrize("is_leader", [True, False])
def test_a_request_that_is_too_long_is_answered_with_the_bound_and_its_sender_cut_off(
    cluster, request_, is_leader
):
    """Whatever of it is long: nobody has to hold it for a stranger, or put it into the log."""
    client = Stranger(cluster.leader if is_leader else cluster.followers[0])
    client.says(request_)
    cluster.run_until(lambda: client.is_closed)

    (event,) = client.heard
    length = len(request_.encode())
    assert (event.code, event.correlation_id) == (EventCode.ERROR, 7)
    assert event.detail == (
        f"a {type(request_).__name__} of {length} bytes, expected at most 16384 (request_length_max)"
    )
    assert cluster.leader.sessions == {}


def test_credentials_up_to_the_bound_go(cluster):
    client = Stranger(cluster.leader)
    client.says(SessionConnectRequest(7, 102, 3 << 8, "aeron:ipc", TOO_LONG[:16_000]))
    cluster.run_until(lambda: client.heard)

    assert codes(client) == [EventCode.OK]


def test_a_connection_has_a_bounded_number_of_sessions(cluster):
    client = Stranger(cluster.leader)
    for number in range(12):
        client.connects(correlation_id=number)
    cluster.run_until(lambda: len(client.heard) == 12)

    assert sorted(codes(client)) == [EventCode.OK] * 8 + [EventCode.ERROR] * 4
    assert len(cluster.leader.sessions) == 8


def test_a_connection_that_serves_another_session_stays(cluster):
    client, session_id = an_open_session(cluster)
    client.connects(correlation_id=8)
    cluster.run_until(lambda: len(client.heard) == 2)
    term_id = cluster.leader.leadership_term_id
    client.says(SessionCloseRequest(term_id, session_id))
    client.connects(correlation_id=9, version=9 << 16)
    for _ in range(12):
        client.says(SessionKeepAlive(term_id, session_id + 1))
        cluster.run(SECOND)

    assert codes(client) == [EventCode.OK, EventCode.OK, EventCode.ERROR]
    assert not client.is_closed
    assert list(cluster.leader.sessions) == [session_id + 1]
