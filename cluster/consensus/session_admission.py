"""Whether a client may open a session, or take one back: the authenticator's word, then its right.

connect request ── on_connect_request ── decide, in every slow tick ──┬─ AUTHENTICATED
                                           │    ▲                     └─ REJECTED, and one line of audit
                                      challenge └─ on_challenge_response
"""

from typing import Protocol

from cluster.consensus.authentication import (
    ADMIN_REQUEST,
    BACKUP_QUERY,
    HEARTBEAT_REQUEST,
    SESSION_CONNECT_REQUEST,
    STANDBY_SNAPSHOT,
    Security,
    right_to,
)
from cluster.consensus.cluster_session import ClusterSession, SessionAction, SessionState
from cluster.consensus.consumers import ConsumerTable
from cluster.consensus.lanes import LaneTable
from cluster.consensus.session_shares import SessionShares
from cluster.protocol import CLUSTER
from cluster.protocol.consumer import ConsumerPrincipal, group_text, plain_principal, split_consumer
from cluster.protocol.enums import EventCode
from cluster.protocol.lane import Lane, LanePrincipal, LaneStanding, split_lane
from cluster.protocol.sbe import Message
from cluster.protocol.session import ENCODED_PRINCIPAL_LENGTH_MAX, Challenge

# What a session is made for: the request's template, and what is asked for, in the words of the audit log.
_REQUESTS = {
    SessionAction.CLIENT: (SESSION_CONNECT_REQUEST, "to open a session"),
    SessionAction.BACKUP: (BACKUP_QUERY, "to make a backup"),
    SessionAction.HEARTBEAT: (HEARTBEAT_REQUEST, "to have a heartbeat"),
    SessionAction.STANDBY_SNAPSHOT: (STANDBY_SNAPSHOT, "to offer standby snapshots"),
}


