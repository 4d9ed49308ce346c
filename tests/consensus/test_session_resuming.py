"""Who may have a session back: whoever holds the token that it was opened with, by the principal's rules."""

import pytest

from cluster.protocol.enums import CloseReason
from cluster.protocol.resume import with_resume_hash
from tests.consensus.session_language import LEADING, TOKEN, Sessions, Watching


def test_a_session_goes_on_only_with_the_right_credentials():
    sessions = Sessions(Watching(lambda session: session.authenticate(b"me")))
    session_id = sessions.opens()

    assert sessions.finds(session_id, credentials=b"wrong") is None
    assert sessions.finds(session_id, credentials=b"secret").id == session_id
    assert sessions.finds(99, credentials=b"secret") is None


def test_who_wants_a_session_back_is_judged_by_the_certificate_that_it_shows_now():
    watching = Watching(lambda session: session.authenticate(b"me"))
    sessions = Sessions(watching)
    session = sessions.manager.sessions[sessions.opens(1)]
    sessions.outside.names = {1: "of the lost one", 2: "of this one"}
    watching.may_resume = lambda *given: given

    given = sessions.manager.admission.may_resume(session, 2, b"secret", 5)

    assert given == (b"me", b"secret", 5, "of this one")


@pytest.mark.parametrize(("connection_id", "is_held"), [(1, True), (2, False)])
def test_a_session_is_held_on_the_connection_that_it_was_told_of_and_on_no_other(connection_id, is_held):
    """Over another one it has sent nothing yet that it was told to send again."""
    sessions = Sessions()
    session_id = sessions.opens(1)
    table = sessions.manager.table
    table.slots["retained"][table.slot_of(session_id)] = 1

    session = sessions.manager.sessions[session_id]
    sessions.manager.link(session, connection_id, 0, has_heard_ok=True)

    assert table.slots["retained"][table.slot_of(session_id)] == is_held


@pytest.mark.parametrize("has_heard_ok", [False, True])
def test_a_client_that_comes_back_is_told_that_its_session_is_open_unless_it_knows(has_heard_ok):
    sessions = Sessions()
    session_id = sessions.opens(1)

    sessions.manager.link(sessions.manager.sessions[session_id], 2, 0, has_heard_ok=has_heard_ok)
    sessions.tick()

    assert sessions.outside.events(2) == ([] if has_heard_ok else sessions.outside.events(1))


def test_a_session_that_comes_back_has_been_silent_for_no_time():
    sessions = Sessions()
    session_id = sessions.opens(1)
    timeout_ns = sessions.context.session_timeout_ns

    sessions.manager.link(sessions.manager.sessions[session_id], 2, timeout_ns, has_heard_ok=True)
    sessions.tick(at=timeout_ns + 1)
    assert session_id in sessions.manager.sessions

    sessions.tick(at=2 * timeout_ns + 1)
    assert session_id not in sessions.manager.sessions


@pytest.mark.parametrize("token", [b"", bytes(16), TOKEN[:-1], TOKEN + b"\0"])
def test_a_session_is_found_again_only_by_its_own_token(token):
    sessions = Sessions()
    session_id = sessions.opens()

    assert sessions.finds(session_id, token=token) is None
    assert sessions.finds(-1, token=token) is None
    assert sessions.finds(session_id).id == sessions.finds(-1).id == session_id


def test_of_several_sessions_of_a_token_the_last_is_found():
    sessions = Sessions()
    first, last = sessions.opens(1), sessions.opens(2)

    assert sessions.finds(first).id == first
    assert sessions.finds(-1).id == last


def test_a_session_that_is_to_be_closed_is_found_by_nobody():
    sessions = Sessions()
    session_id = sessions.opens()
    sessions.outside.takes_log = False

    sessions.manager.close(session_id, CloseReason.SERVICE_ACTION, LEADING)

    assert session_id in sessions.manager.sessions
    assert sessions.finds(session_id) is None


@pytest.mark.parametrize("token", [b"", TOKEN])
def test_a_session_without_a_hash_is_found_again_by_nobody(token):
    sessions = Sessions()
    sessions.replays_open(4)

    assert sessions.finds(4, token=token) is None
    assert sessions.finds(-1, token=token) is None


def test_the_members_that_only_read_the_log_know_whose_a_session_is():
    sessions = Sessions()
    sessions.replays_open(4, channel=with_resume_hash("aeron:udp?endpoint=h:1", TOKEN))

    assert sessions.finds(4).id == sessions.finds(-1).id == 4
