"""The authenticators that a configuration can name: token, password, certificate.

Each is a ``Verifier``: credentials and certificate in, a verdict out, or none yet. One ``Authenticator`` asks
it, so that sessions, resumed sessions and readers are judged alike.
"""

from typing import NamedTuple, Protocol

from cluster.consensus.authentication import DefaultAuthenticator, SessionProxy
from cluster.errors import ClusterError
from cluster.security.password_check import PasswordCheck
from cluster.security.principals import parse_passwords, parse_tokens
from cluster.security.text_file import OnError, WatchedFile

USER_LENGTH_SHOWN = 64


class Verdict(NamedTuple):
    """The principal that a client has proved to be; None with the reason why not, which holds no secret."""

    encoded_principal: bytes | None
    why: str = ""


class Verifier(Protocol):
    def verify(self, credentials: bytes, certificate_name: str | None) -> Verdict | None:
        """Who this is; None while that is being found out: ask again."""


class TokenVerifier:
    """Who has the token is the principal."""

    def __init__(self, path: str, on_error: OnError) -> None:
        """Raises ConfigurationError."""
        self._file = WatchedFile(path, parse_tokens, on_error)

    def verify(self, credentials: bytes, certificate_name: str | None) -> Verdict:
        found = None
        for name, digest in self._file.value().items():  # all of them, whichever it is
            if digest.fits(credentials):
                found = name
        if found is None:
            return Verdict(None, "no token" if not credentials else "an unknown token")
        return Verdict(found.encode())


class PasswordVerifier:
    """Credentials are ``user:password``; the principal is the user."""

    def __init__(self, path: str, on_error: OnError) -> None:
        """Raises ConfigurationError."""
        self._file = WatchedFile(path, parse_passwords, on_error)
        self._check = PasswordCheck()

    def verify(self, credentials: bytes, certificate_name: str | None) -> Verdict | None:
        user_bytes, colon, password = credentials.partition(b":")
        user = user_bytes.decode(errors="replace")
        if not colon:
            return Verdict(None, "no user and password")
        is_right = self._check.is_right(user, password, self._file.value().get(user))
        if is_right is None:
            return None
        shown = user[:USER_LENGTH_SHOWN]
        return Verdict(user_bytes) if is_right else Verdict(None, f"user {shown!r}: wrong user or password")


class CertificateVerifier:
    """The principal is the common name in the client's certificate, which TLS has verified."""

    def verify(self, credentials: bytes, certificate_name: str | None) -> Verdict:
        if certificate_name is None:
            return Verdict(None, "no certificate")
        return Verdict(certificate_name.encode())


class VerifyingAuthenticator(DefaultAuthenticator):
    """Lets in whom its verifier knows, and nobody else."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier

    def on_connected_session(self, session: SessionProxy, now_ms: int) -> None:
        verdict = self._verifier.verify(session.encoded_credentials, session.certificate_name)
        if verdict is None:
            return
        if verdict.encoded_principal is None:
            session.reject(verdict.why)
        else:
            session.authenticate(verdict.encoded_principal)

    def on_challenged_session(self, session: SessionProxy, now_ms: int) -> None:
        raise ClusterError(f"session {session.session_id} was never challenged")

    def may_resume(
        self,
        encoded_principal: bytes,
        encoded_credentials: bytes,
        now_ms: int,
        certificate_name: str | None,
    ) -> bool | None:
        verdict = self._verifier.verify(encoded_credentials, certificate_name)
        return None if verdict is None else verdict.encoded_principal == encoded_principal
