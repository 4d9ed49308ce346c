"""Lets a client of ours have a session of a real Aeron Cluster: for the client it is a member that leads.

    ClusterClient ── socket pair: our frames ── AeronGateway ── AeronCluster ──▶ ingress   ◀── egress
                                                     └── LogFollower ◀── the committed log

What real members lack comes from the log. A message that is found there is acknowledged. When the leader is
lost, or another term begins, the client's connection ends, as one to a member would. Over the next one it
asks for its session, and hears how many of its messages are in the log, as soon as that number is final:
all that was offered is found, or a new term has begun, in which no leader takes what was meant for an earlier
one. It sends the rest. Found messages are compared with those offered: a leader that missed some takes the
next ones all the same, and the session ends then.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from zlib import crc32

import numpy as np

from cluster.aeron.aeron_cluster import AeronCluster, AeronClusterState
from cluster.aeron.log_follower import FoundEnd, FoundMessages, FoundTerm, LogFollower
from cluster.aeron.session_runs import checksums_of_frames
from cluster.errors import AuthenticationRejected, LocalProtocolError, RemoteProtocolError
from cluster.log.frames import SESSION_HEADER_LENGTH
from cluster.media.client_conductor import IDLE_S
from cluster.media.frame_wait import NO_DESCRIPTOR
from cluster.protocol import Message, decode, link, streams
from cluster.protocol.enums import EventCode, Offer
from cluster.protocol.frame import HEADER_LENGTH, align
from cluster.protocol.sbe import read_header
from cluster.protocol.session import (
    AdminRequest,
    NewLeaderEvent,
    SessionCloseRequest,
    SessionConnectRequest,
    SessionEvent,
    SessionMessageHeader,
)
from cluster.transport.message_frames import each_frame, message_frame
from cluster.transport.poller import Poller
from cluster.transport.sockets import Connection, ReceiveBuffer

WAIT_S = 0.01
BACK_PRESSURE_S = 0.0001
QUEUED_BYTES_MAX = 1024 * 1024  # for a client that does not read: no more egress is read then
REPORTED_HERE = (NewLeaderEvent.TEMPLATE_ID, SessionEvent.TEMPLATE_ID)  # by the gateway, in its own time
READY = (AeronClusterState.CONNECTED, AeronClusterState.CLOSED)


class AeronGateway:
    """One session, and the connection that its client has now. Whoever made it calls ``do_work``."""

    def __init__(
        self, open_session: Callable[..., AeronCluster], follower: LogFollower, message_length_max: int
    ) -> None:
        """``open_session`` takes ``on_egress``. ``message_length_max`` is what the log takes, in bytes."""
        self._session = open_session(on_egress=self._on_egress)
        self._follower = follower
        self._message_length_max = message_length_max
        self._poller = Poller()
        self._receive_buffer = ReceiveBuffer()
        self._connection: Connection | None = None
        self._checksums: deque[int] = deque()  # of what was offered in this term and is not found yet
        self._has_worked = False  # since the last wait
        self._committed = self._acknowledged = 0
        self._committed_position = -1
        self._found_term_id = -1  # the last that has begun
        self._term_id = -1  # that the client knows of
        self._is_sought = True  # the client asks for its session, and hears nothing but the answer
        self._waiting: list[bytes] = []  # egress that comes meanwhile
        self._retained_bytes = 0
        self._resume: link.SessionResume | None = None  # to be answered

    @property
    def is_over(self) -> bool:
        """Whether the session has ended, and its client knows."""
        return self._session.is_closed and self._connection is None

    def take(self, sock: socket.socket) -> None:
        """From now on this is the client's connection; what was not read of the one before is dropped."""
        if self._connection is not None:
            self._connection.close()
        self._resume, self._is_sought = None, True
        self._connection = Connection(sock, self._poller, self._receive_buffer)

    def do_work(self) -> int:
        """One turn; returns how much was done."""
        self._poller.wait(0)  # first: whoever wakes from now on is not missed
        session, connection = self._session, self._connection
        work_count = session.do_work(is_reading=self._is_reading)
        if self._follower.session_id < 0 <= session.session_id:
            self._follower.session_id = session.session_id
            self._term_id = session.leadership_term_id
            self._found_term_id = max(self._found_term_id, self._term_id)
        work_count += self._take_found()
        if connection is not None and session.state in READY:
            work_count += self._take_frames(connection)
        self._report()
        self._has_worked |= work_count > 0
        return work_count

    @property
    def _is_reading(self) -> bool:
        queued_bytes = 0 if self._connection is None else self._connection.queued_bytes
        return self._retained_bytes + queued_bytes < QUEUED_BYTES_MAX

    def wait(self) -> None:
        """Until there may be something to do: for what the driver says without a word, not for long.

        Egress is due while messages are on their way, and for one more wait.
        """
        state, connection = self._session.state, self._connection
        if connection is not None and connection.has_frames and state in READY:
            timeout_s, descriptor = BACK_PRESSURE_S, NO_DESCRIPTOR  # the leader has not taken all
        elif state is AeronClusterState.CONNECTED:
            timeout_s, descriptor = WAIT_S, self._poller.fileno()
        else:
            timeout_s, descriptor = IDLE_S, NO_DESCRIPTOR
        is_due = self._follower.is_due = self._has_worked or bool(self._checksums)
        self._has_worked = False
        self._session.wait(timeout_s, descriptor, is_reading=self._is_reading, is_due=is_due)

    def wake(self) -> None:
        """End a ``wait``, or the next one; by any thread."""
        self._poller.wake()

    # ---- from the log

    def _take_found(self) -> int:
        count, found = 0, self._follower.found
        while found:
            count += 1
            match found.popleft():
                case FoundMessages(checksums, position):
                    self._on_found_messages(checksums, position)
                case FoundTerm(term_id, leader_member_id) if term_id > self._found_term_id:
                    self._found_term_id = term_id
                    self._checksums.clear()
                    self._session.follow_leader(term_id, leader_member_id)
                case FoundEnd(why):
                    self._end(why)
        if self._is_settled:
            self._session.settle()
        return count

    def _on_found_messages(self, checksums: list[int], position: int) -> None:
        for checksum in checksums:
            if not self._checksums or self._checksums.popleft() != checksum:
                what = (
                    f"message {self._committed + 1} of the session in the log is not the one that was offered"
                )
                self._end(f"{what}: the leader has missed some before it")
                return
            self._committed += 1
        self._committed_position = position

    @property
    def _is_settled(self) -> bool:
        """Whether the log has of the session all that it will ever have of what was offered so far."""
        return not self._checksums and self._found_term_id == self._session.leadership_term_id

    # ---- from the client

    def _take_frames(self, connection: Connection) -> int:
        """Take what the client sends, as far as the cluster takes it."""
        count = 0
        try:
            if connection.is_readable and not connection.is_finishing:
                connection.receive()
            while connection.has_frames and not connection.is_finishing:
                taken = self._take_messages(connection) or self._take_frame(connection)
                if not taken:
                    break
                count += 1
                connection.advance(taken)
        except RemoteProtocolError as error:
            self._end(str(error))
        if connection.is_closed:
            self._connection = None
        return count

    def _take_messages(self, connection: Connection) -> int:
        """The end of the messages that come first, as far as the leader takes them; 0 for none."""
        session, start = self._session, connection.start
        if session.leadership_term_id < self._found_term_id:
            return 0
        end = session.offer_frames(connection.buffer, start, connection.end)
        self._checksums.extend(checksums_of_frames(connection.buffer, start, end))
        return end if end > start else 0

    def _take_frame(self, connection: Connection) -> int:
        """The end of the first frame; 0 while it cannot be taken."""
        stream_id, offset, length = next(each_frame(connection.buffer, connection.start, connection.end))
        is_taken = self._take(stream_id, connection.buffer.data[offset : offset + length])
        return align(offset + length) if is_taken else 0

    def _take(self, stream_id: int, data: memoryview) -> bool:
        """Whether it could be taken now."""
        _, template_id, _, _ = read_header(data, 0, len(data))
        if stream_id == streams.INGRESS and template_id == SessionMessageHeader.TEMPLATE_ID:
            return self._take_message(data)
        match decode(data):
            case link.Hello():
                self._greet()
            case SessionConnectRequest(correlation_id=correlation_id):
                self._answer_connect(correlation_id)
            case link.SessionResume(cluster_session_id=-1, correlation_id=correlation_id):
                self._answer_connect(correlation_id)
            case link.SessionResume() as resume if resume.cluster_session_id == self._session.session_id:
                self._resume = resume
            case link.SessionResume(cluster_session_id=session_id):
                self._put_event(EventCode.CLOSED, "it is not open any more", session_id)
            case AdminRequest() as request:
                return self._session.send(request) > 0 or self._session.is_closed
            case SessionCloseRequest():
                self._end("")
        return True

    def _take_message(self, data: memoryview) -> bool:
        session, term_id = self._session, SessionMessageHeader.decode(data).leadership_term_id
        if session.is_closed or term_id < max(session.leadership_term_id, self._found_term_id):
            return True  # a leader drops it, too
        payload = bytes(data[SESSION_HEADER_LENGTH:])
        try:
            is_taken = session.offer(payload, term_id) > 0
        except LocalProtocolError as error:
            self._end(str(error))
            return True
        if is_taken:
            self._checksums.append(crc32(payload))
        return is_taken

    # ---- to the client

    def _put(self, message: Message, stream_id: int = streams.LINK) -> None:
        self._put_frames(message_frame(message, stream_id))

    def _put_frames(self, run: np.ndarray | bytes) -> None:
        if self._connection is not None and self._connection.offer(run) == Offer.BACK_PRESSURED:
            self._connection.close("it does not read")

    def _greet(self) -> None:
        length = min(self._session.message_length_max + SESSION_HEADER_LENGTH, self._message_length_max)
        version, code = link.LINK_PROTOCOL_VERSION, link.LinkErrorCode.OK
        self._put(link.HelloReply(-1, max(self._session.leader_member_id, 0), 1, version, code, length))

    def _answer_connect(self, correlation_id: int) -> None:
        session = self._session
        if not session.is_closed:
            code = EventCode.OK
        elif isinstance(session.refusal, AuthenticationRejected):
            code = EventCode.AUTHENTICATION_REJECTED
        else:
            code = EventCode.ERROR
        self._put_event(code, session.why_closed, session.session_id, correlation_id)
        self._go_on()

    def _put_event(self, code: EventCode, detail: str, session_id: int, correlation_id: int = -1) -> None:
        session = self._session
        timeout_ns = session.leader_heartbeat_timeout_ns
        who = session.leadership_term_id, session.leader_member_id
        event = SessionEvent(session_id, correlation_id, *who, code, 0, timeout_ns, detail)
        self._put(event, streams.EGRESS)

    def _on_egress(self, run: np.ndarray | bytes) -> None:
        _, template_id, _, _ = read_header(run, HEADER_LENGTH, len(run))
        if template_id in REPORTED_HERE:
            return
        if self._is_sought:
            self._waiting.append(bytes(run))
            self._retained_bytes += len(run)
        else:
            self._put_frames(run)

    def _go_on(self) -> None:
        """The client has its session: what was kept is next."""
        self._is_sought = False
        waiting, self._waiting, self._retained_bytes = self._waiting, [], 0
        for run in waiting:
            self._put_frames(run)

    def _report(self) -> None:
        """What has changed, and what is known by now of what the client has asked."""
        session = self._session
        if session.is_closed:
            if session.session_id >= 0:
                self._end(session.why_closed)
            return
        is_connected = session.state is AeronClusterState.CONNECTED
        if not self._is_sought and not (is_connected and session.leadership_term_id == self._term_id):
            self._is_sought = True
            if self._connection is not None:
                self._connection.finish()
        if self._resume is not None and is_connected and self._is_settled:
            self._answer_resume(self._resume.correlation_id)
        self._acknowledge()

    def _answer_resume(self, correlation_id: int) -> None:
        session = self._session
        of_session = session.session_id, session.leadership_term_id, self._committed
        leader = session.leader_member_id, session.ingress_endpoints
        self._put(link.SessionResumed(correlation_id, *of_session, *leader))
        self._resume, self._term_id = None, session.leadership_term_id
        self._acknowledged = 0  # what was said over a connection that broke is said again
        self._go_on()

    def _acknowledge(self) -> None:
        if self._acknowledged < self._committed and not self._is_sought:
            self._acknowledged = self._committed
            of_session = self._session.session_id, self._session.leadership_term_id
            self._put(link.CommitAck(*of_session, self._committed, self._committed_position))

    # ---- the end

    def _end(self, why: str) -> None:
        """Close the session; the client hears why, unless it wanted that (empty)."""
        connection, session = self._connection, self._session
        session.close(why or "closed by the client")
        self._follower.close()
        is_open = session.session_id >= 0  # else the answer to its request says why
        if connection is not None and is_open and not connection.is_finishing:
            if why:
                self._acknowledge()
                self._put_event(EventCode.CLOSED, why, session.session_id)
            connection.finish()

    def close(self) -> None:
        """Close the session, whatever its client does."""
        self._end("")
        if self._connection is not None:
            self._connection.close()
        self._poller.close()

    def on_forked(self, why: str) -> None:
        """As ``cluster.transport.forks`` says."""
        self._poller.leave()
        if self._connection is not None:
            self._connection.close(why)
