"""An authenticator for members in memory."""

from cluster.consensus.authentication import DefaultAuthenticator


class Challenges(DefaultAuthenticator):
    """Asks everyone for a word before it lets them in."""

    def __init__(self):
        self.words = {}

    def on_challenge_response(self, session_id, encoded_credentials, now_ms):
        self.words[session_id] = encoded_credentials

    def on_connected_session(self, session, now_ms):
        session.challenge(b"the word?")

    def on_challenged_session(self, session, now_ms):
        word = self.words.get(session.session_id)
        if word == b"sesame":
            session.authenticate(b"someone")
        elif word is not None:
            session.reject()
