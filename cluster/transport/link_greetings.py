"""Connections that members have dialled, until they have said who they are."""

import socket
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from cluster.errors import RemoteProtocolError, TlsFailed
from cluster.protocol import link
from cluster.transport.bounds import SECOND_NS, Bounds
from cluster.transport.envelopes import check_header, decode_first_envelope
from cluster.transport.link_hellos import LinkHellos
from cluster.transport.listener import Listener
from cluster.transport.member_tls import SPEAKS_TLS, MemberTls
from cluster.transport.poller import Poller
from cluster.transport.sockets import FRAME_LENGTH_MAX, Connection, ReceiveBuffer, peer_host_of
from cluster.transport.tls_connection import TlsConnection

GREETINGS_PER_POLL_MAX = 8  # so that a flood of handshakes cannot hold up a turn
KINDS = (link.ConnectionKind.MEMBER, link.ConnectionKind.TOOL)  # the latter only asks who is there


class Greeted(NamedTuple):
    """A member's connection, paused, and the checksum of what came over it."""

    connection: Connection
    hello: link.Hello
    crc: int


class LinkGreetings:
    """Accepts connections, and answers their Hellos; ``on_peer_error`` is given what was wrong with one."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        hellos: LinkHellos,
        poller: Poller,
        receive_buffer: ReceiveBuffer,
        tls: MemberTls | None,
        bounds: Bounds,
        on_peer_error: Callable[[str, type[RemoteProtocolError]], None],
    ) -> None:
        self._listeners = listeners
        self._hellos = hellos
        self._poller = poller
        self._receive_buffer = receive_buffer
        self._tls = tls
        self._bounds = bounds
        self._on_peer_error = on_peer_error
        self._waiting: list[tuple[Connection, int]] = []  # and until when we wait

    @property
    def awaits_events(self) -> bool:
        """Whether another ``poll`` would find nothing but what a socket or time gives it."""
        return not any(connection.is_readable or connection.is_closed for connection, _ in self._waiting)

    def poll(self, now_ns: int) -> Iterator[Greeted | None]:
        """Take one turn; an item for each step that was taken, with the member that it has let in."""
        for listener in self._listeners:
            for sock in listener.accept():
                self._waiting.append((self._accept(sock), now_ns + self._bounds.greeting_timeout_ns))
                yield None
        if not self._waiting:
            return
        still: list[tuple[Connection, int]] = []
        heard = 0
        for connection, deadline_ns in self._waiting:
            if connection.is_readable and heard < GREETINGS_PER_POLL_MAX:
                heard += 1
                greeted = self._take_hello(connection)
                if greeted is not None or connection.is_closed:
                    yield greeted
                    continue
            if connection.is_closed:
                continue
            if now_ns > deadline_ns:
                timeout_s = self._bounds.greeting_timeout_ns / SECOND_NS
                self._turn_away(connection, f"no Hello within {timeout_s:g} s (greeting_timeout)")
            else:
                still.append((connection, deadline_ns))
        greetings_max = self._bounds.greetings_max
        for connection, _ in still[:-greetings_max]:
            self._turn_away(
                connection, f"more than {greetings_max} have not said who they are (greetings_max)"
            )
        self._waiting = still[-greetings_max:]

    def _accept(self, sock: socket.socket) -> Connection:
        make: Callable[..., Connection] = Connection
        if self._tls is not None and sock.family != socket.AF_UNIX:
            refusal = b"".join(map(bytes, self._hellos.reply(link.LinkErrorCode.TLS_REQUIRED, SPEAKS_TLS)))
            make = partial(
                TlsConnection, tls=self._tls.accept_member(peer_host_of(sock)), plain_refusal=refusal
            )
        return make(
            sock,
            self._poller,
            self._receive_buffer,
            frame_length_max=self._bounds.greeting_length_max,
            check_header=check_header,
        )

    def _turn_away(
        self, connection: Connection, why: str, kind: type[RemoteProtocolError] = RemoteProtocolError
    ) -> None:
        self._on_peer_error(f"an unknown peer: {why}", kind)
        connection.close(why)

    def _take_hello(self, connection: Connection) -> Greeted | None:
        """Read who dialled us, and answer; None where nothing is there yet, or it is closed."""
        try:
            if not connection.receive():
                return None
        except TlsFailed as error:
            self._turn_away(connection, str(error), TlsFailed)
            return None
        except RemoteProtocolError as error:
            self._turn_away(connection, f"{error} (greeting_length_max)")
            return None
        try:
            hello, crc = decode_first_envelope(connection)
            if not isinstance(hello, link.Hello) or hello.kind not in KINDS:
                raise RemoteProtocolError("the first frame is not a member's Hello")
        except RemoteProtocolError as error:
            connection.offer(*self._hellos.reply(link.LinkErrorCode.REFUSED, str(error)))
            self._turn_away(connection, str(error))
            return None
        code, detail = self._hellos.judge(hello, connection)
        connection.offer(*self._hellos.reply(code, detail))
        if code is not link.LinkErrorCode.OK:
            kind = TlsFailed if code is link.LinkErrorCode.UNAUTHORISED else RemoteProtocolError
            self._on_peer_error(f"a peer that calls itself member {hello.member_id}: {detail}", kind)
            connection.close(detail)
            return None
        if hello.kind is link.ConnectionKind.TOOL:
            connection.close()
            return None
        connection.pause()
        connection.frame_length_max = FRAME_LENGTH_MAX
        return Greeted(connection, hello, crc)

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        for connection, _ in self._waiting:
            connection.close()
        self._waiting.clear()
