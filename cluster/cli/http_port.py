"""A small HTTP/1.1 server: one request a connection, and bounds on all that a stranger may take.

At most so many connections, and so many of one address; each has a few seconds for its handshake, its request
and its answer, however slowly it reads. What is no request is closed without a word.
"""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

from cluster.transport.member_tls import ServerTls

CONNECTIONS_MAX = 64
ADDRESS_CONNECTIONS_MAX = 16
EXCHANGE_TIMEOUT_S = 15.0  # a status waits two seconds for each member that does not answer
REQUEST_BYTES_MAX = 16 * 1024
ACCEPT_PAUSE_S = 0.1  # while descriptors have run out


class HttpRequest(NamedTuple):
    """``headers`` by names in lower case. ``peer`` is an address, ``certificate_name`` what it has shown."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    peer: str
    certificate_name: str | None


class Response(NamedTuple):
    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = {}


Answer = Callable[[HttpRequest], Awaitable[Response]]


@dataclass(eq=False)
class HttpPort:
    """Serves what comes to a listening socket. No content of a request is read, whatever its method."""

    sock: socket.socket
    answer: Answer
    tls: ServerTls | None = None
    methods: Sequence[str] = ("GET", "HEAD")
    address_connections_max: int = ADDRESS_CONNECTIONS_MAX
    _serving: set[asyncio.Task[None]] = field(default_factory=set)
    _by_address: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.sock.setblocking(False)

    async def run(self) -> None:
        """Serve until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(self.sock)
            except OSError:
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            peer = address[0]
            most = self.address_connections_max
            if len(self._serving) >= CONNECTIONS_MAX or self._by_address[peer] >= most:
                sock.close()
                continue
            self._by_address[peer] += 1
            task = loop.create_task(self._serve(sock, peer))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

    async def _serve(self, sock: socket.socket, peer: str) -> None:
        try:
            # A stranger's faults, and a time-out, end the connection and nothing else.
            with contextlib.suppress(OSError, ValueError, EOFError, asyncio.LimitOverrunError):
                async with asyncio.timeout(EXCHANGE_TIMEOUT_S):
                    await self._exchange(sock, peer)
        finally:
            sock.close()
            self._by_address[peer] -= 1
            if not self._by_address[peer]:
                del self._by_address[peer]

    async def _exchange(self, sock: socket.socket, peer: str) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=REQUEST_BYTES_MAX)
        transport, protocol = await loop.connect_accepted_socket(
            lambda: asyncio.StreamReaderProtocol(reader),
            sock,
            ssl=None if self.tls is None else self.tls.clients,
            ssl_handshake_timeout=None if self.tls is None else EXCHANGE_TIMEOUT_S,
        )
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            name = _common_name(transport.get_extra_info("peercert"))
            request = _parse(head.decode("latin-1"), peer, name)
            writer = asyncio.StreamWriter(transport, protocol, reader, loop)
            writer.write(_encoded(request, await self._answered(request)))
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        finally:
            transport.abort()

    async def _answered(self, request: HttpRequest) -> Response:
        if request.method not in self.methods:
            allowed = ", ".join(self.methods)
            return Response(
                HTTPStatus.METHOD_NOT_ALLOWED, f"{allowed}\n".encode(), headers={"Allow": allowed}
            )
        return await self.answer(request)


def _parse(head: str, peer: str, certificate_name: str | None) -> HttpRequest:
    """Raises ValueError for what is no request."""
    line, *fields = head.removesuffix("\r\n\r\n").split("\r\n")
    method, target, version = line.split(" ")
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise ValueError(version)
    where = urlsplit(target)
    headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
    return HttpRequest(method, where.path, where.query, headers, peer, certificate_name)


def _encoded(request: HttpRequest, response: Response) -> bytes:
    headers = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(response.body)),
        "Cache-Control": "no-store",
        "Connection": "close",
        **response.headers,
    }
    status = response.status
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {headers[name]}" for name in headers)]
    head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    return head if request.method == "HEAD" else head + response.body


def _common_name(certificate: Mapping[str, object] | None) -> str | None:
    """Of a certificate as ``SSLSocket.getpeercert`` has it; None where none was shown."""
    subject: object = (certificate or {}).get("subject", ())
    assert isinstance(subject, tuple)
    return dict(pair for relative in subject for pair in relative).get("commonName")
