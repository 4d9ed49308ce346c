"""What clients ask for besides sending messages: to connect, to resume, to close, to administer."""

from typing import TYPE_CHECKING

from cluster.consensus.authentication import ADMIN_REQUEST
from cluster.consensus.cluster_session import ClusterSession
from cluster.consensus.context import NULL_VALUE
from cluster.member.frames import egress_frame
from cluster.protocol import CLUSTER
from cluster.protocol.enums import AdminResponseCode, CloseReason, ClusterControlToggle, EventCode
from cluster.protocol.link import SessionResume, SessionResumed
from cluster.protocol.log import SessionCloseEvent, SessionOpenEvent
from cluster.protocol.sbe import Message
from cluster.protocol.session import (
    AdminRequest,
    AdminResponse,
    ChallengeResponse,
    SessionConnectRequest,
    SessionEvent,
)
from cluster.protocol.versions import CLIENT_PROTOCOL_VERSION
from cluster.transport.message_frames import link_frame

if TYPE_CHECKING:
    from cluster.member.agent import ConsensusModuleAgent


class ClientRequests:
    """The session manager's way into the log and to the clients, and the requests that lead there."""

    def __init__(self, agent: "ConsensusModuleAgent") -> None:
        self._agent = agent

    # ---- what the session manager calls

    def append_session_open(self, session: ClusterSession) -> int:
        agent = self._agent
        publication = agent.publication
        assert publication is not None
        event = SessionOpenEvent(
            leadership_term_id=agent.replica.leadership_term_id,
            correlation_id=session.correlation_id,
            cluster_session_id=session.id,
            timestamp=agent.replica.cluster_time,
            response_stream_id=session.response_stream_id,
            response_channel=session.response_channel,
            encoded_principal=session.encoded_principal,
        )
        return publication.append(event.encode())

    def append_session_close(self, session: ClusterSession, reason: CloseReason) -> int:
        agent = self._agent
        publication = agent.publication
        assert publication is not None
        event = SessionCloseEvent(
            agent.replica.leadership_term_id, session.id, agent.replica.cluster_time, reason
        )
        return publication.append(event.encode())

    def is_connected(self, connection_id: int) -> bool:
        return self._agent.clients.is_connected(connection_id)

    def send_egress(self, connection_id: int, message: Message) -> bool:
        return self._agent.clients.send(connection_id, egress_frame(message)) > 0

    def close_egress(self, connection_id: int) -> None:
        self._agent.clients.close(connection_id)

    # ---- requests

    def on_session_connect(self, connection_id: int, request: SessionConnectRequest) -> None:
        agent = self._agent
        agent.replica.sessions.on_connect_request(
            connection_id,
            request,
            is_leader=agent.leading is not None,
            now_ns=agent.now_ns,
            now_ms=agent.now_ms,
        )
        agent.hasten_slow_tick()

    def on_session_resume(self, connection_id: int, request: SessionResume) -> None:
        """A client is back, here or from another leader (protocol/link.py: SessionResume)."""
        agent = self._agent
        session_id = request.cluster_session_id
        if agent.active_publication is None:
            detail = agent.context.ingress_endpoints
            self._send_event(connection_id, request, EventCode.REDIRECT, detail)
            return
        session = agent.replica.sessions.find_resumed(request, agent.now_ms)
        if session is None:
            detail = f"session {session_id} is not open, or not this client's"
            self._send_event(connection_id, request, EventCode.CLOSED, detail)
            if session_id != NULL_VALUE:  # else it connects now
                agent.replica.sessions.end_egress(connection_id)
            return
        if request.correlation_id < session.resume_correlation_id:
            return  # delayed on a connection that the client gave up: it must not get its session back there
        session.resume_correlation_id = request.correlation_id
        has_heard_ok = session_id != NULL_VALUE
        agent.replica.sessions.link(
            session, connection_id, agent.replica.cluster_time, has_heard_ok=has_heard_ok
        )
        if has_heard_ok:
            self._tell_resumed(connection_id, request)
        else:
            agent.hasten_slow_tick()

    def _tell_resumed(self, connection_id: int, request: SessionResume) -> None:
        agent = self._agent
        session_id = request.cluster_session_id
        table = agent.replica.sessions.table
        appended = int(table.slots["appended"][table.slot_of(session_id)])
        resumed = SessionResumed(
            correlation_id=request.correlation_id,
            cluster_session_id=session_id,
            leadership_term_id=agent.replica.leadership_term_id,
            appended_messages=appended,
            leader_member_id=agent.context.member_id,
            ingress_endpoints=agent.context.ingress_endpoints,
        )
        agent.clients.send(connection_id, link_frame(resumed))
        agent.egress.acknowledge(session_id, agent.replica.leadership_term_id)

    def refuse(self, connection_id: int, request: Message, length: int) -> None:
        """A message that is none for the services is too long: its client is told so and cut off."""
        length_max = self._agent.context.request_length_max
        detail = f"a {type(request).__name__} of {length} bytes, at most {length_max} go (request_length_max)"
        self._send_event(connection_id, request, EventCode.ERROR, detail)
        self._agent.clients.close(connection_id, detail)

    def _send_event(self, connection_id: int, request: Message, code: EventCode, detail: str) -> None:
        agent = self._agent
        event = SessionEvent(
            cluster_session_id=getattr(request, "cluster_session_id", NULL_VALUE),
            correlation_id=getattr(request, "correlation_id", NULL_VALUE),
            leadership_term_id=agent.replica.leadership_term_id,
            leader_member_id=agent.leader_member_id,
            code=code,
            version=CLIENT_PROTOCOL_VERSION,
            leader_heartbeat_timeout_ns=agent.context.leader_heartbeat_timeout_ns,
            detail=detail,
        )
        self.send_egress(connection_id, event)

    def close_session(self, session_id: int, reason: CloseReason) -> None:
        """On an active leader."""
        agent = self._agent
        agent.replica.sessions.close(
            session_id, reason, agent.replica.leadership_term_id, agent.context.member_id
        )

    def on_service_close_session(self, session_id: int) -> None:
        """A service wants a session closed: logged by an active leader, remembered by all others (C-235)."""
        agent = self._agent
        if agent.active_publication is not None:
            self.close_session(session_id, CloseReason.SERVICE_ACTION)
        else:
            agent.replica.sessions.mark_closing(session_id, CloseReason.SERVICE_ACTION)

    def on_service_failed(self, session_id: int, detail: str) -> None:
        """A service raised on an entry of the session: its client, which may wait for an answer, is told.

        Where to read more, and not what: that may be nothing for a client.
        """
        agent = self._agent
        if agent.leading is not None:
            member_id = agent.context.member_id
            detail += f"; see node.log of member {member_id}"
            agent.replica.sessions.tell_error(session_id, detail, agent.replica.leadership_term_id, member_id)

    def on_challenge_response(self, response: ChallengeResponse) -> None:
        agent = self._agent
        agent.replica.sessions.on_challenge_response(
            response.cluster_session_id,
            response.correlation_id,
            bytes(response.encoded_credentials),
            agent.now_ns,
            agent.now_ms,
        )

    def on_admin_request(self, connection_id: int, request: AdminRequest) -> None:
        """Answered on the session's egress (C-211 to C-214)."""
        agent = self._agent
        session = agent.replica.sessions.sessions.get(request.cluster_session_id)
        if (
            session is None
            or session.connection_id != connection_id
            or request.leadership_term_id != agent.replica.leadership_term_id
        ):
            return
        if agent.authorisation.is_authorised(
            CLUSTER.id, ADMIN_REQUEST, request.request_type, session.encoded_principal
        ):
            toggle = agent.counters.control_toggle
            code, text = AdminResponseCode.OK, ""
            if toggle.get() == ClusterControlToggle.NEUTRAL:
                toggle.set(ClusterControlToggle.SNAPSHOT)
            else:
                code, text = AdminResponseCode.ERROR, "another control action is under way"
        else:
            code, text = AdminResponseCode.UNAUTHORISED_ACCESS, "execution of the request was not authorised"
        response = AdminResponse(
            cluster_session_id=session.id,
            correlation_id=request.correlation_id,
            request_type=request.request_type,
            response_code=code,
            message=text,
        )
        self.send_egress(connection_id, response)
