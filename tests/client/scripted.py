"""A world without sockets: members that answer as told, and a clock that moves when a client waits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cluster.client import ClientContext, ClusterClient
from cluster.client.connecting import SessionOpening
from cluster.log.frames import SESSION_HEADER_LENGTH
from cluster.protocol import Message, decode, link, streams
from cluster.protocol.enums import EventCode, Offer
from cluster.protocol.frame import align
from cluster.protocol.session import (
    NewLeaderEvent,
    SessionConnectRequest,
    SessionEvent,
    SessionMessageHeader,
)
from cluster.transport.endpoint import Endpoint, parse_endpoints
from cluster.transport.message_frames import each_frame, link_frame, message_frame
from tests.answer_frames import answer_frame

ENDPOINTS = "0=tcp:a:1,1=tcp:b:1,2=tcp:c:1"
MS = 1_000_000
RESUME_TOKEN = bytes(range(16))


class ScriptedConnection:
    """Both ends of a connection: what the client calls, and what a member finds and puts in."""

    def __init__(self, member: FakeMember) -> None:
        self.member = member
        self.buffer = np.zeros(0, np.uint8)
        self.start = self.end = 0
        self.is_closed = False
        self.incompatibility = None
        self.is_readable = self.is_finishing = False
        self.why_closed = ""
        self.takes: int | None = None  # bytes that write takes before it blocks, None: all
        self._inbox = bytearray()
        self._received = bytearray()

    @property
    def is_connected(self) -> bool:
        return not self.is_closed

    @property
    def has_frames(self) -> bool:
        return self.end > self.start

    def receive(self) -> bool:
        if self.has_frames:
            return True
        self.is_readable = False
        self.buffer = np.frombuffer(self._inbox, np.uint8).copy()
        self._inbox = bytearray()
        self.start, self.end = 0, len(self.buffer)
        return self.has_frames

    def release(self, consumed_end: int) -> None:
        self.start = consumed_end
        if self.start == self.end:  # as the real one
            self.start = self.end = 0

    advance = release

    def offer(self, *buffers: bytes) -> int:
        if self.is_closed:
            return Offer.CLOSED
        self._take(b"".join(map(bytes, buffers)))
        return 1

    def write(self, buffer: memoryview) -> int:
        if self.is_closed:
            return Offer.CLOSED
        taken = len(buffer) if self.takes is None else min(self.takes, len(buffer))
        if self.takes is not None:
            self.takes -= taken
        self._take(bytes(buffer[:taken]))
        return taken

    def want_writable(self) -> None:
        pass

    def discard(self) -> bool:
        had, self._inbox = bool(self._inbox), bytearray()
        return had

    def finish(self) -> None:
        """The member has taken all at once, and closes its side."""
        self.is_finishing = True
        self.break_off()

    def close(self, why: str = "closed by this side") -> None:
        self.is_closed = True
        self.why_closed = self.why_closed or why

    # -- the member's end --

    def _take(self, data: bytes) -> None:
        self._received += data
        whole = np.frombuffer(bytes(self._received), np.uint8)
        end = 0
        while len(whole) - end >= 32:
            length = align(int.from_bytes(whole[end : end + 4].tobytes(), "little"))
            if end + length > len(whole):
                break
            end += length
        for stream_id, offset, length in each_frame(whole, 0, end):
            payload = whole[offset : offset + length].tobytes()
            self.member.on_frame(self, stream_id, payload)
        del self._received[:end]

    def put(self, data: bytes) -> None:
        """Let the client find ``data``."""
        self._inbox += data
        self.is_readable = True

    def break_off(self, why: str = "the peer closed the connection") -> None:
        """The member's process is gone."""
        self.close(why)
        self.is_readable = True


