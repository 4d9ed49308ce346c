"""Clients' sessions, from the connect request to the close, and through elections."""

import pytest

from cluster.consensus.authentication import AllowAllButAdmin
from cluster.consensus.cluster_session import ClusterSession, SessionAction, SessionState
from cluster.consensus.context import SECOND
from cluster.errors import LocalProtocolError
from cluster.protocol.enums import CloseReason, EventCode
from cluster.protocol.log import SessionCloseEvent
from cluster.protocol.session import Challenge, NewLeaderEvent, SessionEvent
from tests.consensus.session_language import ENDPOINTS, LEADER, LEADING, TERM, Sessions, Watching

# ---- a follower


@pytest.mark.conformance("C-171", "C-172", "C-174", "C-175", "S-12")
def test_a_follower_redirects_to_the_leader_and_forgets():
    sessions = Sessions()
    sessions.connects(1, is_leader=False)
    sessions.tick()

    ((connection, event),) = sessions.outside.egress
    assert connection == 1
    assert (event.code, event.detail) == (EventCode.REDIRECT, ENDPOINTS)
    assert (event.leader_member_id, event.cluster_session_id, event.correlation_id) == (LEADER, -1, 77)
    assert sessions.outside.log == []
    assert sessions.manager.sessions == {}
    assert sessions.manager.next_session_id == 1
    assert not sessions.manager.has_pending_work


@pytest.mark.conformance("C-176")
def test_a_redirect_waits_for_the_connection_but_not_for_ever():
    sessions = Sessions()
    sessions.connects(9, is_leader=False)
    sessions.tick()
    assert sessions.outside.egress == []
    sessions.outside.connected.add(9)
    sessions.tick()
    assert len(sessions.outside.egress) == 1

    sessions.connects(8, is_leader=False)
    sessions.tick(at=sessions.now_ns + 11 * SECOND)
    assert not sessions.manager.has_pending_work


# ---- opening


@pytest.mark.conformance("C-177", "C-184", "C-185", "C-186", "C-187", "C-189", "C-190")
def test_the_leader_opens_a_session_in_the_log_and_tells_its_client():
    sessions = Sessions()
    session_id = sessions.opens()

    assert sessions.outside.log == [("open", session_id)]
    ((connection, event),) = sessions.outside.egress
    assert (connection, event.code) == (1, EventCode.OK)
    assert (event.cluster_session_id, event.leadership_term_id, event.correlation_id) == (
        session_id,
        TERM,
        77,
    )
    session = sessions.manager.sessions[session_id]
    assert (session.state, session.action) == (SessionState.OPEN, SessionAction.CLIENT)
    assert session.opened_log_position == sessions.outside.position
    assert sessions.manager.pending_count == 0


def test_of_those_that_wait_the_newest_opens_first():
    sessions = Sessions()
    for connection_id in (1, 2, 3):
        sessions.connects(connection_id)

    sessions.tick()

    assert sessions.outside.log == [("open", 3), ("open", 2), ("open", 1)]


def test_a_client_is_told_of_its_session_only_when_the_open_is_committed():
    sessions = Sessions()
    sessions.is_committing = False
    sessions.opens()
    sessions.tick()
    assert sessions.outside.events() == []

    sessions.manager.sweep(sessions.outside.position)
    assert sessions.manager.has_pending_work
    sessions.tick()
    assert sessions.outside.events() == [(EventCode.OK, "")]


@pytest.mark.conformance("C-178")
def test_ids_count_from_1_and_a_refused_request_uses_one_up():
    sessions = Sessions()
    assert sessions.opens(1) == 1
    sessions.connects(2, version=1 << 16)
    sessions.tick()
    assert sessions.opens(3) == 3


@pytest.mark.conformance("C-179", "C-180", "S-18")
def test_a_client_of_another_major_version_is_refused():
    sessions = Sessions()
    sessions.connects(1, version=2 << 16 | 1 << 8)
    sessions.tick()

    assert sessions.outside.events() == [(EventCode.ERROR, "invalid client version 2.1.0, cluster is 0.3.0")]
    assert sessions.outside.log == []


def test_a_client_without_a_version_is_taken_for_a_compatible_one():
    sessions = Sessions()
    sessions.connects(1, version=0)
    sessions.tick()

    assert sessions.outside.events() == [(EventCode.OK, "")]