class AdmissionPort(Protocol):
    """What is asked of clients' connections."""

    def is_connected(self, connection_id: int) -> bool: ...

    def send_egress(self, connection_id: int, message: Message) -> bool:
        """Whether the connection took the message."""

    def certificate_name(self, connection_id: int) -> str | None:
        """The name in the certificate that the client has shown, verified; None without one."""

    def address(self, connection_id: int) -> str:
        """The client's address in the network; empty over a Unix socket."""

    def on_refused(self, connection_id: int, encoded_principal: bytes, what: str, why: str) -> None:
        """A client was refused: for those who keep watch. ``why`` holds no secret."""


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

    def __init__(
        self, security: Security, port: AdmissionPort, lanes: LaneTable, consumers: ConsumerTable
    ) -> None:
        self.port = port
        self._lanes = lanes
        self._consumers = consumers
        self._authenticator = security.authenticator
        self._authorisation = security.authorisation

    def on_connect_request(self, session: ClusterSession, encoded_credentials: bytes, now_ms: int) -> None:
        session.encoded_credentials, session.lane = split_lane(encoded_credentials)
        if session.lane is None:
            session.encoded_credentials, session.consumer = split_consumer(encoded_credentials)
        self._authenticator.on_connect_request(session.id, session.encoded_credentials, now_ms)

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
        """The client is who it says; what is left is its right to what it asks for."""
        named = self._named(session, encoded_principal)
        if len(named) > ENCODED_PRINCIPAL_LENGTH_MAX >= len(encoded_principal):
            what = "lane" if session.consumer is None else "consumer group"
            detail = (
                f"a principal of {len(named)} bytes with its {what}, "
                f"expected at most {ENCODED_PRINCIPAL_LENGTH_MAX}"
            )
            self.refuse(session, encoded_principal, detail, detail)
            return
        session.authenticate(named)
        if not self._may_forget(session, encoded_principal):
            detail = "no right to admin, which it takes to forget lanes"
            self.refuse(session, encoded_principal, detail, detail)
            return
        template_id, what = _REQUESTS[session.action]
        if not self._authorisation.is_authorised(CLUSTER.id, template_id, None, encoded_principal):
            right = right_to(CLUSTER.id, template_id)
            detail = f"no right to {right}"
            if session.action is not SessionAction.CLIENT:
                detail += f", which it takes {what}"
            self.refuse(session, encoded_principal, detail, f"no right to {right}")

    def _may_forget(self, session: ClusterSession, encoded_principal: bytes) -> bool:
        if session.lane is None or not session.lane.is_forgetting:
            return True
        if not self.port.address(session.connection_id):
            return True  # over a Unix socket: the user who owns the member, and may set its toggles, too
        return self._authorisation.is_authorised(CLUSTER.id, ADMIN_REQUEST, None, encoded_principal)

    def _named(self, session: ClusterSession, encoded_principal: bytes) -> bytes:
        """The principal as it is in the log. Nobody is given a lane or group that he has not asked for."""
        principal = plain_principal(encoded_principal)
        if session.consumer is not None:
            return ConsumerPrincipal(principal, session.consumer, self._consumers.retention).encode()
        return LanePrincipal(principal, session.lane, self._lanes.retention).encode()

    def judge_share(self, session: ClusterSession, shares: SessionShares, taken: int) -> bool:
        """Refuse a session that its principal has too many for, ``taken`` without it; whether it goes on."""
        principal = plain_principal(session.encoded_principal)
        if principal and session.holder != principal:
            if why := shares.refusal(principal, taken):
                session.reject(EventCode.ERROR, why)
            else:
                session.holder = principal  # no more in the share of its address
        return session.state is not SessionState.REJECTED

    def judge_lane(self, session: ClusterSession, lane: Lane, cluster_time: int) -> None:
        """Refuse a lane that is another principal's, or cannot be opened now."""
        principal = plain_principal(session.encoded_principal)
        if not lane.is_forgetting and self._lanes.is_anothers(lane, principal):
            detail = f"application {lane.application} is another principal's"
            self.refuse(session, principal, detail, detail)
        elif refusal := self._lanes.refusal(lane, principal, cluster_time):
            session.reject(EventCode.ERROR, refusal)

    def may_report(self, session: ClusterSession, commit_position: int, cluster_time: int) -> bool:
        """Refuse a report of another principal's group; False, too, while an earlier one is not committed."""
        consumer = session.consumer
        if consumer is None:
            return True
        consumers, principal = self._consumers, plain_principal(session.encoded_principal)
        if consumers.is_anothers(consumer.group, principal, cluster_time):
            detail = f"consumer group {consumer.group} is another principal's"
            self.refuse(session, principal, detail, detail)
        elif refusal := consumers.refusal(consumer, principal, commit_position, cluster_time):
            session.reject(EventCode.ERROR, refusal)
        return session.state is not SessionState.REJECTED and not consumers.is_undecided(consumer.group)

    def open_detail(self, session: ClusterSession) -> str:
        """What is sent with the OK: where its lane or its consumer group is, if it has one."""
        lane = LanePrincipal.decode(session.encoded_principal).lane
        if lane is not None and lane.is_forgetting:
            end = session.opened_log_position
            return LaneStanding(0, end, end, session.id).to_text()
        if (standing := self._lanes.standing(session.id)) is not None:
            return standing.to_text()
        position = self._consumers.position_of(session.encoded_principal)
        return "" if position is None else group_text(position)

    def refuse(self, session: ClusterSession, encoded_principal: bytes, detail: str, why: str) -> None:
        """``told`` goes to the client, ``why`` to the audit log."""
        session.reject(EventCode.AUTHENTICATION_REJECTED, detail)
        _, what = _REQUESTS[session.action]
        self.port.on_refused(session.connection_id, encoded_principal, what, why)

    def may_resume(
        self, session: ClusterSession, connection_id: int, encoded_credentials: bytes, now_ms: int
    ) -> bool | None:
        """Whether the client of this connection may have the open session; None: not decided, ask again."""
        principal = plain_principal(session.encoded_principal)
        name = self.port.certificate_name(connection_id)
        may = self._authenticator.may_resume(principal, encoded_credentials, now_ms, name)
        if may is False:
            what = f"to resume session {session.id}"
            self.port.on_refused(connection_id, principal, what, "its credentials are not the session's")
        return may