class FakeMember:
    """One member: a follower until told otherwise. ``received`` is every message that clients sent it."""

    def __init__(self, cluster: FakeCluster, member_id: int) -> None:
        self.cluster = cluster
        self.member_id = member_id
        self.is_up = True
        self.connections: list[ScriptedConnection] = []
        self.received: list[Message] = []
        self.on_connect_request: Callable[[ScriptedConnection, SessionConnectRequest], None] | None = None
        self.on_resume: Callable[[ScriptedConnection, link.SessionResume], None] | None = None

    def on_frame(self, connection: ScriptedConnection, stream_id: int, payload: bytes) -> None:
        message = decode(payload)
        assert message is not None
        self.received.append(message)
        match message:
            case link.Hello():
                connection.put(link_frame(self.cluster.hello_reply(self.member_id)))
            case SessionConnectRequest() if self.on_connect_request is not None:
                self.on_connect_request(connection, message)
            case link.SessionResume() if self.on_resume is not None:
                self.on_resume(connection, message)
            case SessionConnectRequest() | link.SessionResume() if self is not self.cluster.leader:
                self.send(connection, self.cluster.redirect(message.correlation_id))
            case SessionConnectRequest():
                self.send(connection, self.cluster.open_session(message.correlation_id))
            case link.SessionResume() if message.cluster_session_id == -1:
                self.send(connection, self.cluster.event(EventCode.CLOSED, message.correlation_id, "none"))
            case link.SessionResume():
                connection.put(link_frame(self.cluster.resume(message.correlation_id)))
            case SessionMessageHeader():
                if self is self.cluster.leader and message.leadership_term_id == self.cluster.term_id:
                    self.cluster.log.append(payload[SESSION_HEADER_LENGTH:])

    def of_type(self, kind: type[Message]) -> list[Message]:
        return [message for message in self.received if isinstance(message, kind)]

    @property
    def connection(self) -> ScriptedConnection:
        """The newest."""
        return self.connections[-1]

    def send(self, connection: ScriptedConnection, message: Message, stream_id: int = streams.EGRESS) -> None:
        connection.put(message_frame(message, stream_id))

    def stop(self) -> None:
        """Kill the process."""
        self.is_up = False
        for connection in self.connections:
            if not connection.is_closed:
                connection.break_off()


