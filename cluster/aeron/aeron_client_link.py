"""One client of Aeron's: a connection to the member, and the publication on which the client is answered.

    take ── ingress ──▶ socket pair ──▶ ClientPort
    client's channel ◀── publication ◀── egress ──┘

The connection is made when the client's subscription has answered the publication: who names an address that
is not his opens nothing. What the publication does not take stays in the socket pair, where the member sees a
client that reads too slowly. So does the end of the connection: a client whose publication takes nothing for
STALL_TIMEOUT_NS is let go without it.
"""

from __future__ import annotations

import selectors
import socket
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from cluster.aeron.asked_publication import AskedPublication
from cluster.media.publication import Publication
from cluster.protocol import decode, link, streams
from cluster.protocol.arrays import np
from cluster.protocol.enums import EventCode
from cluster.protocol.frame import frame
from cluster.protocol.response_channel import parameter
from cluster.protocol.sbe import NULL_VALUE, kind_at
from cluster.protocol.session import Challenge, NewLeaderEvent, SessionEvent
from cluster.transport.frame_splitter import FrameSplitter
from cluster.transport.message_frames import each_frame, link_frame
from cluster.transport.server import STALL_TIMEOUT_NS
from cluster.transport.sockets import RECEIVE_BUFFER_LENGTH

_HELLO = link_frame(link.Hello(-1, -1, 0, link.LINK_PROTOCOL_VERSION, link.ConnectionKind.CLIENT))
_OF_SESSIONS = frozenset({SessionEvent.KIND, Challenge.KIND, NewLeaderEvent.KIND})


def egress_channel(response_channel: str) -> str:
    """Where a client is answered: at its endpoint, with the driver's own settings; empty without one."""
    endpoint = parameter(response_channel, "endpoint")
    return f"aeron:udp?endpoint={endpoint}" if response_channel.startswith("aeron:udp?") and endpoint else ""


class AeronClient(NamedTuple):
    """Who is reached: ``channel`` is of ``egress_channel``, ``session_id`` that of an open session."""

    channel: str
    stream_id: int
    host: str
    session_id: int | None = None


class AeronClientLink:
    """``is_over`` once it is to be closed; ``sessions`` has it by the ids of its sessions."""

    def __init__(
        self,
        client: AeronClient,
        asked: AskedPublication,
        connect: Callable[[None, str, int | None], socket.socket],
        sessions: dict[int, AeronClientLink],
        selector: selectors.BaseSelector,
        member_id: int,
    ) -> None:
        """``asked`` is the client's channel, and gives it so long to answer there."""
        self.client = client
        self.is_over = False
        self._asked = asked
        self._connect = connect
        self._sessions = sessions
        self._selector = selector
        self._member_id = member_id
        self._deadline_ns = 0  # for the next egress to go
        self._ingress = bytearray(_HELLO)
        self._egress: deque[bytes] = deque()
        self._splitter = FrameSplitter()
        self._sock: socket.socket | None = None
        self._is_read = False

    @property
    def is_blocked(self) -> bool:
        """Whether the member has not taken all yet of what the client sent."""
        return bool(self._ingress) and not self.is_over

    def take(self, message: bytes) -> None:
        """A message of the client's."""
        self._ingress += frame(message, session_id=0, stream_id=streams.INGRESS)

    def do_work(self, now_ns: int) -> int:
        """Pass on both ways what can be; returns how much. Raises OSError, and as ``asked`` does."""
        if self._sock is None:
            if self._asked.is_connected(now_ns):
                self._open()
                self._deadline_ns = now_ns + STALL_TIMEOUT_NS
            return 0
        sent, offered = self._send_ingress(self._sock), self._offer_egress()
        if offered or not self._egress:
            self._deadline_ns = now_ns + STALL_TIMEOUT_NS
        self.is_over |= now_ns > self._deadline_ns
        return sent + offered

    def close(self) -> None:
        """End the connection and give the publication back. Raises MediaDriverError."""
        self._read(False)
        for session_id in [session_id for session_id, of in self._sessions.items() if of is self]:
            del self._sessions[session_id]
        if self._sock is not None:
            self._sock.close()
        self._asked.close()

    @property
    def _publication(self) -> Publication:
        publication = self._asked.publication
        assert publication is not None
        return publication

    def _open(self) -> None:
        try:
            self._sock = self._connect(None, self.client.host, self.client.session_id)
        except ConnectionRefusedError:  # the member's life has ended
            self.is_over = True
            return
        self._sock.setblocking(False)
        self._read(True)
        if self.client.session_id is not None:
            self._sessions[self.client.session_id] = self

    def _send_ingress(self, sock: socket.socket) -> int:
        if not self._ingress:
            return 0
        try:
            sent = sock.send(self._ingress)
        except BlockingIOError:
            return 0
        except OSError:
            sent = len(self._ingress)  # nobody takes it any more
        del self._ingress[:sent]
        return sent

    def _offer_egress(self) -> int:
        work_count = 0
        while self._egress and self._publication.offer(self._egress[0]) > 0:
            self._egress.popleft()
            work_count += 1
        self._read(not self._egress)
        return work_count

    def _read(self, is_read: bool) -> None:
        """Whether the selector looks at the connection: not while egress waits that came by it."""
        if is_read == self._is_read or self._sock is None:
            return
        if is_read:
            self._selector.register(self._sock, selectors.EVENT_READ, self)
        else:
            self._selector.unregister(self._sock)
        self._is_read = is_read

    def on_readable(self) -> None:
        """The member has sent something, or closed the connection."""
        assert self._sock is not None
        try:
            data = self._sock.recv(RECEIVE_BUFFER_LENGTH)
        except OSError:
            data = b""
        if not data:  # all egress before it has gone, or this would not be read
            self.is_over = True
            return
        frames = self._splitter.split(data)
        for stream_id, offset, length in each_frame(np.frombuffer(frames, np.uint8), 0, len(frames)):
            if stream_id == streams.EGRESS:  # acknowledgements and the like are not Aeron's
                self._on_egress(frames[offset : offset + length])

    def _on_egress(self, message: bytes) -> None:
        if kind_at(message) in _OF_SESSIONS:
            event = decode(message)
            assert isinstance(event, SessionEvent | Challenge | NewLeaderEvent)
            if not self._is_for_client(event):
                return
            if event.cluster_session_id != NULL_VALUE:
                self._sessions[event.cluster_session_id] = self
        if len(message) <= self._publication.message_length_max:
            self._egress.append(message)

    def _is_for_client(self, event: SessionEvent | Challenge | NewLeaderEvent) -> bool:
        match event:
            case NewLeaderEvent():  # another one says so itself, when it is ready for the client
                return event.leader_member_id == self._member_id
            case SessionEvent(code=EventCode.REDIRECT):  # on one to nobody Java's client ends
                return event.leader_member_id >= 0
        return True
