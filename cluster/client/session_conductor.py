"""How a session stays with the cluster's leader: the inside of a client, with no threads and no listeners.

    CONNECTED -- connection lost ----> AWAIT_NEW_LEADER             -- session resumed --> CONNECTED
        |                                                           -- time-out --------> CLOSED
        |------- NewLeaderEvent -----> AWAIT_NEW_LEADER_CONNECTION  -- likewise
        |------- SessionEvent CLOSED -> PENDING_CLOSE               -- next poll -------> CLOSED

Aeron's client leaves what was in flight when a leader died to its application. This one keeps every message
until the cluster says that it is committed, asks the new leader how many it holds, and sends the rest: each
message is in the log once, in the order offered, as long as the session lives. Egress is Aeron's: what a
leader had not delivered when it died is not sent again by the next one, unless the session is supervised.

A supervised session reports to its leader which answers it has. A leader that keeps too many of them says so
(SessionRetained): the window pauses, and goes on from where the leader's log ends once there is room again.
"""

from enum import Enum
from itertools import count

from cluster.client.answer_progress import AnswerProgress
from cluster.client.connecting import SessionOpening
from cluster.client.context import ClientContext
from cluster.client.egress_adapter import EgressAdapter
from cluster.client.ingress_publication import IngressPublication, World
from cluster.client.requests import Requests
from cluster.client.retained_egress import RetainedEgress
from cluster.client.window import UnacknowledgedWindow
from cluster.errors import ClientClosed, ClusterError, RemoteProtocolError
from cluster.log.frames import SESSION_HEADER_LENGTH
from cluster.protocol import Message, link, streams
from cluster.protocol.enums import EventCode
from cluster.protocol.session import (
    AdminResponse,
    NewLeaderEvent,
    SessionCloseRequest,
    SessionEvent,
    SessionKeepAlive,
)
from cluster.transport.endpoint import Endpoint, format_endpoints

SEND_ATTEMPTS = 3
# Between two requests for the session at one member: half as long as it is sought already, within bounds.
RESUME_INTERVAL_MIN_NS = 10_000_000
RESUME_INTERVAL_MAX_NS = 100_000_000
WAIT_S = 0.01
CLOSE_SILENCE_NS = 1_000_000_000  # of a leader that is asked to close: it is waited for no longer


class ClientState(Enum):
    """How a client stands (AeronCluster.State)."""

    CONNECTED = "connected"
    AWAIT_NEW_LEADER = "await new leader"
    AWAIT_NEW_LEADER_CONNECTION = "await new leader connection"
    AWAIT_NEW_SESSION = "await new session"  # of a client with ``reopen``
    PENDING_CLOSE = "pending close"
    CLOSED = "closed"


