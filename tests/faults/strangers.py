"""A process of strangers: does one thing to a member's port again and again, so many times a second.

    python -m tests.faults.strangers KIND HOST:PORT TIMES_A_SECOND

It prints "ready". Then a line on its standard input begins the work, and the next one ends it: it closes all
connections, and prints how often it acted and the processor time that this took it, in seconds. Of the
connections ``KEPT`` stay open; the oldest makes room for a new one. Calls through TLS believe the authority
that CLUSTER_TLS_CA names: it is no secret.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import grpc

from cluster.protocol import link, session
from cluster.protocol.frame import frame
from cluster.transport.envelopes import seal
from cluster.transport.grpc_service import READ_LOG_METHOD, SESSION_METHOD, STATUS_METHOD
from cluster.transport.message_frames import link_frame, message_frame
from cluster.transport.tls import TLS_VARIABLES

KEPT = 300
CONNECT_TIMEOUT_S = 5.0
OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)  # of a channel
VERSION = link.LINK_PROTOCOL_VERSION
HELLO = link_frame(link.Hello(-1, -1, 0, VERSION, link.ConnectionKind.CLIENT))
READER_HELLO = link_frame(link.Hello(-1, -1, 0, VERSION, link.ConnectionKind.READER))
WHOLE_LOG = link.LogRequest(1, 0, -1, 0)
CONNECTS = b"".join(
    message_frame(session.SessionConnectRequest(number, 102, 768, "aeron:ipc"), 101) for number in range(8)
)


def sealed(frames: bytes) -> bytes:
    """Frames as they stand on a link between members."""
    return b"".join(bytes(part) for part in seal((frames,), 0)[0])


def member_hello(member_id: int) -> bytes:
    return sealed(link_frame(link.Hello(0, member_id, 99, VERSION, link.ConnectionKind.MEMBER)))


def connects_with(credentials: bytes) -> bytes:
    return b"".join(
        message_frame(session.SessionConnectRequest(number, 102, 768, "aeron:ipc", credentials), 101)
        for number in range(4)
    )


class Kept(Protocol):
    def close(self) -> object: ...


Act = Callable[[str], Kept]


def says(data: bytes) -> Act:
    """Connect, say it, and leave the connection open."""

    def act(address: str) -> socket.socket:
        host, _, port = address.rpartition(":")
        sock = socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S)
        sock.setblocking(False)
        with suppress(OSError):
            sock.send(data)
        return sock

    return act


def _tls() -> ssl.SSLContext:
    """Of a stranger, who believes anybody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _client_hello() -> bytes:
    """How a handshake begins."""
    sent = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        _tls().wrap_bio(ssl.MemoryBIO(), sent).do_handshake()
    return sent.read()


def says_through_tls(data: bytes, behind: bytes = b"") -> Act:
    """Shake hands, say it, then say ``behind`` in the clear, and leave the connection open."""

    def act(address: str) -> socket.socket:
        host, _, port = address.rpartition(":")
        sock = socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S)
        with _tls().wrap_socket(sock) as wrapped:
            wrapped.sendall(data)
            kept = socket.socket(fileno=wrapped.detach())
        kept.setblocking(False)
        with suppress(OSError):
            kept.send(behind)
        return kept

    return act


class _Stream:
    """A gRPC channel with one call on it that nobody reads."""

    def __init__(self, channel: grpc.Channel, method: str, *data: bytes) -> None:
        self._channel = channel
        self._call: Any = None
        if method == SESSION_METHOD:
            self._call = self._channel.stream_stream(method)(iter(data))
        elif method == READ_LOG_METHOD:
            self._call = self._channel.unary_stream(method)(data[0])
        else:
            self._call = self._channel.unary_unary(method).future(data[0])

    def close(self) -> None:
        self._call.cancel()
        self._channel.close()


def calls(method: str, *data: bytes) -> Act:
    return lambda address: _Stream(grpc.insecure_channel(address, OWN_CONNECTION), method, *data)


def calls_through_tls(method: str, *data: bytes) -> Act:
    def act(address: str) -> _Stream:
        with open(os.environ[TLS_VARIABLES["ca"]], "rb") as file:
            trust = grpc.ssl_channel_credentials(file.read())
        return _Stream(grpc.secure_channel(address, trust, OWN_CONNECTION), method, *data)

    return act


HANDSHAKE = _client_hello()
HALF_A_FRAME = frame(bytes(60_000), session_id=0, stream_id=101)[:30_000]

CALLS: dict[str, tuple[str, *tuple[bytes, ...]]] = {
    "with garbage": (SESSION_METHOD, b"\xff" * 1000),
    "with half a frame": (SESSION_METHOD, HELLO, HALF_A_FRAME),
    "that open sessions": (SESSION_METHOD, HELLO, CONNECTS),
    "that read nothing": (READ_LOG_METHOD, WHOLE_LOG.encode()),
    "that ask how it stands": (STATUS_METHOD, link.StatusRequest(1).encode()),
}

KINDS: dict[str, Act] = {
    "connections that are left": says(b""),
    "garbage": says(b"GET / HTTP/1.1\r\nHost: cluster\r\n\r\n" * 20),
    "half a frame": says(HELLO + HALF_A_FRAME),
    "sessions": says(HELLO + CONNECTS),
    "readers that read nothing": says(READER_HELLO + link_frame(WHOLE_LOG)),
    "readers that ask how it stands": says(READER_HELLO + link_frame(link.StatusRequest(1)) * 20),
    "readers that say garbage": says(READER_HELLO + b"\xff" * 1000),
    "half a member's frame": says(sealed(frame(bytes(3_000), session_id=0, stream_id=1000))[:2_000]),
    **{f"Hellos in the name of member {id_}": says(member_hello(id_)) for id_ in range(3)},
    "Hellos of nobody": says(member_hello(77)),
    "half a handshake": says(HANDSHAKE[:100]),
    "handshakes that stop": says(HANDSHAKE),
    "garbage after the handshake": says_through_tls(b"", behind=b"\xff" * 1000),
    "garbage through TLS": says_through_tls(b"\xff" * 1000),
    "half a frame through TLS": says_through_tls(HELLO + HALF_A_FRAME),
    "sessions through TLS": says_through_tls(HELLO + CONNECTS),
    "readers that read nothing through TLS": says_through_tls(READER_HELLO + link_frame(WHOLE_LOG)),
    "wrong tokens": says(HELLO + connects_with(b"not the token")),
    "wrong passwords": says(HELLO + connects_with(b"alice:not the password")),
    "passwords of nobody": says(HELLO + connects_with(b"mallory:any")),
    **{f"calls {what}": calls(*call) for what, call in CALLS.items()},
    **{f"calls {what} through TLS": calls_through_tls(*call) for what, call in CALLS.items()},
}


def main(kind: str, address: str, times_a_second: float) -> None:
    act = KINDS[kind]
    lines = open(0, "rb", buffering=0)  # noqa: SIM115  a line that was read ahead would not be selected
    print("ready", flush=True)
    while lines.readline():
        kept: deque[Kept] = deque()
        began, began_cpu, acted = time.monotonic(), time.process_time(), 0
        while True:
            until_next = began + acted / times_a_second - time.monotonic()
            if select.select([lines], [], [], max(0.0, until_next))[0]:
                break
            with suppress(OSError):  # refused, reset, or no room: as strangers fare
                kept.append(act(address))
            acted += 1
            if len(kept) > KEPT:
                kept.popleft().close()
        lines.readline()
        while kept:
            kept.popleft().close()
        print(acted, time.process_time() - began_cpu, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
