"""What clients hear of their sessions by SessionEvent, refusals among it; those of backups, too."""

from typing import NamedTuple

from cluster.consensus.cluster_session import ClusterSession
from cluster.consensus.context import NULL_VALUE, ConsensusModuleContext
from cluster.consensus.session_admission import AdmissionPort
from cluster.protocol.enums import EventCode
from cluster.protocol.session import SessionEvent
from cluster.protocol.versions import CLIENT_PROTOCOL_VERSION


class KnownLeader(NamedTuple):
    """The leader of a term; NULL_VALUE where none is known."""

    leadership_term_id: int
    member_id: int


class SessionEvents:
    """Sends them. What is sent to a session without a connection is not taken."""

    def __init__(self, context: ConsensusModuleContext, port: AdmissionPort) -> None:
        self._context = context
        self._port = port

    def send(self, session: ClusterSession, code: EventCode, detail: str, leader: KnownLeader) -> bool:
        """Whether the connection took the event."""
        if session.connection_id == NULL_VALUE:
            return False
        event = self.event(session.id, session.correlation_id, code, detail, leader)
        return self._port.send_egress(session.connection_id, event)

    def event(
        self, session_id: int, correlation_id: int, code: EventCode, detail: str, leader: KnownLeader
    ) -> SessionEvent:
        return SessionEvent(
            cluster_session_id=session_id,
            correlation_id=correlation_id,
            leadership_term_id=leader.leadership_term_id,
            leader_member_id=leader.member_id,
            code=code,
            version=CLIENT_PROTOCOL_VERSION,
            leader_heartbeat_timeout_ns=self._context.leader_heartbeat_timeout_ns,
            detail=detail,
        )

    def is_refusal_over(self, session: ClusterSession, leader: KnownLeader, now_ns: int) -> bool:
        """Whether the client of a refused session has the reason, or has not taken it for too long."""
        assert session.event_code is not None
        is_sent = self._port.is_connected(session.connection_id) and self.send(
            session, session.event_code, session.detail, leader
        )
        return is_sent or self.is_timed_out(session, now_ns)

    def is_timed_out(self, session: ClusterSession, now_ns: int) -> bool:
        """Whether a session that is not open has waited too long."""
        return now_ns > session.time_of_last_activity_ns + self._context.session_timeout_ns
