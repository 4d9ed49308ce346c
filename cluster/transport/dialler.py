"""The client's end: connections to members over any medium, and the clock and the waiting beside them."""

from __future__ import annotations

import os
import time

from cluster.protocol.resume import TOKEN_LENGTH
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.poller import Poller
from cluster.transport.sockets import Connection, ReceiveBuffer, dial


class Dialler:
    """Makes connections that one thread polls; what a client sees of the world."""

    def __init__(self) -> None:
        self._poller = Poller()
        self._receive_buffer = ReceiveBuffer()

    def now_ns(self) -> int:
        """Monotonic time."""
        return time.monotonic_ns()

    def wait(self, timeout_s: float) -> None:
        """Mark what is ready; sleep until something is, at most ``timeout_s``."""
        self._poller.wait(timeout_s)

    def wake(self) -> None:
        """End a ``wait`` from another thread."""
        self._poller.wake()

    def dial(self, endpoint: Endpoint) -> Connection:
        """Start to connect and return at once; a connection that could not be made shows as closed."""
        if endpoint.medium is Medium.GRPC:
            # Loading gRPC takes longer than a short-lived client over a socket lives.
            from cluster.transport.grpc_client import open_session

            stream = open_session(endpoint)
            return Connection(stream.sock, self._poller, self._receive_buffer, explain=stream.explain)
        return dial(endpoint, self._poller, self._receive_buffer)

    def response_channel(self, connection: Connection, endpoint: Endpoint) -> str:
        """The Aeron channel that a session's egress would have: recorded in the log, and used by nobody here.

        A real Aeron node that replays the log parses it, so it must be one that it understands.
        """
        if endpoint.medium is Medium.TCP:
            host, port = connection.local_address
            host = f"[{host}]" if ":" in host else host
            return f"aeron:udp?endpoint={host}:{port}"
        return "aeron:ipc"

    def resume_token(self) -> bytes:
        """What proves that a session is this client's (protocol/resume.py)."""
        return os.urandom(TOKEN_LENGTH)

    def close(self) -> None:
        """Release the poller. Connections are their owners' to close, before this."""
        self._poller.close()