class SessionConductor:
    """One session, from the request that opened it to its end. One thread at a time turns it."""

    def __init__(
        self,
        context: ClientContext,
        world: World,
        opening: SessionOpening,
        retained: RetainedEgress,
        requests: Requests,
    ) -> None:
        """Take over what an attempt opened; ``retained`` gets what ``requests`` do not wait for."""
        assert opening.event is not None and opening.publication is not None
        event = opening.event
        self._context = context
        self._keep_alive_ns = context.keep_alive_interval_ns
        self._world = world
        self._retained = retained
        self._requests = requests
        self._publications = opening.publications
        self._publication: IngressPublication | None = opening.publication
        self.window = UnacknowledgedWindow(
            event.cluster_session_id, event.leadership_term_id, context.window_bytes
        )
        self._taken = AnswerProgress() if context.supervised else None
        self._egress = EgressAdapter(event.cluster_session_id, retained, requests, self._taken)
        self._retained_correlation_id = -1
        self._correlation_ids = count(opening.correlation_id + 1)
        self._resume_token = opening.resume_token
        self.payload_length_max = opening.publication.message_length_max - SESSION_HEADER_LENGTH
        self._new_leader_timeout_ns = context.new_leader_timeout_ns(event.leader_heartbeat_timeout_ns)
        self._deadline_ns = 0  # of the state, where it has one
        self._lost_ns = 0  # when the leader was lost that is sought
        self._resume_correlation_id = 0
        self._reported_term_id = event.leadership_term_id  # the last that the listener knows of
        self.last_sent_ns = self._last_heard_ns = world.now_ns()
        self._silence_ns = context.silence_timeout_ns(event.leader_heartbeat_timeout_ns)
        self._probed_ns: int | None = None  # when a silent leader was asked for a sign of life
        self._is_resume_asked = False
        self.state = ClientState.CONNECTED
        self.cluster_session_id = event.cluster_session_id
        self.leader_member_id = event.leader_member_id
        self.committed_position = -1  # log position after the last message known to be committed
        self.why_closed = ""
        if any(member_id < 0 for member_id in context.endpoints):
            self._ask_to_resume(opening.publication)  # the answer names the members that were not given

    @property
    def leadership_term_id(self) -> int:
        return self.window.leadership_term_id

    @property
    def leader_endpoint(self) -> Endpoint:
        """Where the leader is reached. Raises ClusterError where no member has reported that."""
        endpoints = self._publications.endpoints
        if (endpoint := endpoints.get(self.leader_member_id)) is None:
            raise ClusterError(
                f"leader {self.leader_member_id} has no endpoint of a medium that this client uses; "
                f"known are {format_endpoints(endpoints)}"
            )
        return endpoint

    @property
    def has_frames(self) -> bool:
        """Whether received bytes wait that were not looked at."""
        return self._publication is not None and self._publication.connection.has_frames

    @property
    def is_closed(self) -> bool:
        return self.state is ClientState.CLOSED

    # -- sending --

    def flush(self) -> None:
        """Write what waits in the window; a broken connection is noticed here."""
        publication = self._publication
        assert publication is not None
        now_ns = self._world.now_ns()
        written = self.window.flush(publication.connection)
        if written > 0:
            self.last_sent_ns = now_ns
        elif written < 0:
            self._lose_leader(now_ns)

    def flush_offered(self) -> None:
        """The same where it can be now."""
        if self.state is ClientState.CONNECTED and not self.window.is_flushed:
            self.flush()

    def send(self, message: Message) -> bool:
        """Send a message that the window does not keep, between those that it does; False if not now."""
        publication = self._publication
        self.flush_offered()
        if self.state is not ClientState.CONNECTED or publication is None or not self.window.is_flushed:
            return False
        return any(publication.offer(message) > 0 for _ in range(SEND_ATTEMPTS))

    def send_keep_alive(self) -> bool:
        """Keep the session open without a message; False when it could not be sent now."""
        if self.state is ClientState.CONNECTED and not self.window.is_flushed:
            self.flush()  # messages keep it alive as well
            return self.state is ClientState.CONNECTED
        is_sent = self.send(SessionKeepAlive(self.leadership_term_id, self.cluster_session_id))
        if is_sent:
            self.last_sent_ns = self._world.now_ns()
        return is_sent

    # -- the duty cycle --

    def poll(self, *, is_receiving: bool) -> None:
        """Take a turn, which hears if ``is_receiving``. Whatever is raised ends the session."""
        try:
            self._poll(is_receiving=is_receiving)
        except Exception as error:
            self.end(f"{type(error).__name__}: {error}")
            raise

    def _poll(self, *, is_receiving: bool) -> None:
        self.flush_offered()
        publication, now_ns = self._publication, self._world.now_ns()
        state = self.state
        may_receive = is_receiving and state is not ClientState.PENDING_CLOSE
        is_calm = may_receive and state is ClientState.CONNECTED and self.window.is_flushed
        # Who has waited need not ask first which socket has something.
        if publication is None or not (is_calm and self._receive(publication, now_ns)):
            if publication is None or not publication.connection.is_readable:
                self._world.poll()
            if may_receive and publication is not None:
                connection = publication.connection
                if connection.is_readable or connection.has_frames:
                    self._receive(publication, now_ns)
                if publication is self._publication and connection.is_closed and not connection.has_frames:
                    self._lose_leader(now_ns)
        self._do_work(now_ns)

    def rest_s(self) -> float:
        """How long it may be left alone: until a keep-alive is due, hardly with much to send or no leader."""
        is_calm = self.state is ClientState.CONNECTED and self.window.is_flushed
        if not is_calm or self._keep_alive_ns is None:
            return WAIT_S
        now_ns = self._world.now_ns()
        rest_ns = self.last_sent_ns + self._keep_alive_ns - now_ns
        if (say_ns := self._say_rest_ns(now_ns)) is not None:
            rest_ns = min(rest_ns, say_ns)
        return max(rest_ns / 1e9, WAIT_S)

    def _do_work(self, now_ns: int) -> None:
        match self.state:
            case ClientState.CONNECTED:
                if self._taken is not None and self._say_rest_ns(now_ns) == 0:
                    self._say_taken(now_ns)
                self.flush_offered()
                interval_ns = self._keep_alive_ns
                if interval_ns is not None and now_ns - self.last_sent_ns >= interval_ns:
                    self.send_keep_alive()
                if self._publication is not None:  # else it was lost just now
                    self._probe_leader(now_ns)
            case ClientState.AWAIT_NEW_LEADER:
                self._seek_leader(now_ns)
            case ClientState.AWAIT_NEW_LEADER_CONNECTION:
                self._resume_here()
                if now_ns > self._deadline_ns:
                    self.end(f"leader {self.leader_member_id} did not take the session up again in time")
            case ClientState.PENDING_CLOSE:
                self.end(self.why_closed)

    # -- hearing --

    def _receive(self, publication: IngressPublication, now_ns: int) -> bool:
        """Take what has come; whether there was something."""
        connection, is_heard = publication.connection, False
        try:
            if connection.receive():
                is_heard = True
                self._last_heard_ns = now_ns
                self._probed_ns = None
                while connection.has_frames:
                    message = self._egress.poll(connection, self._on_acknowledged)
                    if message is not None:
                        self._on_message(message, publication, now_ns)
                if self._taken is not None and self._taken.fault:
                    self.end(self._taken.fault)
        except RemoteProtocolError as error:
            connection.close(str(error))
            while connection.has_frames:  # who says that is not heard further
                connection.release(connection.end)
        return is_heard

    def _on_message(self, message: Message, publication: IngressPublication, now_ns: int) -> None:
        match message:
            case link.SessionRetained():
                self._on_retained(message)
            case link.SessionResumed():
                self._on_resumed(message, publication, now_ns)
            case NewLeaderEvent():
                self._on_new_leader(message, publication, now_ns)
            case SessionEvent(code=EventCode.REDIRECT):
                self._on_redirect(message, publication, now_ns)
            case SessionEvent():
                if message.code is EventCode.CLOSED:
                    self.why_closed = message.detail or "closed by the cluster"
                    self.state = ClientState.PENDING_CLOSE
                elif message.code is EventCode.ERROR:
                    self._requests.report(message.detail)
                self._retained.hold(message)
            case AdminResponse():
                self._retained.hold(message)

    def _on_acknowledged(self, messages: int, position: int) -> None:
        """So many of the session's messages are committed, the last one up to ``position`` of the log."""
        window = self.window
        if messages > window.acknowledged and not window.is_sent(messages):
            raise RemoteProtocolError(
                f"leader {self.leader_member_id} acknowledges {messages} messages; expected at most "
                f"{window.sent}, which were sent to it"
            )
        if window.acknowledge(messages):
            self.committed_position = position

    # -- answers of a supervised session --

    def _say_rest_ns(self, now_ns: int) -> int | None:
        taken = self._taken
        return None if taken is None else taken.rest_ns(now_ns, is_paused=self.window.is_paused)

    def _say_taken(self, now_ns: int) -> None:
        """Report to the leader which answers came, once no half message stands before."""
        taken, publication = self._taken, self._publication
        assert taken is not None and publication is not None
        if not self.window.finish_frame(publication.connection):
            return
        message = link.AnswersTaken(
            correlation_id=self._retained_correlation_id if self.window.is_paused else -1,
            cluster_session_id=self.cluster_session_id,
            leadership_term_id=self.leadership_term_id,
            numbers=taken.numbers,
        )
        if publication.offer(message, streams.LINK) > 0:
            taken.on_said(now_ns)
            self.last_sent_ns = now_ns

    def _on_retained(self, retained: link.SessionRetained) -> None:
        """The leader drops what we send: pause, and say what we have."""
        taken = self._taken
        is_ours = retained.leadership_term_id == self.leadership_term_id
        if taken is not None and is_ours and self.state is ClientState.CONNECTED:
            self.window.is_paused = True
            self._retained_correlation_id = next(self._correlation_ids)
            taken.is_asking = True

    # -- following the leader --

    def _probe_leader(self, now_ns: int) -> None:
        """A leader that is stopped, or beyond a dead network, keeps its connection: ask, then leave."""
        publication = self._publication
        assert publication is not None
        if now_ns - self._last_heard_ns < self._silence_ns or publication.connection.is_readable:
            return  # what it sent and nobody has taken yet is a sign of life as well
        if self._probed_ns is None:
            self._probed_ns = now_ns
            if self.window.is_flushed:
                self._ask_to_resume(publication)  # the answer is known; that it comes is not
        elif now_ns - self._probed_ns >= self._silence_ns:
            publication.connection.close(f"silent for {(now_ns - self._last_heard_ns) / 1e9:.1f} s")
            self._lose_leader(now_ns)

    def _lose_leader(self, now_ns: int) -> None:
        """The connection broke, or leads nowhere: look for the session's leader among all members."""
        publication = self._publication
        if publication is not None:
            self._publications.why_failed[publication.member_id] = publication.connection.why_closed
            publication.connection.close()
        self._publication = None
        self.state = ClientState.AWAIT_NEW_LEADER
        self._lost_ns = now_ns
        self._deadline_ns = now_ns + self._new_leader_timeout_ns

    def _seek_leader(self, now_ns: int) -> None:
        """Ask every member that can be reached for the session, until one has it."""
        if now_ns > self._deadline_ns:
            failures = self._publications.describe_failures()
            self.end(f"no leader took the session up again in time; {failures}")
            return
        self._publications.do_work(now_ns)
        sought_ns = now_ns - self._lost_ns
        interval_ns = min(max(sought_ns // 2, RESUME_INTERVAL_MIN_NS), RESUME_INTERVAL_MAX_NS)
        for publication in self._publications.connected():
            if now_ns - publication.asked_ns >= interval_ns:
                publication.asked_ns = now_ns
                self._ask_to_resume(publication)
            for message in publication.receive():
                self._on_answer(message, publication, now_ns)
                if self.state is not ClientState.AWAIT_NEW_LEADER:
                    return

    def _ask_to_resume(self, publication: IngressPublication) -> None:
        try:
            credentials = self._context.credentials_supplier.encoded_credentials()
        except Exception as error:  # as while its file is replaced: asked again soon
            self._publications.why_failed[publication.member_id] = str(error)
            return
        self._resume_correlation_id = next(self._correlation_ids)
        publication.offer(
            link.SessionResume(
                correlation_id=self._resume_correlation_id,
                cluster_session_id=self.cluster_session_id,
                leadership_term_id=self.leadership_term_id,
                encoded_credentials=credentials,
                resume_token=self._resume_token,
            ),
            streams.LINK,
        )

    def _on_answer(self, message: Message, publication: IngressPublication, now_ns: int) -> None:
        if isinstance(message, SessionEvent) and message.code is EventCode.REDIRECT:
            self._publications.adopt(message.detail)
        elif getattr(message, "cluster_session_id", None) == self.cluster_session_id:
            # A NewLeaderEvent says nothing that SessionResumed does not, and who still leads an earlier term
            # does not know what became of the session since.
            term_id = getattr(message, "leadership_term_id", self._reported_term_id)
            if not isinstance(message, NewLeaderEvent) and term_id >= self._reported_term_id:
                self._on_message(message, publication, now_ns)

    def _on_redirect(self, event: SessionEvent, publication: IngressPublication, now_ns: int) -> None:
        """The member that we asked for the session does not lead, or takes no input now."""
        self._publications.adopt(event.detail)
        is_elsewhere = event.leader_member_id not in (-1, publication.member_id)
        if is_elsewhere or self.state is ClientState.AWAIT_NEW_LEADER_CONNECTION:
            self._lose_leader(now_ns)

    def _on_new_leader(self, event: NewLeaderEvent, publication: IngressPublication, now_ns: int) -> None:
        """A leader took the session over, perhaps the same one in a new term."""
        self._publications.adopt(event.ingress_endpoints)
        self._report_new_leader(event)
        if event.leadership_term_id <= self.leadership_term_id:
            return
        self.leader_member_id = event.leader_member_id
        if event.leader_member_id != publication.member_id:
            self._lose_leader(now_ns)
            return
        self.state = ClientState.AWAIT_NEW_LEADER_CONNECTION
        self._deadline_ns = now_ns + self._context.message_timeout_ns
        self._is_resume_asked = False
        self._resume_here()

    def _resume_here(self) -> None:
        """Ask the leader that we are connected to how much it holds, once no half message stands before."""
        publication = self._publication
        assert publication is not None
        if not self._is_resume_asked and self.window.finish_frame(publication.connection):
            self._is_resume_asked = True
            self._ask_to_resume(publication)

    def _on_resumed(self, resumed: link.SessionResumed, publication: IngressPublication, now_ns: int) -> None:
        self._publications.adopt(resumed.ingress_endpoints)
        window = self.window
        if self.state is ClientState.CONNECTED:
            is_awaited = window.is_paused and resumed.correlation_id == self._retained_correlation_id
        else:
            is_awaited = self.state in (ClientState.AWAIT_NEW_LEADER, ClientState.AWAIT_NEW_LEADER_CONNECTION)
        if not is_awaited:
            return
        if not window.acknowledged <= resumed.appended_messages <= window.sent_to_any:
            self.end(
                f"leader {resumed.leader_member_id} holds {resumed.appended_messages} messages of the "
                f"session, {window.acknowledged} were committed and {window.sent_to_any} sent"
            )
            return
        self._publication = publication
        self._last_heard_ns = now_ns
        self._probed_ns = None
        self._publications.keep(publication)
        self.leader_member_id = resumed.leader_member_id
        window.rewind(resumed.appended_messages, resumed.leadership_term_id)
        if self._taken is not None:
            self._taken.is_asking |= self.state is not ClientState.CONNECTED
        self.state = ClientState.CONNECTED
        self._report_new_leader(
            NewLeaderEvent(
                leadership_term_id=resumed.leadership_term_id,
                cluster_session_id=self.cluster_session_id,
                leader_member_id=resumed.leader_member_id,
                ingress_endpoints=resumed.ingress_endpoints,
            )
        )
        self.flush()

    def _report_new_leader(self, event: NewLeaderEvent) -> None:
        if event.leadership_term_id > self._reported_term_id:
            self._reported_term_id = event.leadership_term_id
            self._retained.hold(event)

    # -- ending --

    def end(self, why: str) -> None:
        """The session is over: close its connections."""
        if self.state is not ClientState.CLOSED:
            self.why_closed = why
            self.state = ClientState.CLOSED
            self._publication = None
            self._publications.close()
            self._requests.fail(ClientClosed(f"session {self.cluster_session_id} is closed: {why}"))

    def close(self) -> None:
        """Send the rest, ask to close the session, and wait for that, at most ``message_timeout``."""
        if self.state is ClientState.CONNECTED and self._publication is not None:
            self._ask_to_close(self._publication)
        self.end("closed by the client")

    def _ask_to_close(self, publication: IngressPublication) -> None:
        """Send the rest and the request, and read on until the leader, having read it, ends the connection.

        A connection that is closed with egress unread is reset, and what is on its way to the leader lost.
        """
        connection = publication.connection
        request = SessionCloseRequest(self.leadership_term_id, self.cluster_session_id)
        now_ns = heard_ns = self._world.now_ns()
        deadline_ns = now_ns + self._context.message_timeout_ns
        while self.state is ClientState.CONNECTED and now_ns <= min(deadline_ns, heard_ns + CLOSE_SILENCE_NS):
            is_heard = connection.discard()
            if not self.window.is_flushed:
                self.flush()
            elif not connection.is_finishing and publication.offer(request) > 0:
                connection.finish()
            if is_heard:
                heard_ns = now_ns
            elif connection.is_closed:
                break
            else:
                self._world.wait(WAIT_S)
                self._world.poll()
            now_ns = self._world.now_ns()
