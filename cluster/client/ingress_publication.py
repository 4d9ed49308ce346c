"""Connections to members as a client needs them: greeted, one a member, dialled again when lost."""

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from cluster.errors import RemoteProtocolError, TlsFailed
from cluster.protocol import Message, decode, link, session, streams
from cluster.protocol.arrays import np
from cluster.protocol.enums import Offer
from cluster.protocol.frame import align
from cluster.transport.endpoint import Endpoint, Medium, adopt_endpoints, describe_member
from cluster.transport.message_frames import decode_first_frame, each_frame, link_frame, message_frame
from cluster.transport.sockets import Buffer

DIAL_INTERVAL_NS = 100_000_000
SILENT_MEMBER = "connected, but not answered: a member without a leader, a busy one, or another program"
SILENT_DRIVER = "neither the media driver nor a member has answered yet"
DIAL_TIMEOUT_NS = 3_000_000_000  # then the next address of its name is tried


class MemberConnection(Protocol):
    """What a client asks of a connection; ``cluster.transport.sockets.Connection`` is one."""

    buffer: np.ndarray
    start: int
    end: int
    is_closed: bool
    is_readable: bool
    incompatibility: type[RemoteProtocolError] | None
    why_closed: str

    @property
    def is_connected(self) -> bool: ...

    @property
    def has_frames(self) -> bool: ...

    def receive(self) -> bool: ...

    def release(self, consumed_end: int) -> None: ...

    def advance(self, consumed_end: int) -> None: ...

    def offer(self, *buffers: Buffer) -> int: ...

    def write(self, buffer: Buffer) -> int: ...

    def want_writable(self) -> None: ...

    def discard(self) -> bool: ...

    @property
    def is_finishing(self) -> bool: ...

    def finish(self) -> None: ...

    def close(self, why: str = ...) -> None: ...


class World(Protocol):
    """Connections, time and waiting; ``cluster.transport.dialler.Dialler`` is the real one."""

    def now_ns(self) -> int: ...

    def poll(self) -> None:
        """Mark the connections that are ready; never waits."""

    def wait(self, timeout_s: float, *, is_due: bool = False) -> None:
        """Sleep until ``poll`` would find something, which ``is_due`` at once, at most ``timeout_s``."""

    def wake(self) -> None:
        """End a ``wait`` that another thread is in."""

    def warn(self, line: str) -> None:
        """A line for whoever runs the client."""

    def fileno(self) -> int:
        """A descriptor that is readable when a ``wait`` would end."""

    def run_beside(self, duty: Callable[[], float | None]) -> None:
        """Call ``duty`` from a thread after as many seconds as it returns, until None, or it is gone."""

    def call_soon(self) -> None:
        """Have the duty of ``run_beside`` called now."""

    def dial(self, endpoint: Endpoint) -> MemberConnection: ...

    def response_channel(self, connection: MemberConnection, endpoint: Endpoint) -> str: ...

    def resume_token(self) -> bytes:
        """128 random bits that nobody can guess."""

    def on_forked(self, why: str) -> None:
        """As ``cluster.transport.forks`` says."""

    def close(self) -> None: ...


class IngressPublication:
    """One member's connection, usable after its HelloReply, which gives an unknown id."""

    def __init__(
        self, member_id: int, endpoint: Endpoint, connection: MemberConnection, cluster_id: int
    ) -> None:
        self.member_id = member_id
        self.endpoint = endpoint
        self.connection = connection
        self.message_length_max = 0  # SBE header included; 0: not known
        self.dial_ns = 0
        self.asked_ns = 0  # when a session was last asked for over it
        self.is_connected = False
        self._is_greeted = False
        self._cluster_id = cluster_id

    @property
    def is_closed(self) -> bool:
        return self.connection.is_closed

    def is_unanswered(self, now_ns: int) -> bool:
        """Whether its dial is to be made again."""
        connection = self.connection
        is_dialling = not (connection.is_connected or connection.is_closed)
        return is_dialling and now_ns - self.dial_ns > DIAL_TIMEOUT_NS

    def do_work(self) -> None:
        """Say Hello and hear the reply; a refusal closes the connection, which says why."""
        connection = self.connection
        if self.is_connected or connection.is_closed:
            return
        if not self._is_greeted and connection.is_connected:
            self._is_greeted = True
            connection.offer(
                link_frame(
                    link.Hello(
                        cluster_id=self._cluster_id,
                        member_id=-1,
                        secret=0,
                        protocol_version=link.LINK_PROTOCOL_VERSION,
                        kind=link.ConnectionKind.CLIENT,
                    )
                )
            )
        if not connection.is_readable:
            return
        try:
            if not connection.receive():
                return
            reply = decode_first_frame(connection)
            if not isinstance(reply, link.HelloReply):
                raise RemoteProtocolError("the first frame is not a HelloReply")
        except RemoteProtocolError as error:
            connection.incompatibility = type(error)
            connection.close(str(error))
            return
        if reply.code is not link.LinkErrorCode.OK:
            is_tls = reply.code is link.LinkErrorCode.TLS_REQUIRED
            connection.incompatibility = TlsFailed if is_tls else None
            connection.close(reply.detail)
            return
        if self.member_id < 0:
            self.member_id = reply.member_id
        self.message_length_max = reply.message_length_max
        self.is_connected = True

    def offer(self, message: Message, stream_id: int = streams.INGRESS) -> int:
        """Send one message: a position > 0, or a code of ``Offer``."""
        if not self.is_connected:
            return Offer.NOT_CONNECTED
        return self.connection.offer(message_frame(message, stream_id))

    def receive(self) -> Iterator[Message]:
        """Messages other than a session's own that came: replies to what was asked while connecting.

        Who stops in the middle leaves the rest on the connection: after the reply that opens or resumes a
        session its egress and acknowledgements may have come already.
        """
        connection = self.connection
        if not (connection.is_readable or connection.has_frames):
            return
        try:
            connection.receive()
            while connection.has_frames:
                stream_id, offset, length = next(
                    each_frame(connection.buffer, connection.start, connection.end)
                )
                message = _decode(connection.buffer, stream_id, offset, length)
                connection.release(align(offset + length))
                if message is not None:
                    yield message
        except RemoteProtocolError as error:
            connection.close(str(error))


