"""Authenticators and authorisation services of a user's own: what they raise is a refusal."""

import pytest

from cluster.security.user_classes import GuardedAuthenticator, GuardedAuthorisation


class Session:
    """A proxy that notes what was decided."""

    session_id = 7
    encoded_credentials = b"secret"
    certificate_name = None

    def __init__(self):
        self.rejected = []

    def reject(self, reason=""):
        self.rejected.append(reason)


class Raising:
    """Raises the credentials that it sees, as a careless hook does."""

    def __getattr__(self, name):
        def hook(*arguments):
            raise ValueError("secret")

        return hook


@pytest.mark.parametrize("first", ["on_connect_request", "on_challenge_response"])
@pytest.mark.parametrize("then", ["on_connected_session", "on_challenged_session"])
def test_what_a_hook_raises_rejects_its_session_and_shows_no_secret(first, then):
    told, session = [], Session()
    guarded = GuardedAuthenticator(Raising(), told.append)

    getattr(guarded, first)(7, b"secret", 0)
    getattr(guarded, then)(session, 0)

    assert session.rejected == ["the authenticator failed"]
    assert len(told) == 1
    assert "ValueError at" in str(told[0]) and "secret" not in str(told[0])


def test_a_session_may_not_be_resumed_where_the_hook_raises():
    told = []
    assert GuardedAuthenticator(Raising(), told.append).may_resume(b"", b"", 0, None) is False
    assert len(told) == 1


def test_an_authorisation_that_raises_says_no():
    told = []
    assert GuardedAuthorisation(Raising(), told.append).is_authorised(111, 3, None, b"") is False
    assert len(told) == 1


def test_without_a_hook_for_it_the_token_of_a_session_decides_alone():
    class AsInAeron:
        pass

    assert GuardedAuthenticator(AsInAeron(), pytest.fail).may_resume(b"", b"", 0, None) is True
