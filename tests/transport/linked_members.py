"""Members that have nothing but their links, for tests that turn them."""

import socket
import time
from collections import defaultdict
from collections.abc import Mapping

from cluster.errors import TlsFailed
from cluster.protocol import link
from cluster.transport.bounds import DEFAULT_BOUNDS
from cluster.transport.endpoint import Endpoint
from cluster.transport.envelopes import seal
from cluster.transport.links import MemberLinks
from cluster.transport.poller import Poller

DEADLINE_S = 20
SECRET_OF = {link.incarnation_of(secret): secret for secret in range(100)}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def sealed(frames: bytes) -> bytes:
    return b"".join(bytes(part) for part in seal((frames,), 0)[0])


class LinkedMember:
    """A member's end of its links, with a handler that remembers."""

    local: Mapping[int, Endpoint] = {}  # the Unix sockets of all

    def __init__(
        self,
        member_id,
        endpoints,
        incarnation=1,
        clock_ns=time.monotonic_ns,
        cluster_id=0,
        bounds=DEFAULT_BOUNDS,
        tls=None,
    ):
        self.member_id = member_id
        self.poller = Poller()
        self.errors: list[str] = []
        self.of_tls: list[str] = []
        self.links = MemberLinks(
            member_id,
            endpoints[member_id],
            endpoints,
            secret=incarnation,
            cluster_id=cluster_id,
            poller=self.poller,
            clock_ns=clock_ns,
            on_error=self._on_error,
            bounds=bounds,
            local=self.local,
            tls=tls,
        )
        self.told = []
        self.frames = defaultdict(bytes)

    def _on_error(self, error):
        self.errors.append(str(error))
        if isinstance(error, TlsFailed):
            self.of_tls.append(str(error))

    def on_link_up(self, member_id, incarnation):
        self.told.append(("up", member_id, SECRET_OF[incarnation]))

    def on_link_down(self, member_id):
        self.told.append(("down", member_id))

    def on_member_gone(self, member_id):
        self.told.append(("gone", member_id))

    def on_frames(self, member_id, buffer, start, end):
        self.frames[member_id] += buffer[start:end].tobytes()

    def turn(self):
        self.poller.wait(0.002)
        self.links.poll(self)

    def stop(self):
        self.links.close()
        self.poller.close()


def turn_until(condition, *members):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, [member.told for member in members]
        for member in members:
            member.turn()


def linked(*members):
    return all(a.links.is_up(b.member_id) for a in members for b in members if a is not b)