@pytest.mark.conformance("C-181", "C-182", "S-19")
def test_pending_and_open_sessions_together_are_limited():
    sessions = Sessions(max_sessions=2)
    sessions.opens(1)
    sessions.connects(2)
    sessions.connects(3)
    sessions.tick()
    sessions.tick()

    assert sessions.outside.events(3) == [(EventCode.ERROR, "concurrent session limit, 2 (max_sessions)")]
    assert len(sessions.manager.sessions) == 2


@pytest.mark.conformance("C-183")
def test_the_authenticator_hears_of_accepted_requests_only():
    watching = Watching(lambda session: session.authenticate(b"me"))
    sessions = Sessions(watching)
    sessions.connects(1)
    sessions.connects(2, version=1 << 16)
    sessions.tick()

    assert watching.asked == [("connect", 1, b"secret"), ("connected", 1)]
    assert sessions.manager.sessions[1].encoded_principal == b"me"


@pytest.mark.conformance("C-193")
def test_a_challenged_session_is_looked_after_until_its_response_is_decided():
    watching = Watching(lambda session: session.challenge(b"who?"))
    sessions = Sessions(watching)
    sessions.connects(1)
    sessions.tick()
    sessions.tick()
    sessions.tick()

    assert [type(message) for _, message in sessions.outside.egress] == [Challenge]
    assert watching.asked[-2:] == [("challenged", 1), ("challenged", 1)]
    sessions.manager.on_challenge_response(1, 78, b"me", sessions.now_ns, 0)
    assert watching.asked[-1] == ("response", 1, b"me")


def test_nobody_is_asked_about_a_client_that_could_not_be_answered():
    watching = Watching(lambda session: session.authenticate(b"me"))
    sessions = Sessions(watching)
    sessions.connects(9)
    sessions.tick()
    assert watching.asked == [("connect", 1, b"secret")]

    sessions.outside.connected.add(9)
    sessions.tick()

    assert watching.asked[1:] == [("connected", 1)]


def test_a_response_to_a_challenge_is_what_is_judged_and_has_time_of_its_own():
    watching, seen = Watching(lambda session: session.challenge(b"?")), []
    watching.on_challenged_session = lambda session, _: seen.append(session.encoded_credentials)
    sessions = Sessions(watching)
    timeout_ns = sessions.context.session_timeout_ns
    sessions.connects(1)
    sessions.tick(at=timeout_ns)

    sessions.manager.on_challenge_response(1, 78, b"me", sessions.now_ns, 0)
    sessions.tick(at=2 * timeout_ns)

    assert seen == [b"me"]
    assert sessions.manager.pending_count == 1


@pytest.mark.conformance("C-195")
def test_a_rejected_client_is_told_and_leaves_nothing_in_the_log():
    sessions = Sessions(Watching(lambda session: session.reject()))
    sessions.connects(1)
    sessions.tick()
    sessions.tick()

    assert sessions.outside.events() == [(EventCode.AUTHENTICATION_REJECTED, "session failed authentication")]
    assert sessions.outside.log == []


@pytest.mark.conformance("C-196", "S-23")
def test_a_principal_has_4096_bytes_at_most():
    session = ClusterSession(1, correlation_id=1, response_stream_id=102, response_channel="")
    session.authenticate(bytes(4096))
    with pytest.raises(LocalProtocolError, match="4097 bytes"):
        session.authenticate(bytes(4097))


@pytest.mark.conformance("C-188")
def test_the_ok_event_is_sent_again_until_it_is_taken():
    sessions = Sessions()
    sessions.outside.takes_egress = False
    session_id = sessions.opens()
    assert sessions.manager.sessions[session_id].has_open_event_pending
    sessions.outside.takes_egress = True
    sessions.tick()

    assert sessions.outside.events() == [(EventCode.OK, "")]
    sessions.tick()
    assert len(sessions.outside.egress) == 1


@pytest.mark.conformance("C-191")
def test_nothing_is_logged_for_a_client_that_is_not_there():
    sessions = Sessions()
    sessions.connects(1)
    there = set(sessions.outside.connected)
    sessions.outside.connected.clear()
    sessions.tick()

    assert sessions.outside.log == []
    assert sessions.manager.pending_count == 1
    sessions.outside.connected.update(there)
    sessions.tick()
    assert sessions.outside.log == [("open", 1)]


