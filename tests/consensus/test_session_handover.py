"""Sessions of a leader that is none any more: their connections wait for the new leader's name."""

from cluster.consensus.context import SECOND
from cluster.consensus.session_events import KnownLeader
from cluster.protocol.enums import CloseReason, EventCode
from cluster.protocol.log import SessionCloseEvent
from cluster.protocol.session import NewLeaderEvent
from tests.consensus.session_language import ENDPOINTS, LEADER, LEADING, TERM, Sessions


def deposed(sessions, commit_position=None):
    position = sessions.outside.position if commit_position is None else commit_position
    sessions.manager.prepare_for_new_election(position, KnownLeader(TERM, -1), sessions.now_ns)
    return sessions.manager


def new_leader_events(sessions):
    return [(to, message) for to, message in sessions.outside.egress if isinstance(message, NewLeaderEvent)]


def test_connections_stay_until_the_new_leader_is_known_and_end_behind_its_name():
    sessions = Sessions()
    first, second = sessions.opens(1), sessions.opens(2)
    manager = deposed(sessions)

    assert manager.clients_kept_until_ns == sessions.now_ns + SECOND
    assert sessions.outside.closed == []
    assert manager.let_go_of_clients(KnownLeader(TERM + 1, 2)) == 2
    assert new_leader_events(sessions) == [
        (1, NewLeaderEvent(TERM + 1, first, 2, ENDPOINTS)),
        (2, NewLeaderEvent(TERM + 1, second, 2, ENDPOINTS)),
    ]
    assert sessions.outside.closed == [1, 2]
    assert manager.clients_kept_until_ns is None
    assert [session.connection_id for session in manager] == [-1, -1]


def test_where_nobody_is_known_to_lead_connections_end_untold():
    sessions = Sessions()
    sessions.opens(1)
    manager = deposed(sessions)

    assert manager.let_go_of_clients(KnownLeader(-1, -1)) == 1
    assert new_leader_events(sessions) == []
    assert sessions.outside.closed == [1]


def test_a_client_that_does_not_take_the_event_is_let_go_too():
    sessions = Sessions()
    sessions.opens(1)
    manager = deposed(sessions)
    sessions.outside.takes_egress = False
    manager.let_go_of_clients(KnownLeader(TERM + 1, 2))

    assert sessions.outside.closed == [1]


def test_a_further_election_keeps_no_client_waiting_longer():
    sessions = Sessions()
    sessions.opens(1)
    until_ns = deposed(sessions).clients_kept_until_ns
    sessions.now_ns += SECOND // 2

    assert deposed(sessions).clients_kept_until_ns == until_ns


def test_a_member_without_clients_keeps_none():
    sessions = Sessions()
    sessions.replays_open(4)

    assert deposed(sessions).clients_kept_until_ns is None


def test_a_client_that_left_meanwhile_is_told_nothing():
    sessions = Sessions()
    sessions.opens(1)
    manager = deposed(sessions)
    manager.on_disconnect(1)

    assert manager.let_go_of_clients(KnownLeader(TERM + 1, 2)) == 0
    assert new_leader_events(sessions) == []


def test_a_connection_that_serves_an_open_session_outlasts_one_that_was_dropped():
    sessions = Sessions()
    sessions.opens(1)
    commit_position = sessions.outside.position
    sessions.is_committing = False
    sessions.opens(1)
    manager = deposed(sessions, commit_position)

    assert sessions.outside.events(1)[-1] == (EventCode.CLOSED, "election")
    assert sessions.outside.closed == []
    manager.let_go_of_clients(KnownLeader(TERM + 1, 2))
    assert sessions.outside.closed == [1]


def test_the_connection_of_a_session_that_was_opened_and_closed_in_vain_ends():
    sessions = Sessions()
    commit_position = sessions.outside.position
    sessions.is_committing = False
    session_id = sessions.opens(1)
    sessions.manager.close(session_id, CloseReason.CLIENT_ACTION, LEADING)
    deposed(sessions, commit_position)

    assert sessions.outside.closed == [1]


def test_a_session_that_was_being_closed_is_not_sent_to_the_new_leader():
    sessions = Sessions()
    session_id = sessions.opens(1)
    manager = deposed(sessions, sessions.closes_uncommitted(session_id, CloseReason.SERVICE_ACTION))
    manager.let_go_of_clients(KnownLeader(TERM + 1, 2))

    assert new_leader_events(sessions) == []
    assert sessions.outside.closed == [1]


def test_a_close_that_turns_out_to_be_committed_ends_the_connection_that_was_kept():
    sessions = Sessions()
    session_id = sessions.opens(1)
    manager = deposed(sessions)
    manager.on_replay_session_close(SessionCloseEvent(TERM, session_id, 0, CloseReason.TIMEOUT))

    assert sessions.outside.closed == [1]


def test_a_leader_that_leads_again_serves_its_clients_on_the_connections_they_have():
    sessions = Sessions()
    session_id = sessions.opens(1)
    manager = deposed(sessions)
    manager.prepare_for_new_term(sessions.now_ns, is_startup=False)
    sessions.tick()

    assert manager.clients_kept_until_ns is None
    assert new_leader_events(sessions) == [(1, NewLeaderEvent(TERM, session_id, LEADER, ENDPOINTS))]
    assert sessions.outside.events(1) == [(EventCode.OK, "")], "which the client has heard, once"
    assert manager.table.count_of(1) == 1


def test_a_new_leader_has_those_dialled_who_cannot_come_by_themselves_once():
    sessions = Sessions()
    sessions.connects(1, channel="aeron:udp?endpoint=10.0.0.7:9020")
    sessions.tick()
    session_id = next(iter(sessions.manager.sessions))
    sessions.opens(2)
    for connection_id in (1, 2):
        sessions.manager.on_disconnect(connection_id)
    assert sessions.outside.dialled == []
    sessions.manager.prepare_for_new_term(sessions.now_ns, is_startup=False)
    sessions.tick()
    sessions.tick()

    assert sessions.outside.dialled == [(session_id, "aeron:udp?endpoint=10.0.0.7:9020", 102)]
