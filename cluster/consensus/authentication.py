"""Who may open a session, and who may ask for what (io.aeron.security: Authenticator, AuthorisationService).

The hooks run in the duty cycle and must not wait. Both defaults are Aeron's: everyone is welcome under an
empty principal; of the protected requests only those of backups and standbys are allowed.
"""

from typing import Protocol

BACKUP_QUERY = 77
HEARTBEAT_REQUEST = 79
STANDBY_SNAPSHOT = 81
ADMIN_REQUEST = 26


class SessionProxy(Protocol):
    """What an authenticator decides about: one session that is not open yet."""

    @property
    def session_id(self) -> int: ...

    def challenge(self, encoded_challenge: bytes) -> bool:
        """Ask for more; False when it could not be sent now."""
        ...

    def authenticate(self, encoded_principal: bytes) -> bool:
        """Accept the session under this principal, at most 4,096 bytes."""
        ...

    def reject(self) -> None:
        """Refuse the session."""
        ...


class Authenticator(Protocol):
    def on_connect_request(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        """Once, for a request that is not refused for other reasons."""
        ...

    def on_challenge_response(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None: ...

    def on_connected_session(self, session: SessionProxy, now_ms: int) -> None:
        """In every slow tick while the session is connected and not decided."""
        ...

    def on_challenged_session(self, session: SessionProxy, now_ms: int) -> None:
        """In every slow tick while a challenge is not answered or not decided."""
        ...

    def may_resume(self, encoded_principal: bytes, encoded_credentials: bytes, now_ms: int) -> bool:
        """Whether a client with these credentials may take back a session of this principal."""
        ...


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

    def may_resume(self, encoded_principal: bytes, encoded_credentials: bytes, now_ms: int) -> bool:
        return True


class AuthorisationService(Protocol):
    def is_authorised(
        self, schema_id: int, action_id: int, request_type: int | None, encoded_principal: bytes
    ) -> bool:
        """Whether the principal may make this request; ``action_id`` is its template."""
        ...


class AllowBackupAndStandby:
    """The default: requests of backups and standbys, nothing else (so no AdminRequest)."""

    def is_authorised(
        self, schema_id: int, action_id: int, request_type: int | None, encoded_principal: bytes
    ) -> bool:
        return schema_id == 111 and action_id in (BACKUP_QUERY, HEARTBEAT_REQUEST, STANDBY_SNAPSHOT)