def test_a_log_that_takes_nothing_now_is_tried_again():
    sessions = Sessions()
    sessions.outside.takes_log = False
    sessions.connects(1)
    sessions.tick()
    assert sessions.manager.pending_count == 1
    sessions.outside.takes_log = True
    sessions.tick()

    assert sessions.outside.log == [("open", 1)]


@pytest.mark.conformance("C-192", "S-24")
def test_a_pending_session_times_out():
    sessions = Sessions()
    sessions.connects(9)
    sessions.tick(at=10 * SECOND)
    assert sessions.manager.pending_count == 1
    sessions.tick(at=10 * SECOND + 1)

    assert sessions.manager.pending_count == 0
    assert sessions.manager.timed_out_count == 1


@pytest.mark.conformance("C-197")
def test_two_requests_with_one_correlation_id_are_two_sessions():
    sessions = Sessions()
    sessions.connects(1)
    sessions.connects(1)
    sessions.tick()

    assert sorted(sessions.manager.sessions) == [1, 2]


@pytest.mark.conformance("C-198", "C-199")
def test_states_and_actions_are_in_the_documented_order():
    assert [state.name for state in SessionState] == [
        "INIT",
        "CONNECTING",
        "CONNECTED",
        "CHALLENGED",
        "AUTHENTICATED",
        "REJECTED",
        "OPEN",
        "CLOSING",
        "INVALID",
        "CLOSED",
    ]
    assert [action.name for action in SessionAction] == ["CLIENT", "BACKUP", "HEARTBEAT", "STANDBY_SNAPSHOT"]


# ---- closing


@pytest.mark.conformance("C-204", "C-205", "S-38", "S-170")
def test_a_session_without_activity_is_closed_logged_told_and_counted():
    sessions = Sessions()
    session_id = sessions.opens()
    sessions.tick(at=10 * SECOND)
    assert session_id in sessions.manager.sessions

    sessions.tick(at=10 * SECOND + 1_000_000)
    assert sessions.outside.log[-1] == ("close", session_id, CloseReason.TIMEOUT)
    assert sessions.outside.events()[-1] == (EventCode.CLOSED, "TIMEOUT")
    assert sessions.manager.timed_out_count == 1
    assert sessions.manager.sessions == {}


@pytest.mark.conformance("C-206", "C-207")
def test_a_session_that_its_client_closes_is_logged_and_told_nothing():
    sessions = Sessions()
    session_id = sessions.opens()
    sessions.manager.close(session_id, CloseReason.CLIENT_ACTION, LEADING)

    assert sessions.outside.log[-1] == ("close", session_id, CloseReason.CLIENT_ACTION)
    assert sessions.outside.events() == [(EventCode.OK, "")]


@pytest.mark.conformance("C-208", "S-63")
def test_a_session_that_a_service_closes_is_logged_and_told():
    sessions = Sessions()
    session_id = sessions.opens()
    sessions.manager.close(session_id, CloseReason.SERVICE_ACTION, LEADING)

    assert sessions.outside.log[-1] == ("close", session_id, CloseReason.SERVICE_ACTION)
    assert sessions.outside.events()[-1] == (EventCode.CLOSED, "SERVICE_ACTION")


@pytest.mark.conformance("C-209")
def test_a_close_that_the_log_refuses_is_tried_again_in_each_tick():
    sessions = Sessions()
    session_id = sessions.opens()
    sessions.outside.takes_log = False
    sessions.manager.close(session_id, CloseReason.CLIENT_ACTION, LEADING)
    sessions.tick()
    assert sessions.manager.sessions[session_id].state is SessionState.CLOSING
    sessions.outside.takes_log = True
    sessions.tick()

    assert sessions.outside.log[-1] == ("close", session_id, CloseReason.CLIENT_ACTION)
    assert sessions.manager.sessions == {}


@pytest.mark.conformance("C-210", "S-64")
def test_a_session_whose_connection_is_lost_waits_for_its_client_until_the_time_out():
    sessions = Sessions()
    session_id = sessions.opens()
    sessions.manager.on_disconnect(1)
    sessions.tick(at=9 * SECOND)
    session = sessions.finds(session_id)
    assert session is not None
    sessions.manager.link(session, 2, sessions.now_ns, has_heard_ok=True)
    sessions.manager.on_disconnect(2)
    sessions.tick(at=20 * SECOND)

    assert sessions.outside.log[-1] == ("close", session_id, CloseReason.TIMEOUT)