class FakeCluster:
    """Three members, one session, one log; and the world that a client lives in."""

    def __init__(self) -> None:
        self._now_ns = 1_000 * MS
        self.endpoints = parse_endpoints(ENDPOINTS)
        self.members = [FakeMember(self, member_id) for member_id in self.endpoints]
        self.leader: FakeMember | None = self.members[0]
        self.term_id = 1
        self.session_id = 7
        self.told_endpoints = ENDPOINTS  # with a redirect
        self.log: list[bytes] = []
        self.message_length_max = 1024
        self.heartbeat_timeout_ns: int | None = 10_000 * MS
        self.is_released = False
        self.wakes = 0
        self.warnings: list[str] = []
        self.calls_soon = 0
        self.aliases: dict[Endpoint, int] = {}  # other endpoints, and whose they are

    # -- the client's world --

    def now_ns(self) -> int:
        return self._now_ns

    def poll(self) -> None:
        pass

    def wait(self, timeout_s: float, *, is_due: bool = False) -> None:
        self._now_ns += int(timeout_s * 1e9)

    def wake(self) -> None:
        self.wakes += 1

    def warn(self, line: str) -> None:
        self.warnings.append(line)

    def run_beside(self, duty: object) -> None:
        """A test calls it."""

    def call_soon(self) -> None:
        self.calls_soon += 1

    def dial(self, endpoint: Endpoint) -> ScriptedConnection:
        known = {**{e: m for m, e in self.endpoints.items()}, **self.aliases}
        member = self.members[known[endpoint]]
        connection = ScriptedConnection(member)
        if member.is_up:
            member.connections.append(connection)
        else:
            connection.break_off("ECONNREFUSED")
        return connection

    def response_channel(self, connection: ScriptedConnection, endpoint: Endpoint) -> str:
        return "aeron:udp?endpoint=127.0.0.1:4321"

    def resume_token(self) -> bytes:
        return RESUME_TOKEN

    def close(self) -> None:
        self.is_released = True

    # -- the cluster --

    def hello_reply(self, member_id: int) -> link.HelloReply:
        return link.HelloReply(
            cluster_id=0,
            member_id=member_id,
            incarnation=1,
            protocol_version=link.LINK_PROTOCOL_VERSION,
            code=link.LinkErrorCode.OK,
            message_length_max=self.message_length_max,
        )

    @property
    def leader_member_id(self) -> int:
        return -1 if self.leader is None else self.leader.member_id

    def event(
        self, code: EventCode, correlation_id: int, detail: str = "", session_id: int = -1
    ) -> SessionEvent:
        return SessionEvent(
            cluster_session_id=session_id,
            correlation_id=correlation_id,
            leadership_term_id=self.term_id,
            leader_member_id=self.leader_member_id,
            code=code,
            version=768,
            leader_heartbeat_timeout_ns=self.heartbeat_timeout_ns,
            detail=detail,
        )

    def redirect(self, correlation_id: int) -> SessionEvent:
        return self.event(EventCode.REDIRECT, correlation_id, self.told_endpoints)

    def open_session(self, correlation_id: int) -> SessionEvent:
        return self.event(EventCode.OK, correlation_id, session_id=self.session_id)

    def resume(self, correlation_id: int) -> link.SessionResumed:
        return link.SessionResumed(
            correlation_id=correlation_id,
            cluster_session_id=self.session_id,
            leadership_term_id=self.term_id,
            appended_messages=len(self.log),
            leader_member_id=self.leader_member_id,
            ingress_endpoints=ENDPOINTS,
        )

    def elect(self, member_id: int | None) -> None:
        """Another member leads, in the next term; its log is the cluster's."""
        self.leader = None if member_id is None else self.members[member_id]
        self.term_id += 1

    def new_leader_event(self, session_id: int | None = None) -> NewLeaderEvent:
        return NewLeaderEvent(
            leadership_term_id=self.term_id,
            cluster_session_id=self.session_id if session_id is None else session_id,
            leader_member_id=self.leader_member_id,
            ingress_endpoints=ENDPOINTS,
        )

    def acknowledge(self, messages: int, position: int = 4096) -> None:
        """Tell the client that this many of its messages are committed."""
        assert self.leader is not None
        self.leader.connection.put(
            link_frame(link.CommitAck(self.session_id, self.term_id, messages, position))
        )

    def answer(
        self, *payloads: bytes, timestamp: int = 99, session_id: int | None = None, number: int = 0
    ) -> None:
        """Send egress of the service; ``number``: of the message that it answers."""
        assert self.leader is not None
        for payload in payloads:
            session = self.session_id if session_id is None else session_id
            answer = answer_frame(self.term_id, session, payload, timestamp=timestamp, answered=number)
            self.leader.connection.put(answer)


class Listener:
    """Remembers everything that it is told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def on_message(self, session_id: int, timestamp: int, payload: memoryview) -> None:
        self.told.append(("message", session_id, timestamp, bytes(payload)))

    def on_session_event(self, *event: object) -> None:
        self.told.append(("session event", *event))

    def on_new_leader(self, *event: object) -> None:
        self.told.append(("new leader", *event))

    def on_admin_response(self, *response: object) -> None:
        self.told.append(("admin response", *response))

    @property
    def payloads(self) -> list[object]:
        return [told[3] for told in self.told if told[0] == "message"]


def connect(
    cluster: FakeCluster, listener: object = None, *, endpoints: str = ENDPOINTS, **settings: object
) -> ClusterClient:
    """Open a session and hand out its client."""
    context = ClientContext(endpoints, listener, **settings)  # type: ignore[arg-type]
    attempt = SessionOpening(context, cluster)
    while not attempt.poll():
        cluster.wait(0.001)
    return ClusterClient(context, cluster, attempt)


def poll_until(client: ClusterClient, condition: Callable[[], bool], within_s: float = 30.0) -> None:
    """Poll, a millisecond of the scripted clock apart, until the condition holds."""
    world = client._world
    deadline_ns = world.now_ns() + int(within_s * 1e9)
    while not condition():
        assert world.now_ns() < deadline_ns, "it never came"
        client.poll_egress()
        world.wait(0.001)
