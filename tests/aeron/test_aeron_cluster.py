"""A session of a real cluster: how it is opened, how it follows the leader, and how it ends."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from cluster.aeron import aeron_cluster
from cluster.aeron.aeron_cluster import KEEP_ALIVE_INTERVAL_NS, AeronCluster, AeronClusterState
from cluster.errors import AuthenticationRejected, ClientClosed, ClusterError, TimedOut
from cluster.protocol.enums import AdminRequestType, AdminResponseCode, EventCode, Offer
from cluster.protocol.frame import frame
from cluster.protocol.session import (
    AdminResponse,
    Challenge,
    ChallengeResponse,
    SessionCloseRequest,
    SessionMessageHeader,
)
from cluster.transport.credentials import FixedCredentials
from tests.aeron.scripted_cluster import ENDPOINTS, LISTED, SESSION, ScriptedMembers
from tests.node.processes import await_that

CONNECTED = AeronClusterState.CONNECTED


@pytest.fixture
def members(monkeypatch):
    return ScriptedMembers(monkeypatch)


@pytest.mark.conformance("M-34", "M-39")
def test_the_first_connected_member_is_asked_for_a_session_with_the_alias_in_its_channel(members):
    session = members.session(alias="orders/0/17", credentials=FixedCredentials(b"me"))
    members.turn(session, 3)
    assert {each.channel for each in members.all} == {f"aeron:udp?endpoint={e}" for e in ENDPOINTS.values()}
    (request,) = members.requests()
    assert request.response_channel == "aeron:udp?endpoint=me:1|alias=orders/0/17"
    assert (request.response_stream_id, request.version, request.encoded_credentials) == (102, 768, b"me")
    members.say(members.answer(EventCode.OK, 0))
    members.turn(session)
    assert (session.state, session.session_id, session.leadership_term_id) == (CONNECTED, SESSION, 3)
    assert session.leader_member_id == 0
    assert [each.is_removed for each in members.all if each is not members.to(0)] == [True, True]
    assert session.offer(b"one") == 2 * 96
    assert members.to(0).payloads == [(3, b"one")]
    assert session.message_length_max == 1000 - SessionMessageHeader.ENCODED_LENGTH


@pytest.mark.conformance("M-35")
def test_a_redirect_leads_to_the_leader_that_it_names(members):
    session = members.session(endpoints={0: ENDPOINTS[0]})
    members.turn(session)
    members.say(members.answer(EventCode.REDIRECT, 2, LISTED))
    members.turn(session)
    assert [len(each.offered) for each in (members.to(0), members.to(2))] == [1, 1]
    members.say(members.answer(EventCode.OK, 2, correlation_id=1))
    members.turn(session)
    assert session.state is AeronClusterState.CONNECTING, "that was the answer to the first request"
    members.say(members.answer(EventCode.OK, 2))
    members.turn(session)
    assert (session.state, session.leader_member_id) == (CONNECTED, 2)


def test_a_redirect_to_nobody_or_to_a_leader_that_is_not_reached_has_others_asked_again(members):
    session = members.session()
    members.turn(session)
    members.say(members.answer(EventCode.REDIRECT, -1))
    members.turn(session, 2)
    assert len(members.requests()) == 1, "at once it would be the same"
    members.turn(session, seconds=0.2)
    assert len(members.requests()) == 2
    for each in members.all:
        each.is_connected = "9202" not in each.channel
    members.to(2).is_connected = False
    members.say(members.answer(EventCode.REDIRECT, 2, LISTED))
    members.turn(session, 3)
    assert len(members.requests()) == 2
    members.turn(session, seconds=3.0)
    assert len(members.requests()) == 3


def test_a_request_that_an_election_has_dropped_is_repeated(members):
    session = members.session()
    members.turn(session)
    members.say(members.answer(EventCode.CLOSED, 0, "election", correlation_id=900))
    members.turn(session, seconds=0.2)
    assert len(members.requests()) == 1, "that was an answer to another client"
    members.say(members.answer(EventCode.CLOSED, 0, "election"))
    members.turn(session, 2)
    assert len(members.requests()) == 1, "the election goes on"
    members.turn(session, seconds=0.2)
    assert len(members.requests()) == 2
    members.say(members.answer(EventCode.OK, 0))
    members.turn(session, 2)
    assert session.state is CONNECTED


def test_a_member_that_is_lost_before_it_answers_has_another_asked(members):
    session = members.session()
    members.turn(session)
    first = next(each for each in members.all if each.offered)
    first.is_connected = False
    members.turn(session, 2, seconds=0.2)
    assert len(members.requests()) == 2
    assert len(first.offered) == 1


def test_an_endpoint_that_the_driver_refuses_is_tried_again_while_there_are_others(members):
    members.refused, members.connects = ENDPOINTS[1], False
    session = members.session()
    members.turn(session, 3)
    assert members.refusals == 1
    assert "host:9102 is refused" in session.describe()
    members.turn(session, 2, seconds=1.0)
    assert members.refusals == 3
    members.refused, members.connects = "", True
    members.turn(session, seconds=1.0)
    assert [each.offered != [] for each in (members.to(0), members.to(1))] == [False, True]
    assert "is refused" not in session.describe()


@pytest.mark.parametrize("refused", ["host", ENDPOINTS[2]])
def test_no_session_is_opened_where_the_driver_refuses_all_or_the_leader(members, refused):
    members.refused = refused
    session = members.session()
    members.turn(session)
    members.say(members.answer(EventCode.REDIRECT, 2, LISTED, correlation_id=1))
    members.turn(session, seconds=1.0)
    assert "is refused" in session.why_closed


def test_a_challenge_is_answered_by_the_credentials(members):
    class Supplier(FixedCredentials):
        def on_challenge(self, encoded_challenge):
            return b"answer to " + encoded_challenge

    session = members.session(credentials=Supplier(b""))
    members.turn(session)
    asked = members.requests()[0].correlation_id
    members.say(Challenge(asked + 1000, 5, b"of another"))
    members.say(Challenge(asked, 5, b"who?"))
    members.turn(session)
    publication = next(each for each in members.all if each.offered)
    (response,) = publication.of(ChallengeResponse)
    assert (response.cluster_session_id, response.encoded_credentials) == (5, b"answer to who?")
    members.say(members.answer(EventCode.OK, 0, correlation_id=response.correlation_id))
    members.turn(session)
    assert session.session_id == SESSION


@pytest.mark.parametrize(
    ("code", "error"),
    [(EventCode.ERROR, ClusterError), (EventCode.AUTHENTICATION_REJECTED, AuthenticationRejected)],
)
def test_a_refusal_ends_the_attempt_with_the_words_of_the_cluster(members, code, error):
    session = members.session()
    members.turn(session)
    members.say(members.answer(code, 0, "no more sessions"))
    members.turn(session)
    with pytest.raises(error, match="refused the session: no more sessions"):
        session.check_open()
    assert all(each.is_removed for each in members.all)


@pytest.mark.conformance("M-37")
def test_a_session_that_is_silent_is_kept_alive_and_one_that_sends_needs_nothing_else(members):
    session = members.open_session()
    step = KEEP_ALIVE_INTERVAL_NS / 1e9
    for _ in range(4):
        members.turn(session, seconds=step / 2)
        session.offer(b"x")
    assert members.keep_alives(0) == 0
    members.turn(session, 4, seconds=step)
    assert members.keep_alives(0) == 4


@pytest.mark.conformance("M-36")
def test_a_new_leader_gets_what_is_offered_once_it_is_connected(members):
    session = members.open_session()
    members.say(members.answer(EventCode.OK, 1))  # a leader that did not open the session repeats its answer
    members.say(members.new_leader(9, 1, session_id=SESSION + 1))
    members.say(members.new_leader(4, 1))
    members.connects = False
    members.turn(session, 2)
    assert (session.leadership_term_id, session.leader_member_id) == (4, 1)
    assert members.to(0).is_removed
    assert session.offer(b"new", 4) == Offer.NOT_CONNECTED
    members.to(1).is_connected = True
    members.turn(session)
    assert session.offer(b"old", 3) == Offer.NOT_CONNECTED
    assert session.offer(b"new", 4) > 0
    assert members.to(1).payloads == [(4, b"new")]
    members.say(members.new_leader(3, 0))
    members.turn(session)
    assert session.leadership_term_id == 4, "an event of a term that is over came late"
    assert len(members.heard) == 2, "the application hears of the events of its session"


def test_a_new_leader_whose_endpoint_is_refused_for_a_moment_is_tried_again(members):
    session = members.open_session()
    members.refused = ENDPOINTS[1]
    members.say(members.new_leader(4, 1))
    members.turn(session, 3)
    assert (session.state, members.refusals) == (AeronClusterState.AWAIT_LEADER, 1)
    assert session.offer(b"new", 4) == Offer.NOT_CONNECTED
    members.turn(session, 2, seconds=1.0)
    assert members.refusals == 3
    members.refused = ""
    members.turn(session, seconds=1.0)
    assert session.offer(b"new", 4) > 0


def test_a_leader_whose_endpoint_is_refused_for_too_long_is_given_up_with_the_words_of_the_driver(members):
    session = members.open_session(leader_timeout_s=20)
    members.refused = ENDPOINTS[1]
    members.say(members.new_leader(4, 1))
    members.turn(session, 2, seconds=19)
    assert not session.is_closed
    members.turn(session, seconds=2)
    refusal = "aeron:udp?endpoint=host:9102 is refused"
    assert session.why_closed == f"no leader took the session up within 20 s; {refusal}"


def test_the_log_may_be_first_to_say_who_leads(members):
    session = members.open_session()
    members.to(0).is_connected = False
    members.turn(session)
    session.follow_leader(4, 2)
    members.turn(session, 2)
    assert session.offer(b"x", 4) > 0
    session.follow_leader(5, 8)
    members.turn(session)
    assert "ingress endpoint of leader 8 is not known" in session.why_closed


def test_once_the_leader_was_lost_nothing_is_offered_in_its_term_before_the_log_has_it_all(members):
    session = members.open_session()
    session.offer(b"one")
    members.to(0).is_connected = False
    members.turn(session)
    assert session.state is AeronClusterState.AWAIT_LEADER
    assert session.offer(b"two") == Offer.NOT_CONNECTED
    members.to(0).is_connected = True
    members.turn(session, 2, seconds=1.0)
    assert session.offer(b"two") == Offer.NOT_CONNECTED, "what the leader got has perhaps a gap"
    assert members.keep_alives(0) == 2, "the network may have been away for a moment"
    session.settle()
    members.turn(session)
    assert session.offer(b"two") > 0


def test_a_session_that_no_leader_takes_up_is_given_up_after_a_while(members):
    session = members.open_session(leader_timeout_s=20)
    members.to(0).is_connected = False
    members.turn(session, 2, seconds=19)
    assert not session.is_closed
    members.turn(session, seconds=2)
    assert session.why_closed == "no leader took the session up within 20 s"
    assert session.offer(b"x") == Offer.CLOSED


def test_back_pressure_is_returned(members):
    session = members.open_session()
    members.to(0).results = [Offer.BACK_PRESSURED]
    assert session.offer(b"x") == Offer.BACK_PRESSURED
    assert session.offer(b"x") > 0
    assert members.to(0).payloads == [(3, b"x")]


def test_a_session_that_the_cluster_closes_says_why(members):
    session = members.open_session()
    members.say(members.answer(EventCode.CLOSED, 0))  # it has the number of the request that opened it
    members.turn(session)
    assert session.why_closed == "closed by the cluster"
    with pytest.raises(ClientClosed, match="session 7 is closed: closed by the cluster"):
        session.check_open()


def test_a_leader_that_wakes_up_after_its_term_closes_no_session(members):
    session = members.open_session()
    members.say(members.new_leader(4, 1))
    members.say(members.answer(EventCode.CLOSED, 0, "TIMEOUT"))
    members.turn(session, 2)
    assert session.state is CONNECTED
    assert session.offer(b"x") > 0


def test_egress_is_heard_of_this_session_alone_and_what_does_not_decode_is_passed_over(members):
    session = members.open_session()
    ours, other = (SessionMessageHeader(3, s, 11).encode() + b"answer" for s in (SESSION, SESSION + 1))
    rare = AdminResponse(SESSION, 8, AdminRequestType.SNAPSHOT, AdminResponseCode.OK).encode()
    for data in (b"", b"\0" * 7, ours[:20], b"\xff" * 64, other, ours, ours, rare, other, ours):
        members.say(data)
    members.turn(session)
    framed, one = frame(ours, session_id=0, stream_id=102), frame(rare, session_id=0, stream_id=102)
    assert members.heard == [framed + framed, one, framed], "by the run"
    assert session.state is CONNECTED


def test_a_driver_that_is_lost_ends_the_session(members):
    session = members.open_session()
    members.lost = "the media driver was stopped"
    members.turn(session)
    assert session.why_closed == "the media driver was stopped"
    with pytest.raises(ClusterError, match="was stopped"):
        session.check_open()


def test_closing_asks_the_cluster_to_close_the_session(members):
    session = members.open_session()
    session.close()
    assert session.is_closed
    (request,) = members.to(0).of(SessionCloseRequest)
    assert (request.leadership_term_id, request.cluster_session_id) == (3, SESSION)
    assert members.to(0).is_removed


@pytest.mark.parametrize(("times", "is_asked"), [(20, True), (10_000, False)])
def test_a_leader_that_takes_nothing_just_now_is_asked_for_the_close_a_little_longer(
    members, times, is_asked
):
    session = members.open_session()
    members.to(0).results = [Offer.BACK_PRESSURED] * times
    session.close()
    assert len(members.to(0).of(SessionCloseRequest)) == is_asked
    assert session.is_closed
    assert members.to(0).is_removed


@pytest.mark.conformance("M-40")
def test_egress_is_read_by_a_thread_while_the_application_does_something_else(members, monkeypatch):
    members.answers_at_once = True
    monkeypatch.setattr(aeron_cluster.Aeron, "connect", lambda aeron_dir, timeout_s: members)
    with closing(AeronCluster.connect(ENDPOINTS)) as session:
        members.say(SessionMessageHeader(3, SESSION, 11).encode() + b"answer")
        members.say(members.new_leader(4, 1))
        await_that(lambda: session.leadership_term_id == 4 and session.state is CONNECTED, "the new term")
        assert session.offer(b"x", 4) > 0
    assert "aeron-cluster" not in {thread.name for thread in threading.enumerate()}


def test_an_attempt_that_nobody_answers_ends_in_time_and_names_whom_it_asked(members, monkeypatch):
    monkeypatch.setattr(aeron_cluster.Aeron, "connect", lambda aeron_dir, timeout_s: members)
    with pytest.raises(
        TimedOut, match=r"no session within 0.01 s; member 0 was asked; .* 0=host:9002,1=host"
    ):
        AeronCluster.connect(ENDPOINTS, timeout_s=0.01)
