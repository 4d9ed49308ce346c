"""Whether a client may open a session, or take one back: the authenticator's word, then the right to write.

connect request ── on_connect_request ── decide, in every slow tick ──┬─ AUTHENTICATED
                                           │    ▲                     └─ REJECTED, and one line of audit
                                      challenge └─ on_challenge_response
"""

from typing import Protocol

from cluster.consensus.authentication import SESSION_CONNECT_REQUEST, Security
from cluster.consensus.cluster_session import ClusterSession, SessionState
from cluster.protocol import CLUSTER
from cluster.protocol.enums import EventCode
from cluster.protocol.sbe import Message
from cluster.protocol.session import Challenge


class AdmissionPort(Protocol):
    """What is asked of clients' connections."""

    def is_connected(self, connection_id: int) -> bool: ...

    def send_egress(self, connection_id: int, message: Message) -> bool:
        """Whether the connection took the message."""
        ...

    def certificate_name(self, connection_id: int) -> str | None:
        """The name in the certificate that the client has shown, verified; None without one."""
        ...

    def on_refused(self, connection_id: int, encoded_principal: bytes, what: str, why: str) -> None:
        """A client was refused: for those who keep watch. ``why`` holds no secret."""
        ...


class ClientProxy:
    """What an authenticator gets (Aeron: ClusterSessionProxy)."""

    __slots__ = ("_admission", "_session")

    def __init__(self, admission: "SessionAdmission", session: ClusterSession) -> None:
        self._admission = admission
        self._session = session

    @property
    def session_id(self) -> int:
        return self._session.id

    @property
    def encoded_credentials(self) -> bytes:
        return self._session.encoded_credentials

    @property
    def certificate_name(self) -> str | None:
        return self._admission.port.certificate_name(self._session.connection_id)

    def challenge(self, encoded_challenge: bytes) -> bool:
        session = self._session
        sent = self._admission.port.send_egress(
            session.connection_id, Challenge(session.correlation_id, session.id, encoded_challenge)
        )
        if sent:
            session.state = SessionState.CHALLENGED
        return sent

    def authenticate(self, encoded_principal: bytes) -> bool:
        self._admission.accept(self._session, encoded_principal)
        return True

    def reject(self, reason: str = "rejected by the authenticator") -> None:
        self._admission.refuse(self._session, b"", "session failed authentication", reason)


class SessionAdmission:
    """Decides about the sessions of one member that are not open yet."""

    def __init__(self, security: Security, port: AdmissionPort) -> None:
        self.port = port
        self._authenticator = security.authenticator
        self._authorisation = security.authorisation

    def on_connect_request(self, session: ClusterSession, encoded_credentials: bytes, now_ms: int) -> None:
        session.encoded_credentials = encoded_credentials
        self._authenticator.on_connect_request(session.id, encoded_credentials, now_ms)

    def on_challenge_response(self, session: ClusterSession, encoded_credentials: bytes, now_ms: int) -> None:
        session.encoded_credentials = encoded_credentials
        self._authenticator.on_challenge_response(session.id, encoded_credentials, now_ms)

    def decide(self, session: ClusterSession, now_ms: int) -> None:
        """Ask the authenticator; the session's state says what came of it."""
        if not self.port.is_connected(session.connection_id):
            return
        if session.state is SessionState.CHALLENGED:
            self._authenticator.on_challenged_session(ClientProxy(self, session), now_ms)
        elif session.state < SessionState.CHALLENGED:
            session.state = SessionState.CONNECTED
            self._authenticator.on_connected_session(ClientProxy(self, session), now_ms)

    def accept(self, session: ClusterSession, encoded_principal: bytes) -> None:
        """The client is who it says; what is left is its right to open sessions."""
        session.authenticate(encoded_principal)
        if not self._authorisation.is_authorised(
            CLUSTER.id, SESSION_CONNECT_REQUEST, None, encoded_principal
        ):
            self.refuse(session, encoded_principal, "no right to write", "no right to write")

    def refuse(self, session: ClusterSession, encoded_principal: bytes, told: str, why: str) -> None:
        """``told`` goes to the client, ``why`` to the audit log."""
        session.reject(EventCode.AUTHENTICATION_REJECTED, told)
        self.port.on_refused(session.connection_id, encoded_principal, "to open a session", why)

    def may_resume(
        self, session: ClusterSession, connection_id: int, encoded_credentials: bytes, now_ms: int
    ) -> bool | None:
        """Whether the client of this connection may have the open session; None: not decided, ask again."""
        principal = session.encoded_principal
        name = self.port.certificate_name(connection_id)
        may = self._authenticator.may_resume(principal, encoded_credentials, now_ms, name)
        if may is False:
            what = f"to resume session {session.id}"
            self.port.on_refused(connection_id, principal, what, "its credentials are not the session's")
        return may
