"""What the sessions need of their member: a leader's log to write into, and the connections of clients."""

from collections.abc import Callable
from dataclasses import dataclass

from cluster.consensus.authentication import Security
from cluster.consensus.cluster_session import ClusterSession
from cluster.consensus.context import ConsensusModuleContext
from cluster.member.frames import egress_frame
from cluster.member.log.member_log import MemberLog
from cluster.member.log.publication import LogPublication
from cluster.member.ports import Clients
from cluster.protocol.enums import CloseReason
from cluster.protocol.log import SessionCloseEvent, SessionOpenEvent
from cluster.protocol.sbe import Message


@dataclass(eq=False)
class SessionOutlet:
    """The ``SessionPort`` of a member (consensus/sessions.py)."""

    _clients: Clients
    _log: MemberLog
    _term_and_time: Callable[[], tuple[int, int]]  # of the log's next entry
    _security: Security
    _context: ConsensusModuleContext

    @property
    def publication(self) -> LogPublication | None:
        return self._log.publication

    def append_session_open(self, session: ClusterSession) -> int:
        leadership_term_id, cluster_time = self._term_and_time()
        event = SessionOpenEvent(
            leadership_term_id=leadership_term_id,
            correlation_id=session.correlation_id,
            cluster_session_id=session.id,
            timestamp=cluster_time,
            response_stream_id=session.response_stream_id,
            response_channel=session.response_channel,
            encoded_principal=session.encoded_principal,
        )
        return self._append(event)

    def append_session_close(self, session: ClusterSession, reason: CloseReason) -> int:
        leadership_term_id, cluster_time = self._term_and_time()
        return self._append(SessionCloseEvent(leadership_term_id, session.id, cluster_time, reason))

    def _append(self, event: Message) -> int:
        publication = self._log.publication
        assert publication is not None, "only a leader opens and closes sessions"
        return publication.append(event.encode())

    def ingress_endpoints(self, connection_id: int) -> str:
        tcp = self._context.tcp_ingress_endpoints
        return tcp if tcp and self._clients.is_over_tcp(connection_id) else self._context.ingress_endpoints

    def is_connected(self, connection_id: int) -> bool:
        return self._clients.is_connected(connection_id)

    def certificate_name(self, connection_id: int) -> str | None:
        return self._clients.certificate_name(connection_id)

    def address(self, connection_id: int) -> str:
        return self._clients.address(connection_id)

    def on_refused(self, connection_id: int, encoded_principal: bytes, what: str, why: str) -> None:
        self._security.on_refused(self._peer(connection_id), encoded_principal, what, why)

    def on_administered(self, connection_id: int, encoded_principal: bytes, what: str, outcome: str) -> None:
        """A client had the right to have something done."""
        self._security.on_administered(self._peer(connection_id), encoded_principal, what, outcome)

    def _peer(self, connection_id: int) -> str:
        return self._clients.address(connection_id) or "this host"

    def send_egress(self, connection_id: int, message: Message) -> bool:
        return self.send(connection_id, egress_frame(message))

    def send(self, connection_id: int, frame: bytes) -> bool:
        """Whether the connection took the frame."""
        return self._clients.send(connection_id, frame) > 0

    def close_egress(self, connection_id: int) -> None:
        self._clients.close(connection_id)

    def dial(self, session: ClusterSession) -> None:
        self._clients.dial(session.id, session.response_channel, session.response_stream_id)

    def cut_off(self, connection_id: int, why: str) -> None:
        """Close the connection of a client that asks for too much, once what was sent is out."""
        self._clients.close(connection_id, why)