def _decode(buffer: np.ndarray, stream_id: int, offset: int, length: int) -> Message | None:
    """Decode a message of the two schemas that we know; others, and session messages, are passed over."""
    if stream_id not in (streams.EGRESS, streams.LINK):
        return None
    try:
        message = decode(buffer, offset, length)
    except RemoteProtocolError:  # another schema, or a message that its own header does not fit
        return None
    return None if isinstance(message, session.SessionMessageHeader) else message


class IngressPublications:
    """The members that a client tries to reach."""

    def __init__(self, world: World, endpoints: Mapping[int, Endpoint], cluster_id: int) -> None:
        self._world = world
        self._cluster_id = cluster_id
        self.endpoints = dict(endpoints)
        self._publications: dict[int, IngressPublication] = {}
        self._next_dial_ns: dict[int, int] = {}
        self.why_failed: dict[int, str] = {}  # the last reason, by member
        self._incompatible: dict[int, type[RemoteProtocolError]] = {}  # why dialling on is in vain

    def do_work(self, now_ns: int) -> None:
        """Dial members that are not connected, once an interval each, and take the greetings on."""
        for member_id, endpoint in list(self.endpoints.items()):
            publication = self._publications.get(member_id)
            if publication is not None and publication.is_unanswered(now_ns):
                publication.connection.close("it does not answer")
            if publication is not None and publication.is_closed:
                self.why_failed[member_id] = publication.connection.why_closed
                if (error := publication.connection.incompatibility) is not None:
                    self._incompatible[member_id] = error
                del self._publications[member_id]
                publication = None
            if publication is None and now_ns >= self._next_dial_ns.get(member_id, 0):
                self._next_dial_ns[member_id] = now_ns + DIAL_INTERVAL_NS
                try:
                    connection = self._world.dial(endpoint)
                except OSError as error:  # no descriptors left: they may come free
                    self.why_failed[member_id] = error.strerror or str(error)
                    continue
                publication = IngressPublication(member_id, endpoint, connection, self._cluster_id)
                publication.dial_ns = now_ns
                self._publications[member_id] = publication
            if publication is not None:
                publication.do_work()
                if publication.member_id != member_id:
                    self._name(member_id, publication)

    def _name(self, unnamed: int, publication: IngressPublication) -> None:
        """The member at an endpoint without an id has sent its own."""
        member_id = publication.member_id
        del self._publications[unnamed]
        self.endpoints[member_id] = self.endpoints.pop(unnamed)
        if (other := self._publications.get(member_id)) is not None:
            other.connection.close("the member has another endpoint")
        self._publications[member_id] = publication

    @property
    def incompatibility(self) -> type[RemoteProtocolError] | None:
        """What is wrong with every member, so that dialling on is in vain: TLS, or what is spoken there."""
        if not self._incompatible.keys() >= self.endpoints.keys():
            return None
        return TlsFailed if TlsFailed in self._incompatible.values() else RemoteProtocolError

    def connected(self) -> list[IngressPublication]:
        """Those that said Hello, in the order of the endpoints."""
        return [
            publication
            for member_id in self.endpoints
            if (publication := self._publications.get(member_id)) is not None
            and publication.is_connected
            and not publication.is_closed
        ]

    def find(self, member_id: int) -> IngressPublication | None:
        """The member's publication if it is connected."""
        publication = self._publications.get(member_id)
        usable = publication is not None and publication.is_connected and not publication.is_closed
        return publication if usable else None

    def keep(self, publication: IngressPublication) -> None:
        """Close all others."""
        for member_id, other in list(self._publications.items()):
            if other is not publication:
                other.connection.close()
                del self._publications[member_id]

    def adopt(self, ingress_endpoints: str) -> None:
        """Take over what a member reports of its cluster's endpoints, where they are of our medium."""
        for member_id in adopt_endpoints(self.endpoints, ingress_endpoints):
            self._next_dial_ns.pop(member_id, None)
        for member_id in self._publications.keys() - self.endpoints.keys():
            self._publications.pop(member_id).connection.close()

    def describe_failures(self) -> str:
        """Why members could not be reached, by member; empty when nothing failed."""
        silent = {
            member_id: SILENT_DRIVER if publication.endpoint.medium is Medium.AERON else SILENT_MEMBER
            for member_id, publication in self._publications.items()
            if publication.connection.is_connected and not publication.is_connected
        }
        parts = []
        failed = (silent | self.why_failed).items()
        for member_id, why in sorted(failed, key=lambda item: (item[0] < 0, abs(item[0]))):  # as given
            if (endpoint := self.endpoints.get(member_id)) is not None:
                at = f" at {endpoint}" if member_id >= 0 else ""
                parts.append(f"{describe_member(member_id, endpoint)}{at}: {why}")
        return "; ".join(parts)

    def close(self) -> None:
        for publication in self._publications.values():
            publication.connection.close()
        self._publications.clear()