def test_a_connection_that_is_lost_takes_its_pending_requests_along():
    sessions = Sessions()
    sessions.outside.connected.clear()
    sessions.connects(1)
    sessions.connects(1, is_leader=False)
    sessions.connects(1, version=1 << 16)
    sessions.manager.on_disconnect(1)

    assert not sessions.manager.has_pending_work


# ---- what the log says, on the others


@pytest.mark.conformance("C-222", "C-223")
def test_a_follower_holds_what_the_log_opened_without_a_connection():
    sessions = Sessions()
    sessions.replays_open(4)
    session = sessions.manager.sessions[4]

    assert (session.response_stream_id, session.response_channel) == (102, "channel")
    assert (session.state, session.connection_id, session.encoded_principal) == (
        SessionState.OPEN,
        -1,
        b"who",
    )


@pytest.mark.conformance("C-224")
def test_a_follower_forgets_what_the_log_closed():
    sessions = Sessions()
    sessions.replays_open(4)
    sessions.manager.on_replay_session_close(SessionCloseEvent(TERM, 4, 0, CloseReason.TIMEOUT))
    sessions.manager.on_replay_session_close(SessionCloseEvent(TERM, 4, 0, CloseReason.TIMEOUT))

    assert sessions.manager.sessions == {}
    assert len(sessions.manager.table) == 0


@pytest.mark.conformance("C-236")
def test_ids_of_a_new_leader_are_above_all_in_the_log():
    sessions = Sessions()
    sessions.replays_open(41)

    assert sessions.opens(1) == 42


@pytest.mark.conformance("C-235")
def test_what_a_service_closed_on_a_follower_is_logged_when_it_leads():
    sessions = Sessions()
    sessions.replays_open(4)
    sessions.manager.mark_closing(4, CloseReason.SERVICE_ACTION)
    sessions.manager.prepare_for_new_term(0, is_startup=False)
    sessions.tick()

    assert sessions.outside.log == [("close", 4, CloseReason.SERVICE_ACTION)]


@pytest.mark.parametrize("reason", [CloseReason.TIMEOUT, CloseReason.CLIENT_ACTION])
def test_what_a_service_closed_while_another_close_was_uncommitted_stays_closed(reason):
    """Services ask once, each at one place in the log; whoever leads next has to do it."""
    sessions = Sessions()
    session_id = sessions.opens()
    commit_position = sessions.closes_uncommitted(session_id, reason)
    sessions.manager.mark_closing(session_id, CloseReason.SERVICE_ACTION)
    sessions.manager.prepare_for_new_election(commit_position, LEADING, sessions.now_ns)
    sessions.manager.prepare_for_new_term(sessions.now_ns, is_startup=False)
    sessions.tick()

    assert sessions.outside.log[-1] == ("close", session_id, CloseReason.SERVICE_ACTION)


# ---- a new leader


@pytest.mark.conformance("C-226", "C-228", "C-229")
def test_a_session_that_comes_to_its_new_leader_hears_who_leads():
    sessions = Sessions()
    sessions.replays_open(4)
    sessions.manager.prepare_for_new_term(0, is_startup=False)
    sessions.manager.link(sessions.manager.sessions[4], 1, 0, has_heard_ok=False)
    sessions.tick()
    sessions.tick()

    first, second = [message for _, message in sessions.outside.egress]
    assert (type(first), first.code) == (SessionEvent, EventCode.OK)
    assert second == NewLeaderEvent(TERM, 4, LEADER, ENDPOINTS)


@pytest.mark.conformance("C-227")
def test_the_new_leader_event_is_sent_again_until_it_is_taken():
    sessions = Sessions()
    session_id = sessions.opens()
    sessions.manager.prepare_for_new_term(0, is_startup=False)
    sessions.outside.takes_egress = False
    sessions.tick()
    sessions.outside.takes_egress = True
    sessions.tick()

    assert [m for _, m in sessions.outside.egress][-1] == NewLeaderEvent(TERM, session_id, LEADER, ENDPOINTS)


@pytest.mark.conformance("C-230")
def test_time_outs_begin_anew_with_a_new_leader():
    sessions = Sessions()
    sessions.replays_open(4)
    sessions.now_ns = 60 * SECOND
    sessions.manager.prepare_for_new_term(sessions.now_ns, is_startup=False)
    sessions.tick(at=70 * SECOND)
    assert 4 in sessions.manager.sessions
    sessions.tick(at=70 * SECOND + 1_000_000)

    assert sessions.outside.log == [("close", 4, CloseReason.TIMEOUT)]


