"""Frames of clients (Aeron: IngressAdapter). A run of session messages is one kernel call into the log.

On a member that does not lead, requests to connect or to resume have an effect: a redirect (C-37). Those of
backups have the same one everywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass

from cluster.archive.files import Buffer
from cluster.consensus.backup_sessions import BackupSessions
from cluster.consensus.context import ConsensusModuleContext
from cluster.consensus.replica import ReplicatedState
from cluster.errors import RemoteProtocolError
from cluster.log.frames import DONE, MALFORMED, OTHER_MESSAGE, TOO_LONG, UNLINKED
from cluster.member.clients.client_requests import ClientRequests
from cluster.member.frames import BLOCK
from cluster.member.ports import Clients
from cluster.member.turn import Turn
from cluster.protocol import decode
from cluster.protocol.backup import BackupQuery, HeartbeatRequest, StandbySnapshot
from cluster.protocol.enums import CloseReason
from cluster.protocol.frame import HEADER_LENGTH, header_at
from cluster.protocol.link import AnswersTaken, SessionResume
from cluster.protocol.sbe import kind_at
from cluster.protocol.session import (
    AdminRequest,
    ChallengeResponse,
    SessionCloseRequest,
    SessionConnectRequest,
    SessionKeepAlive,
    SessionMessageHeader,
)

_FOR_LEADERS_ONLY = frozenset({SessionMessageHeader.KIND, SessionKeepAlive.KIND})
_SESSION_MESSAGE = SessionMessageHeader.layout().block
REQUESTS_PER_POLL_MAX = 4  # of one connection: each costs as much as a batch of messages


@dataclass(eq=False)
class IngressAdapter:
    """What ``Clients.poll`` calls; ``forward`` takes a follower's ChallengeResponse to the leader (C-194)."""

    _context: ConsensusModuleContext
    _clients: Clients
    _replica: ReplicatedState
    _requests: ClientRequests
    _backups: BackupSessions
    _turn: Turn
    _forward: Callable[[ChallengeResponse], None]
    _request_count: int = 0  # in this call of on_frames

    def on_connect(self, connection_id: int) -> None:
        session_id = self._clients.dialled_session(connection_id)
        if session_id is not None:
            self._requests.on_dialled(connection_id, session_id)

    def has_session(self, connection_id: int) -> bool:
        return self._replica.sessions.table.count_of(connection_id) > 0

    def on_disconnect(self, connection_id: int) -> None:
        self._replica.sessions.on_disconnect(connection_id)
        self._backups.on_disconnect(connection_id)

    def on_frames(self, connection_id: int, buffer: Buffer, start: int, end: int) -> int | None:
        publication = self._requests.publication
        self._request_count = 0
        while start < end:
            if self._request_count == REQUESTS_PER_POLL_MAX:
                return start
            if publication is not None:
                status, start = publication.append_ingress(
                    buffer,
                    start,
                    end,
                    self._replica.sessions.table,
                    connection_id,
                    self._replica.leadership_term_id,
                    self._replica.cluster_time,
                    self._turn.now_ns,
                )
                if status == DONE:
                    break
                if status == UNLINKED:
                    # Who comes back says so first (SessionResume), and hears from where on to send: this
                    # comes late, from a connection that was given up, and may be in the log already.
                    start += header_at(buffer, start).aligned_length
                    continue
                if status == MALFORMED:
                    self._clients.close(connection_id, "a message that is shorter than its header says")
                    return end
                if status != OTHER_MESSAGE:
                    assert status == TOO_LONG
                    _, session_id, _ = _SESSION_MESSAGE.unpack_from(buffer, start + BLOCK)
                    self._requests.close_session(session_id, CloseReason.SERVICE_ACTION)
            start = self._on_other(connection_id, buffer, start, end, is_leading=publication is not None)
        return None

    def _on_other(self, connection_id: int, buffer: Buffer, start: int, end: int, *, is_leading: bool) -> int:
        """Handle the frame at ``start``; return its end."""
        header = header_at(buffer, start)
        frame_end = start + header.aligned_length
        if header.frame_length < BLOCK or kind_at(buffer, start + HEADER_LENGTH) in _FOR_LEADERS_ONLY:
            return frame_end
        length = header.frame_length - HEADER_LENGTH
        self._request_count += 1
        try:
            message = decode(buffer, start + HEADER_LENGTH, length)
        except RemoteProtocolError as error:
            self._clients.close(connection_id, str(error))
            return end
        if message is not None and length > self._context.request_length_max:
            self._requests.refuse(connection_id, message, length)
            return end
        match message:
            case SessionConnectRequest():
                self._requests.on_session_connect(connection_id, message)
            case SessionResume():
                self._requests.on_session_resume(connection_id, message)
            case AnswersTaken():
                self._requests.on_answers_taken(connection_id, message)
            case SessionCloseRequest() if is_leading:
                session = self._replica.sessions.sessions.get(message.cluster_session_id)
                if (
                    session is not None
                    and session.connection_id == connection_id
                    and message.leadership_term_id == self._replica.leadership_term_id
                ):
                    self._requests.close_session(session.id, CloseReason.CLIENT_ACTION)
            case BackupQuery() | HeartbeatRequest() | StandbySnapshot():
                self._backups.on_request(connection_id, message, self._turn.now_ns, self._turn.now_ms)
                self._turn.hasten_slow_tick()
            case ChallengeResponse() if self._is_of_backup(message):
                self._turn.hasten_slow_tick()
            case ChallengeResponse() if is_leading:
                self._requests.on_challenge_response(message)
            case ChallengeResponse():
                self._forward(message)
            case AdminRequest() if is_leading:
                self._requests.on_admin_request(connection_id, message)
        return frame_end

    def _is_of_backup(self, response: ChallengeResponse) -> bool:
        return self._backups.on_challenge_response(
            response.cluster_session_id,
            response.correlation_id,
            bytes(response.encoded_credentials),
            self._turn.now_ns,
            self._turn.now_ms,
        )
