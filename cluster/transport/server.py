"""Where clients connect: frames in from many, frames out to each, and none of them can hold up a turn.

    client -> Hello, frames of ingress                 ClientPort.poll -> handler.on_frames
    client <- HelloReply, frames of egress and ours    ClientPort.send

Fair: each poll serves ready connections by ascending id from where the last poll ended, one receive each,
and stops at a quota of bytes. Robust: whoever sends what is no frame, sends no Hello, or does not read what
was sent to it is cut off; the others do not notice.

What a client has not read yet pushes back on what it sends: beyond ``UNREAD_BYTES_MAX`` of egress that wait
for it, the rest of its ingress waits in its socket. Only who reads nothing at all, or is sent more than there
is room for by what was taken before, is cut off.

A connection over which no session is served is a stranger's (``bounds.py``): a few are served a turn, of each
little is taken, and it has a time to open a session. At a bound the oldest of them makes room.
"""

import errno
import os
import socket
import time
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from operator import attrgetter
from typing import Any, Protocol

import numpy as np

from cluster.errors import FATAL, ClusterError, RemoteProtocolError, TlsFailed
from cluster.log.connection_table import CLIENT, STRANGER
from cluster.protocol import link
from cluster.protocol.enums import Offer
from cluster.protocol.frame import HEADER_LENGTH
from cluster.protocol.shares import FillLevel, sharer_at
from cluster.transport.bounds import DEFAULT_BOUNDS, SECOND_NS, Bounds
from cluster.transport.endpoint import Endpoint
from cluster.transport.handed_over import HandedOver
from cluster.transport.listener import ACCEPTS_PER_POLL_MAX, Listener
from cluster.transport.member_tls import SPEAKS_TLS, MemberTls
from cluster.transport.message_frames import decode_first, link_frame
from cluster.transport.outsiders import Outsiders
from cluster.transport.poller import Poller
from cluster.transport.sockets import RECEIVE_BUFFER_LENGTH, Buffer, Connection, ReceiveBuffer
from cluster.transport.tls_connection import TlsConnection

STALL_TIMEOUT_NS = 10 * SECOND_NS
FINISH_TIMEOUT_NS = 1 * SECOND_NS  # for the peer to close, once it has the end of its stream
SWEEP_INTERVAL_NS = SECOND_NS
BYTES_PER_POLL_MAX = 4 * 1024 * 1024
UNREAD_BYTES_MAX = 1024 * 1024  # of egress that wait for a client from which more is taken
STRANGERS_PER_POLL_MAX = 8
STRANGER_BYTES_PER_POLL_MAX = 16 * 1024  # of each


class ClientsHandler(Protocol):
    """What is called for clients' connections, from within ``ClientPort.poll``."""

    def on_connect(self, connection_id: int) -> None:
        """A client said Hello and was answered; ids ascend and never come again."""

    def on_frames(self, connection_id: int, buffer: np.ndarray, start: int, end: int) -> int | None:
        """Whole frames, for this call; returns the end of what was taken, None for all."""

    def has_session(self, connection_id: int) -> bool:
        """Whether a session is served over the connection."""

    def on_disconnect(self, connection_id: int) -> None:
        """The connection is gone, called once, whoever closed it. Aeron: the ingress image went away."""


class Heard(IntEnum):
    """Whose words are taken by a member that takes nothing of clients with sessions."""

    READERS = 0  # and administrators; clients wait for a HelloReply, and ask other members meanwhile
    GREETINGS = 1  # of clients, too
    STRANGERS = 2  # clients that ask for a session


@dataclass(slots=True, eq=False)
class _Client:
    """What the port remembers of a connection beside its socket."""

    connection: Connection
    host: str  # over TCP: in whose share it is
    address: str
    dialled_session: int | None  # for which it was made
    opened_ns: int
    deadline_ns: int = 0  # of the next byte taken, while some are queued; of the peer's close when finishing
    partial_ns: int = 0  # since when it holds the start of a frame, 0: none
    buffered: int = 0  # bytes of memory for what it received
    has_asked: bool = False  # its Hello came, and was left for later
    is_known: bool = False  # its Hello was answered, so the handler hears of it
    sent: int = 0  # bytes that its socket had taken at the last sweep