@pytest.mark.conformance("C-231", "S-65")
def test_a_leader_that_has_just_started_closes_what_it_found():
    sessions = Sessions()
    sessions.replays_open(4)
    sessions.replays_open(5, 2096)
    sessions.manager.prepare_for_new_term(0, is_startup=True)
    sessions.tick()

    assert sessions.outside.log == [("close", 4, CloseReason.TIMEOUT), ("close", 5, CloseReason.TIMEOUT)]
    assert sessions.outside.egress == []


@pytest.mark.conformance("C-232", "C-234", "S-66")
def test_what_is_not_committed_or_not_open_is_gone_with_the_leadership():
    sessions = Sessions()
    committed = sessions.opens(1)
    commit_position = sessions.outside.position
    sessions.is_committing = False
    sessions.opens(2)
    sessions.connects(3)
    sessions.manager.prepare_for_new_election(commit_position, LEADING, sessions.now_ns)

    assert sorted(sessions.manager.sessions) == [committed]
    assert sessions.manager.pending_count == 0
    assert sessions.outside.closed == [2, 3]
    assert sessions.outside.events(2)[-1] == (EventCode.CLOSED, "election")
    assert sessions.outside.events(3)[-1] == (EventCode.CLOSED, "election")
    assert sessions.manager.next_committed_session_id == committed + 1
    assert sessions.manager.next_session_id == 4
    assert sessions.manager.sessions[committed].connection_id == 1


@pytest.mark.conformance("C-32")
def test_a_commit_forgets_what_it_covers():
    sessions = Sessions()
    session_id = sessions.opens(1)
    sessions.manager.close(session_id, CloseReason.CLIENT_ACTION, LEADING)
    sessions.manager.sweep(sessions.outside.position)
    sessions.manager.prepare_for_new_election(sessions.outside.position, LEADING, sessions.now_ns)

    assert sessions.manager.sessions == {}
    assert len(sessions.manager.table) == 0
    assert sessions.manager.next_committed_session_id == session_id + 1


@pytest.mark.conformance("C-214", "S-72")
def test_by_default_everybody_may_write_and_read_and_nobody_administer():
    default = AllowAllButAdmin()

    def allowed(schema_id):
        return [action for action in range(120) if default.is_authorised(schema_id, action, None, b"")]

    assert allowed(111) == [3, 77, 79, 81]
    assert allowed(1111) == [10, 12, 16, 21]
    assert allowed(112) == []


class Granting:
    """An authorisation service that knows one principal."""

    def is_authorised(self, schema_id, action_id, request_type, encoded_principal):
        return (schema_id, action_id) == (111, 3) and encoded_principal == b"writer"


@pytest.mark.parametrize(("principal", "is_open"), [(b"writer", True), (b"reader", False)])
def test_a_session_needs_the_right_to_write_beside_an_identity(principal, is_open):
    sessions = Sessions(Watching(lambda session: session.authenticate(principal)), Granting())

    sessions.connects(1)
    sessions.tick()
    sessions.tick()

    assert bool(sessions.manager.sessions) is is_open
    if not is_open:
        code, detail = sessions.outside.events(1)[-1]
        assert (code, detail) == (EventCode.AUTHENTICATION_REJECTED, "no right to write")
        assert sessions.outside.refused == [(1, b"reader", "to open a session", "no right to write")]


def test_a_refusal_is_told_to_those_who_watch_and_not_to_the_client():
    sessions = Sessions(Watching(lambda session: session.reject("wrong password")))

    sessions.connects(1)
    sessions.tick()
    sessions.tick()

    assert sessions.outside.events(1) == [
        (EventCode.AUTHENTICATION_REJECTED, "session failed authentication")
    ]
    assert sessions.outside.refused == [(1, b"", "to open a session", "wrong password")]


def test_an_authenticator_sees_credentials_and_the_name_in_the_certificate():
    seen = []
    sessions = Sessions(
        Watching(lambda session: seen.append((session.encoded_credentials, session.certificate_name)))
    )
    sessions.outside.names[1] = "alice"

    sessions.connects(1)
    sessions.tick()

    assert seen == [(b"secret", "alice")]
