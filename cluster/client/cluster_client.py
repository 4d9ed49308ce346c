"""ClusterClient: a session with the cluster (AeronCluster), which also follows the leader by itself.

The session's states are those of ``session_conductor.py``. Here is what an application calls, and in which
thread it happens:

    application    offer, poll_egress, …  ──┐                       ┌── poll_egress ──▶ listener
                                            ├─ turn ▶ conductor ▶ held egress
    client's own   keep-alives, leaders  ───┘

Threads may share a client: calls take turns, and messages are in the log in the order in which their offers
returned. The listener is called by ``poll_egress``, and by offers now and then, in the thread of that call:
never by two threads at once, and never by the client's own thread, which goes on meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cluster.client.connecting import SessionOpening
from cluster.client.context import ClientContext
from cluster.client.held_egress import HeldEgress
from cluster.client.ingress_publication import World
from cluster.client.payloads import Payloads, as_columns
from cluster.client.session_conductor import WAIT_S, SessionConductor, State
from cluster.errors import ClientClosed, LocalProtocolError, TimedOut
from cluster.protocol.enums import AdminRequestType, Offer
from cluster.protocol.session import AdminRequest
from cluster.transport.endpoint import Endpoint

if TYPE_CHECKING:
    from cluster.client.context import CredentialsSupplier

OFFERED_PER_POLL = 256 * 1024  # bytes that may be offered between two polls of egress
ALL = 1 << 62  # messages of a poll without a limit


class ClusterClient:
    """An open session. Made by ``connect``; a context manager that closes it."""

    def __init__(self, context: ClientContext, world: World, opening: SessionOpening) -> None:
        """Take over a finished attempt: the session is the client's to close, and so is the world."""
        self._context = context
        self._world = world
        self._held = HeldEgress()
        self._session = SessionConductor(context, world, opening, self._held)
        self._turn = threading.RLock()  # of who changes the session
        self._delivery = threading.Lock()  # of who calls the listener; taken before the turn, never within
        self._deliverer: int | None = None  # its thread
        self._poll_at = OFFERED_PER_POLL

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
        endpoints name every member's. A thread of the client's own keeps the session alive and follows the
        leader, whatever the application does; none with ``keep_alive_interval_s`` None.

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
            opening = SessionOpening(context, world)
            try:
                while not opening.poll():
                    world.wait(WAIT_S)
                    world.poll()
            finally:
                opening.close()
            client = cls(context, world, opening)
        except BaseException:
            world.close()
            raise
        if keep_alive_interval_s is not None:
            world.run_beside(client.do_duty)
        return client

    # -- how it stands --

    @property
    def state(self) -> State:
        return self._session.state

    @property
    def is_closed(self) -> bool:
        """Whether the session is over, for the client (``why_closed``); a new one needs a new client."""
        return self._session.is_closed

    @property
    def why_closed(self) -> str:
        """Why the session is over, or empty."""
        return self._session.why_closed

    @property
    def cluster_session_id(self) -> int:
        return self._session.cluster_session_id

    @property
    def leader_member_id(self) -> int:
        """The leader that the session is with, or was with last."""
        return self._session.leader_member_id

    @property
    def leadership_term_id(self) -> int:
        """Term of that leader."""
        return self._session.leadership_term_id

    @property
    def offered(self) -> int:
        """Messages taken by ``offer`` and ``offer_batch`` so far."""
        return self._session.window.offered

    @property
    def acknowledged(self) -> int:
        """How many of them, from the first on, are known to be committed."""
        return self._session.window.acknowledged

    @property
    def committed_position(self) -> int:
        """Log position after the last message that is known to be committed; -1 before the first."""
        return self._session.committed_position

    @property
    def max_payload_length(self) -> int:
        """Longest message that the cluster's log takes, in bytes."""
        return self._session.payload_length_max

    def _check_not_closed(self) -> None:
        """Nothing will come any more; what came before the end is still delivered."""
        if self.is_closed and not self._held:
            raise self._closed()

    def _closed(self) -> ClientClosed:
        return ClientClosed(f"session {self.cluster_session_id} is closed: {self.why_closed}")

    @property
    def _is_in_listener(self) -> bool:
        return self._deliverer == threading.get_ident()

    # -- sending --

    def offer(self, payload: bytes | bytearray | memoryview) -> int:
        """Send one message; returns a position > 0, or a code of ``Offer``.

        A message that was taken is sent again through leader changes until it is committed
        (``acknowledged``). BACK_PRESSURED: too much is unacknowledged; poll and try again. NOT_CONNECTED and
        ADMIN_ACTION: a leader is being sought; poll and try again. CLOSED: the session is over. An offer
        now and then polls as well, so the listener may be called from here.
        Raises LocalProtocolError for a message above ``max_payload_length``.
        """
        with self._turn:
            session = self._session
            if session.state is not State.CONNECTED:
                result = self._refusal()
            elif len(payload) > session.payload_length_max:
                raise self._too_long(len(payload), 0)
            else:
                result = self._flushed(session.window.offer(payload))
        if result < 0 or result >= self._poll_at:
            self._poll_while_offering()
        return result

    def offer_batch(self, payloads: Payloads) -> int:
        """Send many messages in one go, all or none; returns as ``offer`` does.

        ``payloads``: a sequence of bytes, a pyarrow binary or string array, or (buffer, offsets, lengths)
        with numpy columns. A batch of none returns the current position, at least 1.
        """
        offsets, lengths, buffer = as_columns(payloads)
        with self._turn:
            session = self._session
            if session.state is not State.CONNECTED:
                result = self._refusal()
            elif len(lengths) and int(lengths.max()) > session.payload_length_max:
                row = int(lengths.argmax())
                raise self._too_long(int(lengths[row]), row)
            else:
                result = self._flushed(session.window.offer_batch(offsets, lengths, buffer))
        if result < 0 or result >= self._poll_at:
            self._poll_while_offering()
        return result

    def _flushed(self, is_taken: bool) -> int:
        self._session.flush()
        return max(self._session.window.position, 1) if is_taken else Offer.BACK_PRESSURED

    def _refusal(self) -> int:
        """Why nothing can be taken now."""
        match self._session.state:
            case State.AWAIT_NEW_LEADER:
                return Offer.NOT_CONNECTED
            case State.AWAIT_NEW_LEADER_CONNECTION:
                return Offer.ADMIN_ACTION
        return Offer.CLOSED

    def _too_long(self, length: int, row: int) -> LocalProtocolError:
        return LocalProtocolError(
            f"message {row} has {length} bytes, the cluster's log takes at most {self.max_payload_length}"
        )

    def _poll_while_offering(self) -> None:
        """Who only offers would never hear what is committed, and be cut off for not reading its egress."""
        self._poll_at = self._session.window.position + OFFERED_PER_POLL
        self._turn_session()
        if not self._is_in_listener and self._delivery.acquire(blocking=False):
            try:
                self._deliver(ALL)
            finally:
                self._delivery.release()

    def send_keep_alive(self) -> bool:
        """Keep the session open without a message; False when it could not be sent now."""
        with self._turn:
            return self._session.send_keep_alive()

    def send_admin_request_to_take_a_snapshot(self, correlation_id: int) -> bool:
        """Ask for a snapshot; the answer comes to ``on_admin_response``. False when it could not be sent now.

        Raises ClientClosed when the session is over.
        """
        with self._turn:
            if self.state in (State.PENDING_CLOSE, State.CLOSED):
                raise self._closed()
            return self._session.send(
                AdminRequest(
                    self.leadership_term_id,
                    self.cluster_session_id,
                    correlation_id,
                    AdminRequestType.SNAPSHOT,
                )
            )

    # -- the duty cycle --

    def poll_egress(self, fragment_limit: int | None = None) -> int:
        """Hear what came, keep the session alive, follow the leader; returns the messages dispatched.

        Without a limit everything that came is dispatched. Never waits; see ``wait``. What the listener
        raises comes out, and the next poll goes on after it. What came before the end of the session is
        dispatched; the poll after that raises ClientClosed, and one from within the listener
        LocalProtocolError.
        """
        self._check_not_closed()
        return self._poll(ALL if fragment_limit is None else fragment_limit)

    def _poll(self, limit: int) -> int:
        if self._is_in_listener:
            raise LocalProtocolError("poll_egress within the listener, which it calls")
        self._turn_session()
        with self._delivery:
            return self._deliver(limit)

    def _turn_session(self) -> None:
        with self._turn:
            if not self.is_closed:
                self._session.poll(is_receiving=not self._held.is_full)
                if self.is_closed:
                    self._world.close()

    def _deliver(self, limit: int) -> int:
        """Tell the listener, whom this thread has to itself."""
        self._deliverer = threading.get_ident()
        try:
            return self._held.deliver(self._context.dispatch, limit)
        finally:
            self._deliverer = None

    def do_duty(self) -> float | None:
        """What the client's own thread does; returns after how many seconds again, None when all is over."""
        self._turn_session()
        if self._held:
            self._world.wake()  # who waits in ``wait`` would not learn of it from the socket any more
        return None if self.is_closed else self._session.rest_s()

    def wait(self, timeout_s: float) -> None:
        """Sleep until something came or can be written, at most ``timeout_s``. Raises ClientClosed."""
        self._check_not_closed()
        if not self._held and not self._session.has_frames:
            self._world.wait(timeout_s)

    def await_committed(self, timeout_s: float | None = None) -> int:
        """Poll until all that was offered is committed; returns the log position after the last message.

        Raises TimedOut with how many are not, or ClientClosed.
        """
        deadline_ns = None if timeout_s is None else self._world.now_ns() + int(timeout_s * 1e9)
        window = self._session.window
        while window.unacknowledged:
            self._poll(ALL)
            if not window.unacknowledged:
                break
            if self.is_closed:
                raise ClientClosed(
                    f"session {self.cluster_session_id} closed ({self.why_closed}) with "
                    f"{window.unacknowledged} of {self.offered} messages not known to be committed"
                )
            if deadline_ns is not None and self._world.now_ns() > deadline_ns:
                raise TimedOut(
                    f"{window.unacknowledged} of {self.offered} messages are not committed "
                    f"after {timeout_s:g} s"
                )
            self._world.wait(WAIT_S)
        return self.committed_position

    # -- ending --

    def close(self) -> None:
        """Send what is not sent yet, ask the cluster to close the session, and release everything.

        Best effort, as in Aeron; a caller who needs to know waits with ``await_committed`` first. It waits
        until the leader has read the request: at most ``message_timeout``, a second if nothing is heard.
        """
        with self._turn:
            if not self.is_closed:
                self._session.close()
                self._world.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
