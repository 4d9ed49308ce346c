"""The other end of a TLS connection in a test's own hands: says what it likes, through TLS."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Self

from cluster.transport.tls import TlsFiles, TlsSession, client_context


class TlsPeer:
    """As much of a socket as tests use of it."""

    def __init__(
        self, sock: socket.socket, files: TlsFiles, turn: Callable[[], object], server_name: str = "127.0.0.1"
    ) -> None:
        """Shakes hands; ``turn`` lets the other side go on with it."""
        self._sock = sock
        self._tls = TlsSession(client_context(files), "the server", server_name=server_name)
        sock.setblocking(False)
        is_done = False
        while not is_done:
            is_done = self._tls.shake_hands()
            sock.sendall(self._tls.take())
            turn()
            if not is_done:
                self._pull()
        sock.setblocking(True)

    def _pull(self) -> bool:
        try:
            data = self._sock.recv(65536)
        except BlockingIOError:
            return True
        self._tls.feed(data)
        return bool(data)

    def setblocking(self, is_blocking: bool) -> None:
        self._sock.setblocking(is_blocking)

    def sendall(self, data: bytes) -> None:
        self._tls.seal(data)
        self._sock.sendall(self._tls.take())

    def end(self, data: bytes) -> None:
        """Say ``data`` and the end of the stream at once."""
        self._tls.seal(data)
        self._tls.end()
        self._sock.sendall(self._tls.take())
        self._sock.shutdown(socket.SHUT_WR)

    def recv(self, bytes_max: int) -> bytes:
        buffer = bytearray(bytes_max)
        while (count := self._tls.read_into(memoryview(buffer))) == 0:
            data = self._sock.recv(65536)
            if not data:
                return b""
            self._tls.feed(data)
        return bytes(buffer[: count or 0])

    def close(self) -> None:
        self._sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
