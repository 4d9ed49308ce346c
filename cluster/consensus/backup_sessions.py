"""Sessions for one answer: of backups, and of standbys and their heartbeats (Aeron: SessionManager).

    BackupQuery       ─┐                                        BackupResponse
    HeartbeatRequest  ─┼─ pending ── authenticated, may read ──▶ HeartbeatResponse ── egress closed
    StandbySnapshot   ─┘         │                               nothing
                                 └── refused ──▶ SessionEvent ERROR, AUTHENTICATION_REJECTED

Every established member serves them, a follower as well as a leader (C-21, C-330). None is ever in the log,
nor among the sessions of clients (C-329).
"""

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple, Protocol, TypeAlias

from cluster.consensus.cluster_session import ClusterSession, SessionAction, SessionState
from cluster.consensus.context import ConsensusModuleContext
from cluster.consensus.session_events import KnownLeader
from cluster.consensus.sessions import SessionManager
from cluster.protocol.backup import (
    BackupQuery,
    BackupResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    StandbySnapshot,
)
from cluster.protocol.enums import EventCode
from cluster.protocol.sbe import Message
from cluster.protocol.versions import CLIENT_PROTOCOL_VERSION, major, version_text

BackupRequest: TypeAlias = BackupQuery | HeartbeatRequest | StandbySnapshot

_ACTIONS = {
    BackupQuery: SessionAction.BACKUP,
    HeartbeatRequest: SessionAction.HEARTBEAT,
    StandbySnapshot: SessionAction.STANDBY_SNAPSHOT,
}

# In Aeron all of them are session -1. An authenticator knows its sessions by their ids: clients have
# those from 1 on, readers of the log small negative ones.
_FIRST_SESSION_ID = -(1 << 62)


class BackupPort(Protocol):
    """What is known of the member's files."""

    def backup_response(self, query: BackupQuery) -> BackupResponse | None:
        """What a backup can copy; None before the first term."""

    def on_standby_snapshot(self, snapshot: StandbySnapshot) -> str:
        """A standby has taken a snapshot. Returns why it is not recorded, empty when it will be."""


class _Pending(NamedTuple):
    session: ClusterSession
    request: BackupRequest


class BackupSessions:
    """Those of one member that are not answered yet."""

    def __init__(self, context: ConsensusModuleContext, sessions: SessionManager, port: BackupPort) -> None:
        self._context = context
        self._sessions = sessions
        self._port = port
        self._ids = count(_FIRST_SESSION_ID)
        self._pending: list[_Pending] = []
        self._rejected: list[_Pending] = []

    def on_request(self, connection_id: int, request: BackupRequest, now_ns: int, now_ms: int) -> None:
        """Refuse it, or begin to authenticate whoever makes it."""
        session = ClusterSession(
            next(self._ids),
            correlation_id=request.correlation_id,
            response_stream_id=request.response_stream_id,
            response_channel="",  # it is answered over the connection that it came by
            connection_id=connection_id,
            action=_ACTIONS[type(request)],
            time_of_last_activity_ns=now_ns,
        )
        if (refusal := self._refusal(connection_id, request)) is not None:
            session.reject(EventCode.ERROR, refusal)
            self._rejected.append(_Pending(session, request))
        else:
            self._sessions.admission.on_connect_request(session, bytes(request.encoded_credentials), now_ms)
            self._pending.append(_Pending(session, request))

    def _refusal(self, connection_id: int, request: BackupRequest) -> str | None:
        """Why it is refused, whoever makes it; None when it is not."""
        if not isinstance(request, HeartbeatRequest) and major(request.version) != major(
            CLIENT_PROTOCOL_VERSION
        ):
            return (
                f"invalid client version {version_text(request.version)}, "
                f"cluster is {version_text(CLIENT_PROTOCOL_VERSION)}"
            )
        if sum(1 for _ in self._of(connection_id)) >= self._context.connection_sessions_max:
            return (
                f"{self._context.connection_sessions_max} requests of one connection wait, as many as "
                "connection_sessions_max allows"
            )
        return None

    @property
    def has_pending_work(self) -> bool:
        """Whether the next slow tick may have something to answer."""
        return bool(self._pending or self._rejected)

    def _of(self, connection_id: int) -> Iterator[_Pending]:
        return (
            pending
            for pending in (*self._pending, *self._rejected)
            if pending.session.connection_id == connection_id
        )

    def on_challenge_response(
        self,
        session_id: int,
        correlation_id: int,
        encoded_credentials: bytes,
        now_ns: int,
        now_ms: int,
    ) -> bool:
        """Whether the response belongs to one of these sessions."""
        for session, _ in self._pending:
            if session.id == session_id and session.state is SessionState.CHALLENGED:
                session.correlation_id = correlation_id
                session.time_of_last_activity_ns = now_ns
                self._sessions.admission.on_challenge_response(session, encoded_credentials, now_ms)
                return True
        return False

    def on_disconnect(self, connection_id: int) -> None:
        """Nobody waits for an answer any more."""
        for waiting in (self._pending, self._rejected):
            waiting[:] = [pending for pending in waiting if pending.session.connection_id != connection_id]

    def send_rejections(self, leader: KnownLeader, now_ns: int) -> int:
        """Answer those that were refused; in the slow tick of any phase (C-13)."""
        work_count = 0
        for pending in list(self._rejected):
            if self._sessions.events.is_refusal_over(pending.session, leader, now_ns):
                work_count += self._end(self._rejected, pending)
        return work_count

    def process_pending(self, now_ns: int, now_ms: int) -> int:
        """Take each as far as it goes, newest first; in the slow tick of an established member (C-15)."""
        work_count = 0
        for pending in list(reversed(self._pending)):
            session, request = pending
            self._sessions.admission.decide(session, now_ms)
            if session.state is SessionState.AUTHENTICATED and isinstance(request, StandbySnapshot):
                if not (why := self._port.on_standby_snapshot(request)):
                    work_count += self._end(self._pending, pending)
                    continue
                session.reject(EventCode.ERROR, why)
            if session.state is SessionState.REJECTED:
                self._pending.remove(pending)
                self._rejected.append(pending)
                work_count += 1
            elif self._is_answered(session, request) or self._sessions.events.is_timed_out(session, now_ns):
                work_count += self._end(self._pending, pending)
        return work_count

    def _end(self, waiting: list[_Pending], pending: _Pending) -> int:
        """Forget it, and close its connection unless that waits for another answer; returns 1."""
        waiting.remove(pending)
        connection_id = pending.session.connection_id
        if not any(self._of(connection_id)):
            self._sessions.end_egress(connection_id)
        return 1

    def _is_answered(self, session: ClusterSession, request: BackupRequest) -> bool:
        """Whether the answer went out."""
        port = self._sessions.port
        if session.state is not SessionState.AUTHENTICATED or not port.is_connected(session.connection_id):
            return False
        response = self._response(session, request)
        return response is not None and port.send_egress(session.connection_id, response)

    def _response(self, session: ClusterSession, request: BackupRequest) -> Message | None:
        if isinstance(request, BackupQuery):
            response = self._port.backup_response(request)
            return None if response is None else response.replace(correlation_id=session.correlation_id)
        return HeartbeatResponse(session.correlation_id)