_connection_id = attrgetter("connection_id")
_buffered = attrgetter("buffered")


class ClientPort:
    """Listens for clients on TCP and Unix sockets; polled and called by one thread."""

    def __init__(
        self,
        listen: Sequence[Endpoint],
        *,
        poller: Poller,
        member_id: int,
        cluster_id: int,
        incarnation: int,
        message_length_max: int,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        on_error: Callable[[ClusterError], None] = lambda error: None,
        hand_over: Callable[[HandedOver], None] | None = None,
        bounds: Bounds = DEFAULT_BOUNDS,
        tls: MemberTls | None = None,
        outsiders: Outsiders | None = None,
        dial: Callable[[int, str, int], None] = lambda *_: None,
    ) -> None:
        """Listen at every endpoint, or at none and raise ``PortInUse`` with the address that is taken.

        ``message_length_max`` counts the SBE header too. ``on_error`` hears of clients that were cut off.
        ``hand_over`` takes the sockets of readers of the log, with what they sent after their Hello; without
        it they are refused. With ``tls`` nothing else is spoken over TCP.
        ``outsiders`` are who has ended lives before this one. ``dial`` reaches the client of a session (id,
        response channel, response stream id) and makes a connection for it.
        """
        self._poller = poller
        self._clock_ns = clock_ns
        self._on_error = on_error
        self._hand_over = hand_over
        self._tls = tls
        self._outsiders = outsiders or Outsiders()
        self.dial = dial
        self._cluster_id = cluster_id
        self._frame_length_max = HEADER_LENGTH + message_length_max
        self._bounds = bounds
        self._reply = link.HelloReply(
            member_id=member_id,
            incarnation=incarnation,
            cluster_id=cluster_id,
            protocol_version=link.LINK_PROTOCOL_VERSION,
            code=link.LinkErrorCode.OK,
            message_length_max=message_length_max,
        )
        self._receive_buffer = ReceiveBuffer()
        self._clients: dict[int, _Client] = {}
        self._strangers: dict[int, _Client] = {}  # no session was seen, by ascending id
        self._hosts: Counter[str] = Counter()  # connections over TCP
        self._buffered_bytes = 0  # of all clients
        self._queued: dict[int, _Client] = {}  # with bytes that their sockets have not taken
        self._ready: list[Connection] = []
        # By ``connect``, not accepted yet.
        self._made: deque[tuple[socket.socket, str | None, str, int | None]] = deque()
        self._is_shut_down = False
        self._connection_id = 0  # of the newest
        self._last_served = 0
        self._next_sweep_ns = 0
        self._fill = FillLevel("connections_max", self._report)
        self._listeners: list[Listener] = []
        try:
            for endpoint in listen:
                self._listeners.append(Listener(endpoint, poller, self._report))
        except ClusterError:
            self.shutdown()
            raise

    @property
    def endpoints(self) -> list[Endpoint]:
        """Where it listens, with the ports that were given where 0 was asked for."""
        return [listener.endpoint for listener in self._listeners]

    @property
    def has_ready(self) -> bool:
        """Whether connections have sent what no ``poll`` has taken yet."""
        return bool(self._ready)

    @property
    def connection_count(self) -> int:
        return len(self._clients)

    def connect(
        self, certificate_name: str | None, peer: str, session_id: int | None = None
    ) -> socket.socket:
        """A client's end of a new connection, made within this process; called from any thread.

        ``peer`` is the host of the client for whom it is, ``session_id`` the open session for which it was
        dialled. ``certificate_name`` is that of the client: no other process can claim one like this.
        Raises ConnectionRefusedError when the port is shut down.
        """
        if self._is_shut_down:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        ours, theirs = socket.socketpair()
        self._made.append((ours, certificate_name, peer, session_id))
        self._poller.wake()
        return theirs

    # -- the duty cycle --

    def poll(self, handler: ClientsHandler) -> int:
        """Take one turn; returns how many connections had something taken from them."""
        now_ns = self._clock_ns()
        work = self._accept_new(now_ns, handler)
        if self._queued:
            self._resume_readers()
        if now_ns >= self._next_sweep_ns:
            self._sweep(now_ns, handler)
        ready = self._ready
        if not ready:
            return work
        self._ready = []
        if len(ready) > 1:
            ready.sort(key=_connection_id)
            first = bisect_right(ready, self._last_served, key=_connection_id)
            ready = ready[first:] + ready[:first]
        budget = BYTES_PER_POLL_MAX
        strangers = 0
        for index, connection in enumerate(ready):
            if budget <= 0:
                self._ready.extend(ready[index:])
                break
            is_stranger = self._is_stranger(connection.connection_id, handler)
            strangers += is_stranger
            if is_stranger and strangers > STRANGERS_PER_POLL_MAX:
                self._ready.append(connection)
                continue
            taken = self._serve(
                connection, handler, STRANGER_BYTES_PER_POLL_MAX if is_stranger else RECEIVE_BUFFER_LENGTH
            )
            self._last_served = connection.connection_id
            budget -= taken
            work += taken > 0
        return work

    def greet(self, handler: ClientsHandler, heard: Heard) -> int:
        """Take a turn with those alone who have not said Hello, or have no session; returns how many."""
        if self._hand_over is None and heard is not Heard.STRANGERS:
            return 0
        now_ns = self._clock_ns()
        work = self._accept_new(now_ns, handler)
        ready, self._ready = self._ready, []
        for connection in ready:
            client = self._clients.get(connection.connection_id)
            if client is None or self._is_waiting(client, heard, handler) or work >= STRANGERS_PER_POLL_MAX:
                self._ready.append(connection)
                if client is not None and now_ns > self._next_sweep_ns + SWEEP_INTERVAL_NS:
                    client.opened_ns = now_ns  # nobody is late while nobody is polled
            else:
                self._serve(connection, handler, STRANGER_BYTES_PER_POLL_MAX, heard)
                work += 1
        return work

    def _is_waiting(self, client: _Client, heard: Heard, handler: ClientsHandler) -> bool:
        """Whether nothing that it says is taken now."""
        if client.is_known:
            connection_id = client.connection.connection_id
            return not (heard is Heard.STRANGERS and self._is_stranger(connection_id, handler))
        return client.has_asked and heard is Heard.READERS

    def _accept_new(self, now_ns: int, handler: ClientsHandler) -> int:
        """Returns how many connections there are more."""
        before = self._connection_id
        for listener in self._listeners:
            for sock in listener.accept():
                self._accept(sock, now_ns, handler)
        for _ in range(min(len(self._made), ACCEPTS_PER_POLL_MAX)):
            sock, certificate_name, peer, session_id = self._made.popleft()
            self._accept(sock, now_ns, handler, certificate_name, peer, session_id)
        return self._connection_id - before

    def _is_stranger(self, connection_id: int, handler: ClientsHandler) -> bool:
        if connection_id not in self._strangers:
            return False
        if handler.has_session(connection_id):
            client = self._strangers.pop(connection_id)  # when its session ends it is closed
            client.connection.serve(CLIENT, connection_id)
            return False
        return True

    def _accept(
        self,
        sock: socket.socket,
        now_ns: int,
        handler: ClientsHandler,
        certificate_name: str | None = None,
        peer: str = "",
        session_id: int | None = None,
    ) -> None:
        self._connection_id += 1
        connection = self._connection(
            sock,
            connection_id=self._connection_id,
            on_readable=self._on_readable,
            is_log_allowed=False,
            frame_length_max=self._frame_length_max,
            queue_bytes_max=self._bounds.egress_bytes_max,
        )
        if certificate_name is not None:
            connection.certificate_name = certificate_name
        address = connection.peer_host
        host = sharer_at(address)
        if why := self._make_room(host, handler):
            connection.close(why)
            self._report(f"a client was turned away: {why}")
            return
        connection.serve(STRANGER, self._connection_id)
        client = _Client(connection, host, peer or address, session_id, now_ns)
        self._clients[self._connection_id] = self._strangers[self._connection_id] = client
        self._hosts[host] += 1

    def _connection(self, sock: socket.socket, **options: Any) -> Connection:
        if self._tls is None or sock.family == socket.AF_UNIX:
            return Connection(sock, self._poller, self._receive_buffer, **options)
        refusal = self._reply.replace(code=link.LinkErrorCode.TLS_REQUIRED, detail=SPEAKS_TLS)
        tls = self._tls.accept_client()
        return TlsConnection(
            sock, self._poller, self._receive_buffer, tls, plain_refusal=link_frame(refusal), **options
        )

    def _make_room(self, host: str, handler: ClientsHandler) -> str:
        """Let the oldest stranger go where a bound is reached; returns the bound when there is none."""
        bounds = self._bounds
        is_host_full = host != "" and self._hosts[host] >= bounds.address_connections_max
        if not is_host_full and len(self._clients) < bounds.connections_max:
            return ""
        why = f"{bounds.connections_max} connections are open (connections_max)"
        if is_host_full:
            why = f"{bounds.address_connections_max} connections of {host} (address_connections_max)"
        for connection_id, client in list(self._strangers.items()):
            if (not is_host_full or client.host == host) and self._is_stranger(connection_id, handler):
                self._cut_off(client, f"it has no session, and {why}")
                self._forget(client, client.connection, handler)
                return ""
        return why

    def _on_readable(self, connection: Connection) -> None:
        self._ready.append(connection)

    def _serve(
        self,
        connection: Connection,
        handler: ClientsHandler,
        bytes_max: int,
        heard: Heard = Heard.STRANGERS,
        *,
        even_paused: bool = False,
    ) -> int:
        """Give the handler what a connection holds, also if it ``even_paused``; returns the bytes taken."""
        client = self._clients.get(connection.connection_id)
        if client is None:
            return 0
        connection.is_readable = False  # the poller marks it again as long as there is more
        if connection.is_paused and not connection.is_closed and not even_paused:
            return 0
        try:
            return self._take(client, handler, bytes_max, heard)
        except FATAL:
            raise
        except Exception as error:
            who = self._who(client)
            self._outsiders.on_life_ended(who, self._clock_ns())
            error.add_note(f"client {connection.connection_id}, {who}, was served")
            raise

    def _take(self, client: _Client, handler: ClientsHandler, bytes_max: int, heard: Heard) -> int:
        connection = client.connection
        try:
            has_frames = connection.receive(bytes_max)
            if has_frames and not client.is_known:
                self._greet(client, connection, heard)
                if client.is_known:
                    handler.on_connect(connection.connection_id)
                has_frames = connection.has_frames
        except RemoteProtocolError as error:
            connection.close(str(error))
            at = f" at {client.address}" if isinstance(error, TlsFailed) else ""
            self._report(f"client {connection.connection_id}{at} was cut off: {error}", type(error))
            has_frames = False
        taken = 0
        if has_frames and heard is Heard.STRANGERS:
            start = connection.start
            consumed = handler.on_frames(connection.connection_id, connection.buffer, start, connection.end)
            if consumed is None:
                consumed = connection.end
            taken = consumed - start
            connection.release(consumed)
        self._bound_buffered(client, has_taken=taken > 0)
        if connection.is_closed:
            self._forget(client, connection, handler)
        elif connection.has_frames and not connection.is_readable:
            connection.is_readable = True
            self._ready.append(connection)
        return taken

    def _greet(self, client: _Client, connection: Connection, heard: Heard) -> None:
        hello, end = decode_first(connection.buffer, connection.start, connection.end)
        if not isinstance(hello, link.Hello):
            raise RemoteProtocolError("the first frame is not a Hello")
        if heard is Heard.READERS and hello.kind is link.ConnectionKind.CLIENT:
            client.has_asked = True
            connection.release(connection.start)  # it comes again
            return
        connection.release(end)
        reply = self._reply
        if hello.protocol_version >> 16 != link.LINK_PROTOCOL_VERSION >> 16:
            detail = f"link protocol {hello.protocol_version:#x}, expected {link.LINK_PROTOCOL_VERSION:#x}"
            reply = reply.replace(code=link.LinkErrorCode.WRONG_VERSION, detail=detail)
        elif hello.cluster_id not in (-1, self._cluster_id):
            detail = f"cluster {hello.cluster_id}, but this is cluster {self._cluster_id}"
            reply = reply.replace(code=link.LinkErrorCode.WRONG_CLUSTER, detail=detail)
        elif why := self._outsiders.refusal(self._who(client), self._clock_ns()):
            reply = reply.replace(code=link.LinkErrorCode.REFUSED, detail=why)
        elif hello.kind is not link.ConnectionKind.CLIENT and self._hand_over is None:
            reply = reply.replace(code=link.LinkErrorCode.REFUSED, detail="no readers are served here")
        connection.offer(link_frame(reply))
        if reply.code is not link.LinkErrorCode.OK:
            raise RemoteProtocolError(reply.detail)
        if hello.kind is link.ConnectionKind.CLIENT:
            client.is_known = True
        else:
            assert self._hand_over is not None
            self._hand_over(connection.detach())

    @staticmethod
    def _who(client: _Client) -> str:
        return client.connection.certificate_name or client.address or "a process of this host"

    def _forget(self, client: _Client, connection: Connection, handler: ClientsHandler) -> None:
        del self._clients[connection.connection_id]
        self._strangers.pop(connection.connection_id, None)
        self._hosts[client.host] -= 1
        if not self._hosts[client.host]:
            del self._hosts[client.host]
        self._buffered_bytes -= client.buffered
        self._queued.pop(connection.connection_id, None)
        if client.is_known:
            handler.on_disconnect(connection.connection_id)

    def _sweep(self, now_ns: int, handler: ClientsHandler) -> None:
        """Cut off who opened no session in time, has half a frame, or takes nothing of what is queued."""
        self._next_sweep_ns = now_ns + SWEEP_INTERVAL_NS
        self._fill.update(len(self._clients), self._bounds.connections_max)
        bounds = self._bounds
        paused: list[Connection] = []
        for client in self._clients.values():
            connection = client.connection
            self._bound_buffered(client, has_taken=False)  # kernels may have received since it was served
            if connection.is_paused and not connection.is_finishing:
                client.partial_ns = 0  # it is not the client that keeps the rest of a frame back
                paused.append(connection)
            if connection.is_finishing and not connection.queued_bytes:
                if now_ns > client.deadline_ns:
                    connection.close("the peer did not close its side")
            elif client.partial_ns and now_ns > client.partial_ns + bounds.frame_timeout_ns:
                timeout_s = bounds.frame_timeout_ns / SECOND_NS
                self._cut_off(client, f"half a frame for {timeout_s:g} s (frame_timeout)")
            elif now_ns > client.opened_ns + bounds.session_open_timeout_ns and self._is_stranger(
                connection.connection_id, handler
            ):
                timeout_s = bounds.session_open_timeout_ns / SECOND_NS
                self._cut_off(client, f"no session within {timeout_s:g} s (session_open_timeout)")
            elif connection.queued_bytes:
                sent = connection.position - connection.queued_bytes
                if sent != client.sent:
                    client.sent = sent
                    client.deadline_ns = now_ns + STALL_TIMEOUT_NS
                elif now_ns > client.deadline_ns:
                    self._cut(client, "it took nothing of its egress for too long")
        self._queued = {key: c for key, c in self._queued.items() if c.connection.queued_bytes}
        for connection in paused:  # a little now and then, or its session would seem silent
            self._serve(connection, handler, STRANGER_BYTES_PER_POLL_MAX, even_paused=True)

    def _resume_readers(self) -> None:
        """Take ingress again from clients that have read enough of what waited for them."""
        for client in self._queued.values():
            if client.connection.queued_bytes <= UNREAD_BYTES_MAX:
                client.connection.resume()

    # -- asked by the owner --

    def send(self, connection_id: int, *buffers: Buffer) -> int:
        """Send whole frames, all or nothing: a position > 0, or a code of ``Offer``.

        The buffers are the caller's again on return. A client that reads too slowly is cut off, not
        waited for: then, and for an unknown id, the answer is CLOSED.
        """
        client = self._clients.get(connection_id)
        if client is None:
            return Offer.CLOSED
        connection = client.connection
        result = connection.offer(*buffers)
        if connection.queued_bytes:
            if connection_id not in self._queued:
                self._queued[connection_id] = client
                client.sent = connection.position - connection.queued_bytes
                client.deadline_ns = self._clock_ns() + STALL_TIMEOUT_NS
            if result == Offer.BACK_PRESSURED:
                self._cut(
                    client, f"{connection.queued_bytes} bytes of egress wait to be read (egress_bytes_max)"
                )
                return Offer.CLOSED
            self._bound_queues()
            if connection.is_closed:
                return Offer.CLOSED
            if connection.queued_bytes > UNREAD_BYTES_MAX:
                connection.pause()
        return result

    def _bound_queues(self) -> None:
        total = sum(client.connection.queued_bytes for client in self._queued.values())
        if total > self._bounds.egress_bytes_total_max:
            slowest = max(self._queued.values(), key=lambda client: client.connection.queued_bytes)
            self._cut(slowest, f"{total} bytes of egress wait, most of them here (egress_bytes_total_max)")

    def _bound_buffered(self, client: _Client, *, has_taken: bool) -> None:
        """Note what the connection keeps of what it received; at the bound of all, who keeps most goes."""
        connection = client.connection
        has_taken |= bool(connection.is_part_new)
        connection.is_part_new = 0
        if connection.partial_bytes == 0 or connection.is_closed:
            client.partial_ns = 0
        elif client.partial_ns == 0 or has_taken:
            client.partial_ns = self._clock_ns()
        buffered = 0 if connection.is_closed else connection.buffered_bytes
        self._buffered_bytes += buffered - client.buffered
        client.buffered = buffered
        if self._buffered_bytes > self._bounds.received_bytes_max:
            most = max(self._strangers.values(), key=_buffered, default=client)
            most = most if most.buffered else max(self._clients.values(), key=_buffered)
            why = f"{self._buffered_bytes} bytes are buffered of what clients sent, most of them here"
            self._cut_off(most, f"{why} (received_bytes_max)")
            self._buffered_bytes -= most.buffered
            most.buffered = 0

    def _cut(self, client: _Client, why: str) -> None:
        self._queued.pop(client.connection.connection_id, None)
        self._cut_off(client, f"slow reader: {why}")

    def _cut_off(self, client: _Client, why: str) -> None:
        client.connection.close(why)
        self._report(f"client {client.connection.connection_id} was cut off: {why}")

    def certificate_name(self, connection_id: int) -> str | None:
        """The common name in the client's certificate, verified; None when it has shown none, or is gone."""
        client = self._clients.get(connection_id)
        return None if client is None else client.connection.certificate_name

    def is_over_tcp(self, connection_id: int) -> bool:
        """Whether the client came to a TCP socket of this port; not when it is gone."""
        client = self._clients.get(connection_id)
        return client is not None and client.host != ""

    def address(self, connection_id: int) -> str:
        """That of a client's host, over gRPC, too; empty over a Unix socket, or when the client is gone."""
        client = self._clients.get(connection_id)
        return "" if client is None else client.address

    def dialled_session(self, connection_id: int) -> int | None:
        """The session for which the connection was made; None of one that came by itself, or is gone."""
        client = self._clients.get(connection_id)
        return None if client is None else client.dialled_session

    def is_connected(self, connection_id: int) -> bool:
        """Whether ``send`` can reach the client."""
        client = self._clients.get(connection_id)
        if client is None or not client.is_known:
            return False
        return not client.connection.is_closed and not client.connection.is_finishing

    def close(self, connection_id: int, why: str = "") -> None:
        """Close a connection once its queue is out; ``on_disconnect`` hears ``why``."""
        client = self._clients.get(connection_id)
        if client is not None and not client.connection.is_finishing:
            if why:
                self._report(f"client {connection_id} was cut off: {why}")
            client.connection.finish()
            client.deadline_ns = self._clock_ns() + FINISH_TIMEOUT_NS

    def shutdown(self) -> None:
        """Stop listening and close every connection; the handler hears nothing of it."""
        self._is_shut_down = True
        for listener in self._listeners:
            listener.close()
        while self._made:
            self._made.popleft()[0].close()
        for client in self._clients.values():
            client.connection.close()
        self._clients.clear()
        self._strangers.clear()
        self._queued.clear()
        self._ready.clear()

    def _report(self, what: str, kind: type[RemoteProtocolError] = RemoteProtocolError) -> None:
        self._on_error(kind(what))
