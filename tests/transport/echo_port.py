"""A port where clients connect that echoes, and bare sockets to it."""

import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cluster.protocol import link
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.message_frames import link_frame
from cluster.transport.poller import Poller
from cluster.transport.server import ClientPort
from tests.transport.tls_peer import TlsPeer

DEADLINE_S = 20
HELLO = link_frame(link.Hello(-1, -1, 0, link.LINK_PROTOCOL_VERSION, link.ConnectionKind.CLIENT))
MESSAGE_LENGTH_MAX = 100_000


class Server:
    """A port that echoes, with a handler that remembers."""

    def __init__(self, endpoints, **options):
        self.poller = Poller()
        self.errors = []
        self.kinds = []  # of these
        self.port = ClientPort(
            endpoints,
            poller=self.poller,
            member_id=2,
            cluster_id=0,
            incarnation=1,
            message_length_max=MESSAGE_LENGTH_MAX,
            on_error=self._on_error,
            **options,
        )
        self.trust = None  # of a client, with TLS
        self.told = []
        self.strangers = range(0)  # connections without a session
        self.frames = defaultdict(bytes)
        self.bytes_per_call = None
        self.is_echo = True

    def _on_error(self, error):
        self.errors.append(str(error))
        self.kinds.append(type(error))

    def on_connect(self, connection_id):
        self.told.append(("connect", connection_id))

    def has_session(self, connection_id):
        return connection_id not in self.strangers

    def on_disconnect(self, connection_id):
        self.told.append(("disconnect", connection_id))

    def on_frames(self, connection_id, buffer, start, end):
        if self.bytes_per_call is not None:
            end = min(end, start + self.bytes_per_call)
        self.frames[connection_id] += buffer[start:end].tobytes()
        if self.is_echo:
            self.port.send(connection_id, buffer[start:end])
        return end

    def turn(self):
        self.poller.wait(0.002)
        return self.port.poll(self)

    def turn_until(self, condition):
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, (self.told, self.errors)
            self.turn()

    def stop(self):
        self.port.shutdown()
        self.poller.close()


@contextmanager
def servers() -> Iterator[Callable[..., Server]]:
    """Makes servers, at endpoints or on loopback, that stop at the end."""
    made = []

    def make(*endpoints, **options):
        server = Server(endpoints or (Endpoint(Medium.TCP, "127.0.0.1", 0),), **options)
        made.append(server)
        return server

    try:
        yield make
    finally:
        for server in made:
            server.stop()


def bare(server) -> socket.socket | TlsPeer:
    endpoint = server.port.endpoints[0]
    sock = socket.socket(endpoint.family)
    with endpoint.address() as address:
        sock.connect(address)
    return sock if server.trust is None else TlsPeer(sock, server.trust, server.turn)
