"""Who may have a session back: whoever holds the token that it was opened with, by the principal's rules."""

import pytest

from cluster.protocol.resume import with_resume_hash
from tests.consensus.session_language import TOKEN, Sessions, Watching


def test_a_session_goes_on_only_with_the_right_credentials():
    sessions = Sessions(Watching(lambda session: session.authenticate(b"me")))
    session_id = sessions.opens()

    assert sessions.finds(session_id, credentials=b"wrong") is None
    assert sessions.finds(session_id, credentials=b"secret").id == session_id
    assert sessions.finds(99, credentials=b"secret") is None


@pytest.mark.parametrize("token", [b"", bytes(16), TOKEN[:-1], TOKEN + b"\0"])
def test_a_session_is_found_again_only_by_its_own_token(token):
    sessions = Sessions()
    session_id = sessions.opens()

    assert sessions.finds(session_id, token=token) is None
    assert sessions.finds(-1, token=token) is None
    assert sessions.finds(session_id).id == sessions.finds(-1).id == session_id


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
