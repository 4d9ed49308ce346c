"""Who may open a session, and who may ask for what (io.aeron.security: Authenticator, AuthorisationService).

The hooks run in the duty cycle and must not wait. By default everyone is welcome under an empty principal,
and may do all but administer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from cluster.protocol import CLUSTER
from cluster.protocol.link import (
    LINK_SCHEMA,
    ControlRequest,
    EventsRequest,
    LogRequest,
    RecordingRequest,
    StatusRequest,
)

SESSION_CONNECT_REQUEST = 3
BACKUP_QUERY = 77
HEARTBEAT_REQUEST = 79
STANDBY_SNAPSHOT = 81
ADMIN_REQUEST = 26


class SessionProxy(Protocol):
    """The session, not open yet, that an authenticator decides about."""

    @property
    def session_id(self) -> int: ...

    @property
    def encoded_credentials(self) -> bytes:
        """What the client sent last, in its connect request or as an answer to a challenge."""

    @property
    def certificate_name(self) -> str | None:
        """The common name in the client's certificate, verified by TLS; None without one."""

    def challenge(self, encoded_challenge: bytes) -> bool:
        """Ask the client for more; False if the challenge could not be sent now."""

    def authenticate(self, encoded_principal: bytes) -> bool:
        """Accept the session under this principal, of at most 4,096 bytes."""

    def reject(self, reason: str = ...) -> None:
        """Refuse the session. The reason goes to the audit log, not to the client."""


class Authenticator(Protocol):
    """Decides which clients may open sessions (io.aeron.security.Authenticator)."""

    def on_connect_request(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        """Called once for each connect request that is not refused for other reasons."""

    def on_challenge_response(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        """The client has answered a challenge."""

    def on_connected_session(self, session: SessionProxy, now_ms: int) -> None:
        """Called in every slow tick while the session is connected and undecided."""

    def on_challenged_session(self, session: SessionProxy, now_ms: int) -> None:
        """Called in every slow tick while a challenge is unanswered or undecided."""

    def may_resume(
        self,
        encoded_principal: bytes,
        encoded_credentials: bytes,
        now_ms: int,
        certificate_name: str | None,
    ) -> bool | None:
        """Whether this client may resume a session of this principal; None: ask again in the next tick."""


class DefaultAuthenticator:
    """Accepts everyone under an empty principal."""

    def on_connect_request(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        pass

    def on_challenge_response(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        pass

    def on_connected_session(self, session: SessionProxy, now_ms: int) -> None:
        session.authenticate(b"")

    def on_challenged_session(self, session: SessionProxy, now_ms: int) -> None:
        session.authenticate(b"")

    def may_resume(
        self,
        encoded_principal: bytes,
        encoded_credentials: bytes,
        now_ms: int,
        certificate_name: str | None,
    ) -> bool | None:
        return True


class AuthorisationService(Protocol):
    """Decides what a principal may do (io.aeron.security.AuthorisationService)."""

    def is_authorised(
        self, schema_id: int, action_id: int, request_type: int | None, encoded_principal: bytes
    ) -> bool:
        """Whether the principal may make this request; ``action_id`` is the request's template id."""


class Right(StrEnum):
    """What a principal may be granted; of which requests each is, ``right_to`` says."""

    WRITE = "write"
    READ = "read"
    ADMIN = "admin"


_RIGHTS = {
    (CLUSTER.id, SESSION_CONNECT_REQUEST): Right.WRITE,
    (CLUSTER.id, BACKUP_QUERY): Right.READ,
    (CLUSTER.id, HEARTBEAT_REQUEST): Right.READ,
    (CLUSTER.id, STANDBY_SNAPSHOT): Right.READ,
    (LINK_SCHEMA.id, LogRequest.TEMPLATE_ID): Right.READ,
    (LINK_SCHEMA.id, RecordingRequest.TEMPLATE_ID): Right.READ,
    (LINK_SCHEMA.id, StatusRequest.TEMPLATE_ID): Right.READ,
    (LINK_SCHEMA.id, EventsRequest.TEMPLATE_ID): Right.READ,
    (CLUSTER.id, ADMIN_REQUEST): Right.ADMIN,
    (LINK_SCHEMA.id, ControlRequest.TEMPLATE_ID): Right.ADMIN,
}


def right_to(schema_id: int, action_id: int) -> Right | None:
    """The right that a request needs; None for one that nobody may make."""
    return _RIGHTS.get((schema_id, action_id))


class AllowAllButAdmin:
    """The default: whoever reaches the member may write and read, and not administer."""

    def is_authorised(
        self, schema_id: int, action_id: int, request_type: int | None, encoded_principal: bytes
    ) -> bool:
        return right_to(schema_id, action_id) in (Right.WRITE, Right.READ)


OnRefused = Callable[[str, bytes, str, str], None]
OnAdministered = OnRefused  # what came of it in place of why not


def _unheard(peer: str, encoded_principal: bytes, what: str, why: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Security:
    """Who may come in, who may do what, and who hears of refusals and of what administrators have had done:
    peer, principal, what, and why or what came of it.
    """

    authenticator: Authenticator
    authorisation: AuthorisationService
    on_refused: OnRefused = _unheard
    on_administered: OnAdministered = _unheard


def open_security() -> Security:
    """That of a member without an authenticator."""
    return Security(DefaultAuthenticator(), AllowAllButAdmin())
