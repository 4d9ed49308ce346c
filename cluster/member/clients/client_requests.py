"""What clients ask for besides sending messages: to connect, to resume, to close, to administer."""

from dataclasses import dataclass, field

from cluster.consensus.authentication import ADMIN_REQUEST, AuthorisationService
from cluster.consensus.cluster_session import ClusterSession, SessionState
from cluster.consensus.context import NULL_VALUE, ConsensusModuleContext
from cluster.consensus.replica import ReplicatedState
from cluster.consensus.session_events import KnownLeader
from cluster.member.clients.egress_publisher import EgressPublisher
from cluster.member.clients.session_outlet import SessionOutlet
from cluster.member.control import Toggles
from cluster.member.log.publication import LogPublication
from cluster.member.log.room import LogRoom
from cluster.member.status import MemberStatus
from cluster.member.turn import Turn
from cluster.protocol import CLUSTER
from cluster.protocol.consumer import plain_principal
from cluster.protocol.enums import (
    AdminRequestType,
    AdminResponseCode,
    CloseReason,
    ClusterControlToggle,
    EventCode,
)
from cluster.protocol.link import AnswersTaken, SessionResume, SessionResumed
from cluster.protocol.sbe import Message
from cluster.protocol.session import (
    AdminRequest,
    AdminResponse,
    ChallengeResponse,
    SessionConnectRequest,
)
from cluster.transport.message_frames import link_frame


