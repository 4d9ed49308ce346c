"""Members' ports: whatever a stranger says there, the member lives, and a client is served as before."""

from __future__ import annotations

import contextlib
import gc
import socket
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc

from cluster import ClusterClient, ClusterNode
from cluster.protocol import link
from cluster.protocol.frame import frame
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.grpc_service import READ_LOG_METHOD, SESSION_METHOD, STATUS_METHOD
from cluster.transport.message_frames import link_frame
from cluster.transport.tls import TlsFiles
from tests.fuzz.targets import FRAMES, LINK_MESSAGES, SEALED, VERSION, Target
from tests.member.cluster_steps import a_cluster_with_a_client
from tests.member.in_memory.cluster import MS
from tests.member.in_memory.stranger import Stranger
from tests.node.processes import await_that, endpoints_of, keys_of
from tests.transport.authorities import Certificates
from tests.transport.linked_members import LinkedMember, free_port, linked, turn_until

HELLO = FRAMES[6]
READER_HELLO = link_frame(link.Hello(-1, -1, 0, VERSION, link.ConnectionKind.READER))
HANDLER_FAILED = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)


class Ingress(Target):
    """Frames of a client that has been greeted, to a member in memory: all that a session may say."""

    slice = 100
    corpus = FRAMES

    def __init__(self) -> None:
        self._cluster, self._client = a_cluster_with_a_client(members=1)

    def feed(self, data: bytes) -> str:
        stranger = Stranger(self._cluster.members[0])
        stranger.connection.send(data)
        self._cluster.run(2 * MS)
        stranger.connection.close()
        heard = sorted({type(message).__name__ for message in stranger.heard})
        return f"{heard} {stranger.is_closed}"

    def check(self) -> None:
        """Then a new cluster, without the old one: the simulated world keeps all that ever connected."""
        self._client.send(b"0:a message")
        self._cluster.await_settled()
        self._cluster.check()
        assert self._cluster.leader is not None
        self._cluster, self._client = a_cluster_with_a_client(members=1)
        gc.collect()


class MemberPort(Target):
    """The first bytes of a connection to a link's port, beside a link that stands."""

    slice = 100
    corpus = SEALED

    def __init__(self) -> None:
        self._endpoints = {n: Endpoint(Medium.TCP, "127.0.0.1", free_port()) for n in range(2)}
        self._members = [LinkedMember(n, self._endpoints, incarnation=10 + n) for n in range(2)]
        turn_until(lambda: linked(*self._members), *self._members)

    def feed(self, data: bytes) -> str:
        member = self._members[0]
        before = len(member.errors)
        with socket.create_connection(("127.0.0.1", self._endpoints[0].port)) as sock:
            with contextlib.suppress(ConnectionError):
                sock.sendall(data)
            for _ in range(3):
                member.turn()
        said = member.errors[before:]
        return "".join(c for c in " ".join(said)[:80] if c.isalpha() or c == " ")

    def check(self) -> None:
        payload = frame(b"from a member", session_id=0, stream_id=108)
        member, other = self._members
        before = len(other.frames[0])
        assert member.links.send(1, payload) > 0
        turn_until(lambda: other.frames[0][before:] == payload, member, other)

    def close(self) -> None:
        for member in self._members:
            member.stop()


class NodePort(Target):
    """One port of a real member of this process, in the clear or with TLS."""

    slice = 100

    def __init__(self, corpus: Sequence[bytes], medium: str, port_offset: int, *, is_tls: bool) -> None:
        self.corpus = corpus
        self._opened = contextlib.ExitStack()
        folder = Path(self._opened.enter_context(tempfile.TemporaryDirectory(prefix="fuzz-")))
        keys = keys_of(folder)
        tls: TlsFiles | None = None
        if is_tls:
            certificates = Certificates(folder)
            files, tls = certificates.member(0), certificates.trust
            keys |= {"tls_ca": files.ca, "tls_certificate": files.certificate, "tls_key": files.key}
        self._node = self._opened.enter_context(ClusterNode.launch(**keys))
        await_that(lambda: self._node.is_leader, "a leader")
        self._heard: list[bytes] = []
        self._client = self._opened.enter_context(
            ClusterClient.connect(
                endpoints_of(self._node, medium),
                lambda id_, at, payload: self._heard.append(bytes(payload)),
                tls=tls,
            )
        )
        ingress = self._node.config.member.ingress_endpoint
        host, _, port = ingress.rpartition(":")
        self.address = (host, int(port) + port_offset)

    def feed(self, data: bytes) -> str:
        with socket.create_connection(self.address, timeout=10) as sock:
            try:
                sock.sendall(data)
                sock.settimeout(0.005)
                return f"answered {len(sock.recv(65536)) > 0}"
            except TimeoutError:
                return "silence"
            except OSError as error:
                return type(error).__name__

    def check(self) -> None:
        before = len(self._heard)
        assert self._client.offer(b"as before") > 0
        await_that(lambda: self._client.poll_egress() >= 0 and len(self._heard) > before, "the answer")
        assert self._node.is_running and not self._client.is_closed

    def close(self) -> None:
        self._opened.close()


class Calls(NodePort):
    """Messages of gRPC calls, in the clear: none is answered by a handler that has failed."""

    def __init__(self) -> None:
        super().__init__([*FRAMES, *(m.encode() for m in LINK_MESSAGES)], "grpc", 0, is_tls=False)
        self._channel = grpc.insecure_channel(f"{self.address[0]}:{self.address[1]}")
        self._opened.callback(self._channel.close)
        self._calls: list[Callable[[bytes], list[bytes]]] = [
            lambda data: list(self._channel.stream_stream(SESSION_METHOD)(iter([HELLO, data]), timeout=0.05)),
            lambda data: list(self._channel.unary_stream(READ_LOG_METHOD)(data, timeout=2)),
            lambda data: [self._channel.unary_unary(STATUS_METHOD)(data, timeout=2)],
            lambda data: list(
                self._channel.stream_stream("/cluster.Frames/Session")(iter([data]), timeout=0.05)
            ),
            lambda data: list(self._channel.unary_stream("/cluster.Frames/ReadLog")(data, timeout=2)),
        ]

    def feed(self, data: bytes) -> str:
        call = self._calls[sum(data[:64]) % len(self._calls)]
        try:
            return f"{len(call(data)) > 0}"
        except grpc.RpcError as error:
            assert error.code() not in HANDLER_FAILED, error.details()
            return f"{error.code()}"


class Readers(NodePort):
    """What a reader asks over tcp once it is greeted."""

    def __init__(self) -> None:
        super().__init__(FRAMES[6:], "tcp", 1, is_tls=False)

    def feed(self, data: bytes) -> str:
        return super().feed(READER_HELLO + data)


PORTS: dict[str, Callable[[], Target]] = {
    "ingress": Ingress,
    "link-port": MemberPort,
    "tcp-port": lambda: NodePort([*FRAMES, HELLO + b"".join(FRAMES)], "tcp", 1, is_tls=False),
    "readers": Readers,
    "grpc-calls": Calls,
    "tcp-port-tls": lambda: NodePort(
        [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(508), *FRAMES], "tcp", 1, is_tls=True
    ),
    "grpc-port-tls": lambda: NodePort(FRAMES, "grpc", 0, is_tls=True),
    "link-port-tls": lambda: NodePort(SEALED, "tcp", 2, is_tls=True),
}
