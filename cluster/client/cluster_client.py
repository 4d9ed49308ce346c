"""ClusterClient: a session with the cluster (AeronCluster), which also follows the leader by itself.

    CONNECTED -- connection lost ----> AWAIT_NEW_LEADER             -- session resumed --> CONNECTED
        |                                                           -- time-out --------> CLOSED
        |------- NewLeaderEvent -----> AWAIT_NEW_LEADER_CONNECTION  -- likewise
        |------- SessionEvent CLOSED -> PENDING_CLOSE               -- next poll -------> CLOSED

Aeron's client leaves what was in flight when a leader died to its application. This one keeps every message
until the cluster says that it is committed, asks the new leader how many it holds, and sends the rest: each
message is in the log once, in the order offered, as long as the session lives. Egress is Aeron's: what a
leader had not delivered when it died is not sent again by the next one.

One thread uses a client. Nothing happens between its calls: keep-alives go out, and leaders are followed,
in ``poll_egress`` and in the offers.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cluster.client.connecting import AsyncConnect
from cluster.client.context import ClientContext
from cluster.client.egress_adapter import EgressAdapter
from cluster.client.ingress_publication import IngressPublication, World
from cluster.client.payloads import Payloads, as_columns
from cluster.client.window import UnacknowledgedWindow
from cluster.errors import ClientClosed, LocalProtocolError, RemoteProtocolError, TimedOut
from cluster.log.frames import SESSION_HEADER_LENGTH
from cluster.protocol import Message, link, streams
from cluster.protocol.enums import AdminRequestType, EventCode, Offer
from cluster.protocol.session import (
    AdminRequest,
    AdminResponse,
    NewLeaderEvent,
    SessionCloseRequest,
    SessionEvent,
    SessionKeepAlive,
)
from cluster.transport.endpoint import Endpoint

if TYPE_CHECKING:
    from cluster.client.context import CredentialsSupplier

SEND_ATTEMPTS = 3
RESUME_INTERVAL_NS = 100_000_000  # between two requests for the session at one member
WAIT_S = 0.01
CLOSE_SILENCE_NS = 1_000_000_000  # of a leader that is asked to close: it is waited for no longer
OFFERED_PER_POLL = 256 * 1024  # bytes that may be offered between two polls of egress


class State(Enum):
    """How a client stands (AeronCluster.State)."""

    CONNECTED = "connected"
    AWAIT_NEW_LEADER = "await new leader"
    AWAIT_NEW_LEADER_CONNECTION = "await new leader connection"
    PENDING_CLOSE = "pending close"
    CLOSED = "closed"


class ClusterClient:
    """An open session. Made by ``connect``; a context manager that closes it."""

    def __init__(self, context: ClientContext, world: World, attempt: AsyncConnect) -> None:
        """Take over a finished attempt: the session is the client's to close, and so is the world."""
        assert attempt.event is not None and attempt.publication is not None
        event = attempt.event
        self._context = context
        self._world = world
        self._publications = attempt.publications
        self._publication: IngressPublication | None = attempt.publication
        self._dispatch = context.dispatch
        self._window = UnacknowledgedWindow(
            event.cluster_session_id, event.leadership_term_id, context.window_bytes
        )
        self._egress = EgressAdapter(event.cluster_session_id, context.dispatch)
        self._correlation_ids = count(attempt.correlation_id + 1)
        self._resume_token = attempt.resume_token
        self._payload_length_max = attempt.publication.message_length_max - SESSION_HEADER_LENGTH
        self._new_leader_timeout_ns = context.new_leader_timeout_ns(event.leader_heartbeat_timeout_ns)
        self._deadline_ns = 0  # of the state, where it has one
        self._resume_correlation_id = 0
        self._reported_term_id = event.leadership_term_id  # the last that the listener knows of
        self._last_sent_ns = self._last_heard_ns = world.now_ns()
        self._silence_ns = context.silence_timeout_ns(event.leader_heartbeat_timeout_ns)
        self._probed_ns: int | None = None  # when a silent leader was asked for a sign of life
        self._is_resume_asked = False
        self._poll_at = OFFERED_PER_POLL
        self._state = State.CONNECTED
        self.cluster_session_id = event.cluster_session_id
        self.leader_member_id = event.leader_member_id
        self.committed_position = -1  # log position after the last message known to be committed
        self.why_closed = ""
        if any(member_id < 0 for member_id in context.endpoints):
            self._ask_to_resume(attempt.publication)  # the answer names the members that were not given

    @classmethod
    def connect(
        cls,
        endpoints: str | Mapping[int, str | Endpoint],
        egress_listener: object = None,
        *,
        credentials: bytes | CredentialsSupplier = b"",
        client_name: str = "",
        message_timeout_s: float = 5.0,
        new_leader_timeout_s: float | None = None,
        keep_alive_interval_s: float | None = 1.0,
        window_bytes: int | None = None,
    ) -> ClusterClient:
        """Open a session at ``host:9000,…`` or ``0=host:9000,1=…`` and return its client.

        Over gRPC one member that can be reached is enough: it names the others. Of ``tcp:`` and ``ipc:``
        endpoints name every member's.

        Raises ConfigurationError before anything is sent, TimedOut when no leader answered within
        ``message_timeout_s``, AuthenticationRejected, or ClusterError with the cluster's reason.
        """
        from cluster.transport.dialler import Dialler

        settings: dict[str, Any] = {} if window_bytes is None else {"window_bytes": window_bytes}
        context = ClientContext(
            endpoints,
            egress_listener,
            credentials=credentials,
            client_name=client_name,
            message_timeout_s=message_timeout_s,
            new_leader_timeout_s=new_leader_timeout_s,
            keep_alive_interval_s=keep_alive_interval_s,
            **settings,
        )
        world: World = Dialler()  # type: ignore[assignment]
        try:
            attempt = AsyncConnect(context, world)
            try:
                while not attempt.poll():
                    world.wait(WAIT_S)
            finally:
                attempt.close()
            return cls(context, world, attempt)
        except BaseException:
            world.close()
            raise

    # -- how it stands --

    @property
    def state(self) -> State:
        return self._state

    @property
    def is_closed(self) -> bool:
        """Whether the session is over, for the client (``why_closed``); a new one needs a new client."""
        return self._state is State.CLOSED

    def _check_not_closed(self) -> None:
        if self._state is State.CLOSED:
            raise ClientClosed(f"session {self.cluster_session_id} is closed: {self.why_closed}")

    @property
    def leadership_term_id(self) -> int:
        """Term of the leader that the session is with."""
        return self._window.leadership_term_id

    @property
    def offered(self) -> int:
        """Messages taken by ``offer`` and ``offer_batch`` so far."""
        return self._window.offered

    @property
    def acknowledged(self) -> int:
        """How many of them, from the first on, are known to be committed."""
        return self._window.acknowledged

    @property
    def max_payload_length(self) -> int:
        """Longest message that the cluster's log takes, in bytes."""
        return self._payload_length_max

    # -- sending --

    def offer(self, payload: bytes | bytearray | memoryview) -> int:
        """Send one message; returns a position > 0, or a code of ``Offer``.

        A message that was taken is sent again through leader changes until it is committed
        (``acknowledged``). BACK_PRESSURED: too much is unacknowledged; poll and try again. NOT_CONNECTED and
        ADMIN_ACTION: a leader is being sought; poll and try again. CLOSED: the session is over. An offer
        now and then polls as well, so the listener may be called from here.
        Raises LocalProtocolError for a message above ``max_payload_length``.
        """
        if self._state is not State.CONNECTED:
            return self._refuse()
        if len(payload) > self._payload_length_max:
            raise self._too_long(len(payload), 0)
        window = self._window
        is_taken = window.offer(payload)
        self._flush()
        if not is_taken or window.position >= self._poll_at:
            self._poll_while_offering()
        return window.position if is_taken else Offer.BACK_PRESSURED

    def offer_batch(self, payloads: Payloads) -> int:
        """Send many messages in one go, all or none; returns as ``offer`` does.

        ``payloads``: a sequence of bytes, a pyarrow binary or string array, or (buffer, offsets, lengths)
        with numpy columns. A batch of none returns the current position, at least 1.
        """
        if self._state is not State.CONNECTED:
            return self._refuse()
        offsets, lengths, buffer = as_columns(payloads)
        if len(lengths) and int(lengths.max()) > self._payload_length_max:
            row = int(lengths.argmax())
            raise self._too_long(int(lengths[row]), row)
        window = self._window
        is_taken = window.offer_batch(offsets, lengths, buffer)
        self._flush()
        if not is_taken or window.position >= self._poll_at:
            self._poll_while_offering()
        return max(window.position, 1) if is_taken else Offer.BACK_PRESSURED

    def _poll_while_offering(self) -> None:
        """Who only offers would never hear what is committed, and be cut off for not reading its egress."""
        self._poll_at = self._window.position + OFFERED_PER_POLL
        if not self._egress.is_dispatching:
            self.poll_egress()

    def _too_long(self, length: int, row: int) -> LocalProtocolError:
        return LocalProtocolError(
            f"message {row} has {length} bytes, the cluster's log takes at most {self._payload_length_max}"
        )

    def _refuse(self) -> int:
        """Why nothing can be taken now, after a poll: offers move the search for a leader on as well."""
        if not self._egress.is_dispatching and not self.is_closed:
            self.poll_egress()
        match self._state:
            case State.AWAIT_NEW_LEADER:
                return Offer.NOT_CONNECTED
            case State.CONNECTED | State.AWAIT_NEW_LEADER_CONNECTION:
                return Offer.ADMIN_ACTION
        return Offer.CLOSED

    def _flush(self) -> None:
        """Write what waits in the window; a broken connection is noticed here."""
        publication = self._publication
        assert publication is not None
        now_ns = self._world.now_ns()
        written = self._window.flush(publication.connection)
        if written > 0:
            self._last_sent_ns = now_ns
        elif written < 0:
            self._lose_leader(now_ns)

    def send_keep_alive(self) -> bool:
        """Keep the session open without a message; False when it could not be sent now."""
        publication = self._publication
        if self._state is not State.CONNECTED or publication is None:
            return False
        if not self._window.is_flushed:
            self._flush()  # messages keep it alive as well
            return self._state is State.CONNECTED
        keep_alive = SessionKeepAlive(self.leadership_term_id, self.cluster_session_id)
        for _ in range(SEND_ATTEMPTS):
            if publication.offer(keep_alive) > 0:
                self._last_sent_ns = self._world.now_ns()
                return True
        return False

    def send_admin_request_to_take_a_snapshot(self, correlation_id: int) -> bool:
        """Ask for a snapshot; the answer comes to ``on_admin_response``. False when it could not be sent now.

        Raises ClientClosed when the session is over.
        """
        if self._state in (State.PENDING_CLOSE, State.CLOSED):
            raise ClientClosed(f"session {self.cluster_session_id} is closed: {self.why_closed}")
        publication = self._publication
        if self._state is not State.CONNECTED or publication is None or not self._window.is_flushed:
            return False
        request = AdminRequest(
            self.leadership_term_id, self.cluster_session_id, correlation_id, AdminRequestType.SNAPSHOT
        )
        return any(publication.offer(request) > 0 for _ in range(SEND_ATTEMPTS))

    # -- the duty cycle --

    def poll_egress(self, fragment_limit: int | None = None) -> int:
        """Hear what came, keep the session alive, follow the leader; returns the messages dispatched.

        Without a limit everything that one receive brought is dispatched (at most a mebibyte). Never
        waits; see ``wait``. What the listener raises comes out, and the next poll goes on after it. The
        poll that comes upon the end of the session returns; the next one raises ClientClosed, and one from
        within the listener LocalProtocolError.
        """
        self._check_not_closed()
        if self._egress.is_dispatching:
            raise LocalProtocolError("poll_egress within the listener, which it calls")
        publication = self._publication
        if publication is None or not publication.connection.is_readable:
            self._world.wait(0)  # else a wait has just reported it
        now_ns = self._world.now_ns()
        dispatched = 0
        if publication is not None and self._state is not State.PENDING_CLOSE:
            connection = publication.connection
            if connection.is_readable or connection.has_frames:
                dispatched = self._receive(publication, fragment_limit, now_ns)
            if publication is self._publication and connection.is_closed and not connection.has_frames:
                self._lose_leader(now_ns)
        self._do_work(now_ns)
        return dispatched

    def wait(self, timeout_s: float) -> None:
        """Sleep until something came or can be written, at most ``timeout_s``. Raises ClientClosed."""
        self._check_not_closed()
        publication = self._publication
        if publication is None or not publication.connection.has_frames:
            self._world.wait(timeout_s)

    def await_committed(self, timeout_s: float | None = None) -> int:
        """Poll until all that was offered is committed; returns the log position after the last message.

        Raises TimedOut with how many are not, or ClientClosed.
        """
        deadline_ns = None if timeout_s is None else self._world.now_ns() + int(timeout_s * 1e9)
        while self._window.unacknowledged:
            if not self.is_closed:
                self.poll_egress()
            if self.is_closed:
                raise ClientClosed(
                    f"session {self.cluster_session_id} closed ({self.why_closed}) with "
                    f"{self._window.unacknowledged} of {self.offered} messages not known to be committed"
                )
            if not self._window.unacknowledged:
                break
            if deadline_ns is not None and self._world.now_ns() > deadline_ns:
                raise TimedOut(
                    f"{self._window.unacknowledged} of {self.offered} messages are not committed "
                    f"after {timeout_s:g} s"
                )
            self.wait(WAIT_S)
        return self.committed_position

    def _do_work(self, now_ns: int) -> None:
        match self._state:
            case State.CONNECTED:
                if not self._window.is_flushed:
                    self._flush()
                interval_ns = self._context.keep_alive_interval_ns
                if interval_ns is not None and now_ns - self._last_sent_ns >= interval_ns:
                    self.send_keep_alive()
                if now_ns - self._last_heard_ns >= self._silence_ns:
                    self._probe_leader(now_ns)
            case State.AWAIT_NEW_LEADER:
                self._seek_leader(now_ns)
            case State.AWAIT_NEW_LEADER_CONNECTION:
                self._resume_here()
                if now_ns > self._deadline_ns:
                    self._end(f"leader {self.leader_member_id} did not take the session up again in time")
            case State.PENDING_CLOSE:
                self._end(self.why_closed)

    # -- hearing --

    def _receive(self, publication: IngressPublication, fragment_limit: int | None, now_ns: int) -> int:
        connection = publication.connection
        try:
            if not connection.receive():
                return 0
            self._last_heard_ns = now_ns
            self._probed_ns = None
            return self._egress.poll(
                connection, fragment_limit, lambda message: self._on_message(message, publication, now_ns)
            )
        except RemoteProtocolError as error:
            connection.close(str(error))
            return 0

    def _on_message(self, message: Message, publication: IngressPublication, now_ns: int) -> None:
        match message:
            case link.CommitAck():
                self._on_commit_ack(message)
            case link.SessionResumed():
                self._on_resumed(message, publication, now_ns)
            case NewLeaderEvent():
                self._on_new_leader(message, publication, now_ns)
            case SessionEvent(code=EventCode.REDIRECT):
                self._on_redirect(message, publication, now_ns)
            case SessionEvent():
                if message.code is EventCode.CLOSED:
                    self.why_closed = message.detail or "closed by the cluster"
                    self._state = State.PENDING_CLOSE
                self._dispatch.session_event(message)
            case AdminResponse():
                self._dispatch.admin_response(message)

    def _on_commit_ack(self, ack: link.CommitAck) -> None:
        if ack.committed_messages > self._window.offered:
            raise RemoteProtocolError(
                f"{ack.committed_messages} messages acknowledged, {self._window.offered} were offered"
            )
        if self._window.acknowledge(ack.committed_messages):
            self.committed_position = ack.committed_position

    # -- following the leader --

    def _probe_leader(self, now_ns: int) -> None:
        """A leader that is stopped, or behind a dead network, keeps its connection: ask, then leave."""
        publication = self._publication
        assert publication is not None
        if self._probed_ns is None:
            self._probed_ns = now_ns
            if self._window.is_flushed:
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
        self._state = State.AWAIT_NEW_LEADER
        self._deadline_ns = now_ns + self._new_leader_timeout_ns

    def _seek_leader(self, now_ns: int) -> None:
        """Ask every member that can be reached for the session, until one has it."""
        if now_ns > self._deadline_ns:
            failures = self._publications.describe_failures()
            self._end(f"no leader took the session up again in time; {failures}")
            return
        self._publications.do_work(now_ns)
        for publication in self._publications.connected():
            if now_ns - publication.asked_ns >= RESUME_INTERVAL_NS:
                publication.asked_ns = now_ns
                self._ask_to_resume(publication)
            for message in publication.receive():
                self._on_answer(message, publication, now_ns)
                if self._state is not State.AWAIT_NEW_LEADER:
                    return

    def _ask_to_resume(self, publication: IngressPublication) -> None:
        self._resume_correlation_id = next(self._correlation_ids)
        publication.offer(
            link.SessionResume(
                correlation_id=self._resume_correlation_id,
                cluster_session_id=self.cluster_session_id,
                leadership_term_id=self.leadership_term_id,
                encoded_credentials=self._context.credentials_supplier.encoded_credentials(),
                resume_token=self._resume_token,
            ),
            streams.LINK,
        )

    def _on_answer(self, message: Message, publication: IngressPublication, now_ns: int) -> None:
        if isinstance(message, SessionEvent) and message.code is EventCode.REDIRECT:
            self._publications.adopt(message.detail)
        elif getattr(message, "cluster_session_id", None) == self.cluster_session_id and not isinstance(
            message,
            NewLeaderEvent,  # it says nothing that SessionResumed does not
        ):
            self._on_message(message, publication, now_ns)

    def _on_redirect(self, event: SessionEvent, publication: IngressPublication, now_ns: int) -> None:
        """The member that we asked for the session does not lead, or takes no input now."""
        self._publications.adopt(event.detail)
        is_elsewhere = event.leader_member_id not in (-1, publication.member_id)
        if is_elsewhere or self._state is State.AWAIT_NEW_LEADER_CONNECTION:
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
        self._state = State.AWAIT_NEW_LEADER_CONNECTION
        self._deadline_ns = now_ns + self._context.message_timeout_ns
        self._is_resume_asked = False
        self._resume_here()

    def _resume_here(self) -> None:
        """Ask the leader that we are connected to how much it holds, once no half message stands before."""
        publication = self._publication
        assert publication is not None
        if not self._is_resume_asked and self._window.finish_frame(publication.connection):
            self._is_resume_asked = True
            self._ask_to_resume(publication)

    def _on_resumed(self, resumed: link.SessionResumed, publication: IngressPublication, now_ns: int) -> None:
        self._publications.adopt(resumed.ingress_endpoints)
        if self._state not in (State.AWAIT_NEW_LEADER, State.AWAIT_NEW_LEADER_CONNECTION):
            return
        window = self._window
        if not window.acknowledged <= resumed.appended_messages <= window.offered:
            self._end(
                f"leader {resumed.leader_member_id} holds {resumed.appended_messages} messages of the "
                f"session, {window.acknowledged} were committed and {window.offered} offered"
            )
            return
        self._publication = publication
        self._last_heard_ns = now_ns
        self._probed_ns = None
        self._publications.keep(publication)
        self.leader_member_id = resumed.leader_member_id
        window.rewind(resumed.appended_messages, resumed.leadership_term_id)
        self._state = State.CONNECTED
        self._report_new_leader(
            NewLeaderEvent(
                leadership_term_id=resumed.leadership_term_id,
                cluster_session_id=self.cluster_session_id,
                leader_member_id=resumed.leader_member_id,
                ingress_endpoints=resumed.ingress_endpoints,
            )
        )
        self._flush()

    def _report_new_leader(self, event: NewLeaderEvent) -> None:
        if event.leadership_term_id > self._reported_term_id:
            self._reported_term_id = event.leadership_term_id
            self._dispatch.new_leader(event)

    # -- ending --

    def _end(self, why: str) -> None:
        """The session is over: release everything."""
        if self._state is not State.CLOSED:
            self.why_closed = why
            self._state = State.CLOSED
            self._publication = None
            self._publications.close()
            self._world.close()

    def close(self) -> None:
        """Send what is not sent yet, ask the cluster to close the session, and release everything.

        Best effort, as in Aeron; a caller who needs to know waits with ``await_committed`` first. It waits
        until the leader has read the request: at most ``message_timeout``, a second if nothing is heard.
        """
        if self._state is State.CONNECTED and self._publication is not None:
            self._ask_to_close(self._publication)
        self._end("closed by the client")

    def _ask_to_close(self, publication: IngressPublication) -> None:
        """Send the rest and the request, and read on until the leader, having read it, ends the connection.

        A connection that is closed with egress unread is reset, and what is on its way to the leader lost.
        """
        connection = publication.connection
        request = SessionCloseRequest(self.leadership_term_id, self.cluster_session_id)
        now_ns = heard_ns = self._world.now_ns()
        deadline_ns = now_ns + self._context.message_timeout_ns
        while self._state is State.CONNECTED and now_ns <= min(deadline_ns, heard_ns + CLOSE_SILENCE_NS):
            is_heard = connection.discard()
            if not self._window.is_flushed:
                self._flush()
            elif not connection.is_finishing and publication.offer(request) > 0:
                connection.finish()
            if is_heard:
                heard_ns = now_ns
            elif connection.is_closed:
                break
            else:
                self._world.wait(WAIT_S)
            now_ns = self._world.now_ns()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