@dataclass(eq=False)
class ClientRequests:
    """Answers requests of clients, and what services ask for on behalf of them."""

    _context: ConsensusModuleContext
    _outlet: SessionOutlet
    _replica: ReplicatedState
    _status: MemberStatus
    _egress: EgressPublisher
    _toggles: Toggles
    authorisation: AuthorisationService
    _room: LogRoom
    _turn: Turn
    _undecided: dict[int, SessionResume] = field(default_factory=dict)  # by connection, one each

    def __post_init__(self) -> None:
        self._sessions = self._replica.sessions

    @property
    def publication(self) -> LogPublication | None:
        """Where ingress goes; None while this member does not lead, or takes none."""
        publication = self._outlet.publication
        if publication is None or publication.is_full or not self._status.takes_input:
            return None
        return publication

    def report_full(self) -> None:
        """On a leader whose log has no more room: its clients hear why nothing of theirs is taken."""
        for session_id in self._sessions.sessions:
            self._report_error(session_id, self._room.refusal)

    def on_session_connect(self, connection_id: int, request: SessionConnectRequest) -> None:
        if self._status.is_leading and self._room.is_full:
            self._send_event(connection_id, request, EventCode.ERROR, self._room.refusal)
            self._sessions.end_egress(connection_id)
            return
        self._sessions.on_connect_request(
            connection_id,
            request,
            is_leader=self._status.is_leading,
            now_ns=self._turn.now_ns,
            now_ms=self._turn.now_ms,
        )
        self._turn.hasten_slow_tick()

    def on_session_resume(self, connection_id: int, request: SessionResume) -> None:
        """A client is back, here or from another leader (protocol/link.py: SessionResume)."""
        session_id = request.cluster_session_id
        if self.publication is None:
            detail = self._outlet.ingress_endpoints(connection_id)
            self._send_event(connection_id, request, EventCode.REDIRECT, detail)
            return
        session = self._sessions.find_resumed(request)
        may = session is not None and self._may_resume(session, connection_id, request)
        if may is None:
            self._undecided[connection_id] = request
            return
        if session is None or not may:
            detail = f"session {session_id} is not open, or not this client's"
            self._send_event(connection_id, request, EventCode.CLOSED, detail)
            if session_id != NULL_VALUE:  # else it connects now
                self._sessions.end_egress(connection_id)
            return
        if request.correlation_id < session.resume_correlation_id:
            return  # delayed on a connection that the client gave up: it must not get its session back there
        session.resume_correlation_id = request.correlation_id
        has_heard_ok = session_id != NULL_VALUE
        self._sessions.link(session, connection_id, self._turn.now_ns, has_heard_ok=has_heard_ok)
        if has_heard_ok:
            self._report_resumed(connection_id, request)
        else:
            self._turn.hasten_slow_tick()

    def on_dialled(self, connection_id: int, session_id: int) -> None:
        """The client of an open session, which cannot come by itself, is reached over this connection."""
        session = self._sessions.sessions.get(session_id)
        if session is None or session.state is not SessionState.OPEN or not self._status.is_leading:
            self._outlet.close_egress(connection_id)
            return
        session.has_new_leader_event_pending = True
        self._sessions.link(session, connection_id, self._turn.now_ns, has_heard_ok=False)
        self._turn.hasten_slow_tick()

    def _may_resume(self, session: ClusterSession, connection_id: int, request: SessionResume) -> bool | None:
        credentials = bytes(request.encoded_credentials)
        return self._sessions.admission.may_resume(session, connection_id, credentials, self._turn.now_ms)

    @property
    def has_undecided(self) -> bool:
        """Whether the credentials of somebody who came back are still looked at."""
        return bool(self._undecided)

    def retry_resumes(self) -> None:
        """Ask again for the clients whose credentials were not decided about yet."""
        undecided, self._undecided = self._undecided, {}
        for connection_id, request in undecided.items():
            if self._outlet.is_connected(connection_id):
                self.on_session_resume(connection_id, request)

    def on_answers_taken(self, connection_id: int, message: AnswersTaken) -> None:
        """A client of a supervised session says which answers it has."""
        supervision, now_ns = self._egress.supervision, self._turn.now_ns
        if self._status.is_leading and supervision.on_taken(connection_id, message, now_ns):
            self._report_resumed(connection_id, message)

    def close_lost(self) -> None:
        """On an active leader: close the sessions whose clients cannot have all their answers any more."""
        for session_id in self._replica.answers.lost():
            self.close_session(session_id, CloseReason.TIMEOUT)

    def _report_resumed(self, connection_id: int, request: SessionResume | AnswersTaken) -> None:
        session_id = request.cluster_session_id
        table = self._sessions.table
        appended = int(table.slots["appended"][table.slot_of(session_id)])
        resumed = SessionResumed(
            correlation_id=request.correlation_id,
            cluster_session_id=session_id,
            leadership_term_id=self._replica.leadership_term_id,
            appended_messages=appended,
            leader_member_id=self._context.member_id,
            ingress_endpoints=self._outlet.ingress_endpoints(connection_id),
        )
        self._outlet.send(connection_id, link_frame(resumed))
        self._egress.acknowledge(session_id)

    def refuse(self, connection_id: int, request: Message, length: int) -> None:
        """Another message than a service's is too long: its client gets an error and is cut off."""
        length_max = self._context.request_length_max
        what = f"a {type(request).__name__} of {length} bytes"
        detail = f"{what}, expected at most {length_max} (request_length_max)"
        self._send_event(connection_id, request, EventCode.ERROR, detail)
        self._outlet.cut_off(connection_id, detail)

    def _send_event(self, connection_id: int, request: Message, code: EventCode, detail: str) -> None:
        session_id = getattr(request, "cluster_session_id", NULL_VALUE)
        correlation_id = getattr(request, "correlation_id", NULL_VALUE)
        leader = KnownLeader(self._replica.leadership_term_id, self._status.leader_member_id)
        event = self._sessions.events.event(session_id, correlation_id, code, detail, leader)
        self._outlet.send_egress(connection_id, event)

    def close_session(self, session_id: int, reason: CloseReason) -> None:
        """On an active leader."""
        self._sessions.close(session_id, reason, self._this_leader)

    def on_service_close_session(self, session_id: int) -> None:
        """A service wants a session closed: logged by an active leader, remembered by all (C-235)."""
        if self.publication is not None:
            self.close_session(session_id, CloseReason.SERVICE_ACTION)
        self._sessions.mark_closing(session_id, CloseReason.SERVICE_ACTION)

    def on_service_failed(self, session_id: int, detail: str) -> None:
        """A service raised on an entry of the session: its client hears of it, and where to read more."""
        if self._status.is_leading:
            self._report_error(session_id, f"{detail}; see node.log of member {self._context.member_id}")

    def _report_error(self, session_id: int, detail: str) -> None:
        self._sessions.report_error(session_id, detail, self._this_leader)

    @property
    def _this_leader(self) -> KnownLeader:
        return KnownLeader(self._replica.leadership_term_id, self._context.member_id)

    def on_challenge_response(self, response: ChallengeResponse) -> None:
        self._sessions.on_challenge_response(
            response.cluster_session_id,
            response.correlation_id,
            bytes(response.encoded_credentials),
            self._turn.now_ns,
            self._turn.now_ms,
        )

    def on_admin_request(self, connection_id: int, request: AdminRequest) -> None:
        """Answered on the session's egress (C-211 to C-214)."""
        session = self._sessions.sessions.get(request.cluster_session_id)
        if (
            session is None
            or session.connection_id != connection_id
            or request.leadership_term_id != self._replica.leadership_term_id
        ):
            return
        code, text = self._administer(session, request)
        response = AdminResponse(
            cluster_session_id=session.id,
            correlation_id=request.correlation_id,
            request_type=request.request_type,
            response_code=code,
            message=text,
        )
        self._outlet.send_egress(connection_id, response)

    def _administer(self, session: ClusterSession, request: AdminRequest) -> tuple[AdminResponseCode, str]:
        kind = request.request_type
        principal = plain_principal(session.encoded_principal)
        if not self.authorisation.is_authorised(CLUSTER.id, ADMIN_REQUEST, kind, principal):
            self._outlet.on_refused(session.connection_id, principal, "to administer", "no right to admin")
            return AdminResponseCode.UNAUTHORISED_ACCESS, "execution of the request was not authorised"
        if kind != AdminRequestType.SNAPSHOT:
            return AdminResponseCode.ERROR, f"request type {kind} is not known, expected SNAPSHOT"
        is_taken = self._toggles.request(ClusterControlToggle.SNAPSHOT)
        why_not = "" if is_taken else "another control action is under way"
        self._outlet.on_administered(session.connection_id, principal, "SNAPSHOT", why_not or "begun")
        return AdminResponseCode.OK if is_taken else AdminResponseCode.ERROR, why_not
