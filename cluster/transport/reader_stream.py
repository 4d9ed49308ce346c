"""A reader's socket on an event loop, once the member has handed it over: in the clear or through TLS."""

import asyncio

from cluster.transport.handed_over import HandedOver


class ReaderStream:
    """Raises OSError when the reader is gone, and TlsFailed."""

    def __init__(self, reader: HandedOver) -> None:
        self._sock = reader.sock
        self._tls = reader.tls

    async def receive(self, bytes_max: int) -> bytes:
        """What came, at most ``bytes_max``; empty at the end."""
        loop = asyncio.get_running_loop()
        if self._tls is None:
            return await loop.sock_recv(self._sock, bytes_max)
        buffer = bytearray(bytes_max)
        while (count := self._tls.read_into(memoryview(buffer))) == 0:
            data = await loop.sock_recv(self._sock, bytes_max)
            if not data:
                return b""
            self._tls.feed(data)
        return bytes(buffer[: count or 0])

    def _sealed(self, data: bytes) -> bytes:
        if self._tls is None:
            return data
        self._tls.seal(data)
        return self._tls.take()

    async def send(self, data: bytes) -> None:
        """Wait until the socket has taken it."""
        await asyncio.get_running_loop().sock_sendall(self._sock, self._sealed(data))

    def send_at_once(self, data: bytes) -> None:
        """Send as much as the socket takes now."""
        self._sock.send(self._sealed(data))
