"""Closes of sessions that were not committed when their leader lost its office (group I)."""

import pytest

from cluster.consensus.cluster_session import SessionState
from cluster.consensus.context import SECOND
from cluster.log import session_table
from cluster.protocol.enums import CloseReason, EventCode
from tests.consensus.session_language import LEADING, Sessions


@pytest.mark.conformance("C-233")
def test_a_close_that_is_not_committed_is_undone_and_logged_when_this_member_leads_again():
    sessions = Sessions()
    session_id = sessions.opens(1)
    commit_position = sessions.closes_uncommitted(session_id, CloseReason.CLIENT_ACTION)
    sessions.manager.prepare_for_new_election(commit_position, LEADING, sessions.now_ns)
    assert sessions.manager.sessions[session_id].state is SessionState.CLOSING

    sessions.outside.log.clear()
    sessions.manager.prepare_for_new_term(0, is_startup=False)
    sessions.tick()
    assert sessions.outside.log == [("close", session_id, CloseReason.CLIENT_ACTION)]


@pytest.mark.parametrize("silent_s", [0, 11, 71], ids=lambda s: f"silent for {s} s when it leads again")
def test_a_close_for_silence_that_was_not_committed_is_not_written_in_a_new_term(silent_s):
    """Nobody is judged by what was heard before the term: there may have been no leader to speak to."""
    sessions = Sessions()
    session_id = sessions.opens(1)
    commit_position = sessions.outside.position
    sessions.is_committing = False
    sessions.tick(at=11 * SECOND)
    assert sessions.outside.log[-1] == ("close", session_id, CloseReason.TIMEOUT)
    sessions.manager.prepare_for_new_election(commit_position, LEADING, sessions.now_ns)
    slots, slot = sessions.manager.table.slots, sessions.manager.table.slot_of(session_id)

    sessions.now_ns += 60 * SECOND
    slots["active_ns"][slot] = sessions.now_ns - silent_s * SECOND
    sessions.outside.log.clear()
    sessions.manager.prepare_for_new_term(sessions.now_ns, is_startup=False)
    sessions.tick()
    assert sessions.outside.log == []
    assert sessions.manager.sessions[session_id].state is SessionState.OPEN
    assert slots["state"][slot] == session_table.OPEN

    sessions.tick(at=sessions.now_ns + 11 * SECOND)
    assert sessions.outside.log == [("close", session_id, CloseReason.TIMEOUT)]


@pytest.mark.parametrize("reason", CloseReason)
def test_a_client_is_told_of_the_close_of_its_session_unless_it_asked_for_it(reason):
    sessions = Sessions()
    session_id = sessions.opens(1)

    sessions.manager.close(session_id, reason, LEADING)

    told = [] if reason is CloseReason.CLIENT_ACTION else [(EventCode.CLOSED, reason.name)]
    assert sessions.outside.events(1)[1:] == told
