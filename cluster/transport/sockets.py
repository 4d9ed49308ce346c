"""One non-blocking stream connection that carries whole frames, over TCP or a Unix socket.

Receiving: one ``recv_into`` fills a buffer that all connections of an owner share; a kernel finds where the
whole frames end; the owner looks at them and gives back what it took. Only what is left over, half a frame
or frames that could not be taken, is copied aside until the next turn. A frame that the shared buffer
cannot hold gets a buffer of its own for as long as it takes to arrive.

    owner: wait -> connection.receive() -> buffer[start:end] -> connection.release(consumed_end)

Sending: ``offer`` hands the pieces to the kernel in one call and copies only what the socket did not take
into a bounded queue; with a queue standing it refuses whole batches by Aeron's names. ``write`` is for
callers whose bytes stay where they are until sent: it never queues.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence

from cluster.errors import RemoteProtocolError
from cluster.log.connection_table import (
    CRC,
    HEARD_NS,
    IS_ENDING,
    IS_KEPT,
    IS_PART_NEW,
    IS_PAUSED,
    IS_QUEUED,
    PART_LENGTH,
    RowWord,
)
from cluster.log.runs import NOT_A_FRAME, whole_frames
from cluster.protocol.arrays import np
from cluster.protocol.enums import Offer
from cluster.transport.handed_over import HandedOver
from cluster.transport.other_protocols import spoken_by
from cluster.transport.poller import READABLE, WRITABLE, Poller

Buffer = bytes | bytearray | memoryview | np.ndarray

RECEIVE_BUFFER_LENGTH = 1024 * 1024
SEND_QUEUE_BYTES_MAX = 16 * 1024 * 1024
SOCKET_BUFFER_BYTES = 1024 * 1024  # of Unix sockets: TCP sizes its own
FRAME_LENGTH_MAX = 16 * 1024 * 1024 + 32  # Aeron's longest message in one frame
BUFFERS_PER_SEND_MAX = 512  # below the kernel's IOV_MAX of 1,024

_DISCARDED = memoryview(bytearray(64 * 1024))  # what nobody wants to read
_ERROR_OR_HANG_UP = 0x008 | 0x010  # EPOLLERR, EPOLLHUP

PEER_CLOSED = "the peer closed the connection"

# A dial that ends with one of these met nobody; any other end says nothing about the peer's process.
REFUSALS = frozenset({errno.ECONNREFUSED, errno.ENOENT})


def reason_of(error: OSError) -> str:
    """Why a connection ended: what the system says, unless it speaks of pipes."""
    return PEER_CLOSED if error.errno == errno.EPIPE else error.strerror or str(error)


class ReceiveBuffer:
    """The bytes of the connection that is being read; its content lasts until the next ``receive``."""

    __slots__ = ("array", "view")

    def __init__(self, length: int = RECEIVE_BUFFER_LENGTH) -> None:
        self.array = np.zeros(length, np.uint8)
        self.view: memoryview = self.array.data


# Why a stream ended, empty when it does not know, and whether dialling again is in vain.
Explanation = tuple[str, type[RemoteProtocolError] | None]


def peer_host_of(sock: socket.socket) -> str:
    """Of the other end over TCP; empty when it is gone."""
    try:
        return str(sock.getpeername()[0])
    except OSError:
        return ""


class Connection:
    """One connected (or connecting) stream socket.

    ``buffer[start:end]`` are the whole frames that the last ``receive`` found, 32-byte aligned in the
    buffer. ``why_closed`` is one line once the connection is closed. ``certificate_name`` is the common name
    in the certificate that the peer has shown and proven to own; None when it has shown none.
    ``incompatibility`` is the error of a closed one whose two sides will not do for one another: dialling
    again is in vain. ``descriptor`` is its socket's, until it is closed. ``crc`` and ``heard_ns`` are for the
    owners of links, who set them, as kernels do.
    """

    crc, heard_ns, is_part_new = RowWord(CRC), RowWord(HEARD_NS), RowWord(IS_PART_NEW)

    __slots__ = (
        "_buffers",
        "_carry",
        "_check_header",
        "_events",
        "_explain",
        "_is_adopted",
        "_is_connecting",
        "_is_log_allowed",
        "_limit",
        "_on_readable",
        "_on_unconnected",
        "_poller",
        "_queue",
        "_queue_bytes_max",
        "_receive_buffer",
        "_sock",
        "_table",
        "buffer",
        "certificate_name",
        "connection_id",
        "descriptor",
        "end",
        "error_number",
        "frame_length_max",
        "incompatibility",
        "is_closed",
        "is_finishing",
        "is_paused",
        "is_readable",
        "position",
        "queued_bytes",
        "start",
        "why_closed",
    )

    def __init__(
        self,
        sock: socket.socket,
        poller: Poller,
        receive_buffer: ReceiveBuffer,
        *,
        connection_id: int = 0,
        on_readable: Callable[[Connection], None] | None = None,
        is_connecting: bool = False,
        is_log_allowed: bool = True,
        frame_length_max: int = FRAME_LENGTH_MAX,
        queue_bytes_max: int = SEND_QUEUE_BYTES_MAX,
        check_header: Callable[[np.ndarray, int], None] | None = None,
        explain: Callable[[], Explanation] = lambda: ("", None),
        on_unconnected: Callable[[], None] = lambda: None,
    ) -> None:
        """``check_header`` raises ``RemoteProtocolError`` for the header of a frame that is not whole yet.

        ``explain`` may know better than the socket why the peer ended. ``on_unconnected`` is called when it
        is closed before it was connected.
        """
        sock.setblocking(False)
        if sock.family == socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._poller = poller
        self._receive_buffer = receive_buffer
        self._on_readable = on_readable
        self._is_connecting = is_connecting
        self._is_log_allowed = is_log_allowed
        self.frame_length_max = frame_length_max
        self._queue: deque[memoryview] = deque()
        self._queue_bytes_max = queue_bytes_max
        self._check_header = check_header
        self._explain = explain
        self._on_unconnected = on_unconnected
        self.is_paused = False
        self.is_finishing = False
        self._events = WRITABLE if is_connecting else READABLE
        self._carry: np.ndarray | None = None  # what the last release left over, or a buffer of our own
        self._limit = 0  # end of what is received in buffer; in _carry between turns
        self.buffer: np.ndarray = receive_buffer.array
        self.start = 0
        self.end = 0
        self.connection_id = connection_id
        self.certificate_name: str | None = None
        self.is_readable = False
        self.is_closed = False
        self.incompatibility: type[RemoteProtocolError] | None = None
        self.why_closed = ""
        self.error_number = 0
        self.position = 0  # bytes accepted by offer and write since the connection was made
        self.queued_bytes = 0
        self._is_adopted = False  # what is kept was received by others, and not looked at yet
        self.descriptor = sock.fileno()
        poller.register(self.descriptor, self, self._events)
        self._table = poller.table
        self._mark(IS_ENDING, is_connecting)

    @property
    def is_connected(self) -> bool:
        """Whether the socket is open and its connect is done."""
        return not self.is_closed and not self._is_connecting

    @property
    def local_address(self) -> tuple[str, int]:
        """Host and port of this end of a TCP connection."""
        return self._sock.getsockname()[:2]

    @property
    def has_frames(self) -> bool:
        """Whether whole frames wait that the owner did not take at its last turn."""
        return self.end > self.start

    # -- called by the poller --

    def on_ready(self, events: int) -> None:
        if self._is_connecting:
            self._finish_connect()
            return
        if self.is_finishing and events & _ERROR_OR_HANG_UP:
            self.close("both sides are done")
            return
        if events & WRITABLE and self._has_unsent:
            self.flush()
        elif events & WRITABLE:
            self._watch()  # once was enough for want_writable
        if events & (READABLE | _ERROR_OR_HANG_UP):
            self._mark_readable()

    def _mark_readable(self) -> None:
        if not self.is_readable:
            self.is_readable = True
            if self._on_readable is not None:
                self._on_readable(self)

    def _finish_connect(self) -> None:
        error = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            self.fail(OSError(error, os.strerror(error)))
            return
        self._is_connecting = False
        self._mark(IS_ENDING, False)
        self._watch()

    # -- receiving --

    def serve(self, kind: int, owner: int) -> None:
        """Let kernels take what comes (``log/connection_table.py``), for this member or connection id."""
        if not self.is_closed:
            self._table.serve(self.descriptor, kind, owner, self.frame_length_max)

    def _mark(self, bit: int, is_so: bool) -> None:
        """Say what keeps its bytes from kernels; a closed one has no row any more."""
        if not self.is_closed:
            self._table.mark(self.descriptor, bit, is_so)

    def adopt(self, data: np.ndarray) -> None:
        """What a kernel has received and does not take: the next ``receive`` looks at it, and further."""
        assert self._carry is None
        if len(data):
            self._carry, self._limit = data.copy(), len(data)
            self._mark(IS_KEPT, True)
            self._is_adopted = True
        self._mark_readable()

    @property
    def partial_bytes(self) -> int:
        """Received of a frame that is not whole yet."""
        if self._carry is not None:
            return self._limit - self.end
        return 0 if self.is_closed else self._table.get(self.descriptor, PART_LENGTH)

    @property
    def buffered_bytes(self) -> int:
        """Memory that it holds from one turn to the next for what it received."""
        return self.partial_bytes if self._carry is None else len(self._carry)

    @property
    def is_local(self) -> bool:
        """Whether the other end is of this host, by the kind of socket."""
        return self._sock.family == socket.AF_UNIX

    @property
    def peer_host(self) -> str:
        """Host of the other end of a TCP connection; empty on a Unix socket, or when it is gone."""
        return "" if self.is_local else peer_host_of(self._sock)

    def receive(self, bytes_max: int = RECEIVE_BUFFER_LENGTH) -> bool:
        """Take what the socket holds, in one call; True when whole frames are in ``buffer[start:end]``.

        At most ``bytes_max`` are taken. Frames that were not released come again first, without touching the
        socket. End-of-file and resets close the connection. ``RemoteProtocolError``: the peer sent what is no
        frame; the connection is closed, the frames before the fault are lost with it.
        """
        if self.end > self.start:
            return True
        if self.is_closed:
            return False
        self.is_readable = False
        carry, kept = self._carry, self._limit
        if self._is_adopted:
            assert carry is not None
            self._is_adopted = False
            return self._find_frames(carry, kept)
        buffer, view = self._receive_buffer.array, self._receive_buffer.view
        if carry is None:
            kept = self.partial_bytes
            if kept:
                buffer[:kept] = self._table.part(self.descriptor)
        elif len(carry) > kept:  # a large frame's own buffer
            buffer, view = carry, carry.data
        else:
            buffer[:kept] = carry
        received = self._receive_into(view[kept : kept + bytes_max])
        if received == 0:
            return False
        if carry is None and kept:
            self._table.drop_part(self.descriptor)
        return self._find_frames(buffer, kept + received)

    def _find_frames(self, buffer: np.ndarray, limit: int) -> bool:
        """Whether whole frames are in ``buffer[:limit]``, which then are what was received."""
        end, follows = whole_frames(buffer, 0, limit, self.frame_length_max, self._is_log_allowed)
        if follows == NOT_A_FRAME:
            first = bytes(buffer[end : end + 32])
            if spoken := spoken_by(first):
                self.incompatibility = RemoteProtocolError
            what = spoken or first.hex()
            self.close(f"not a frame of at most {self.frame_length_max} bytes: {what}")
            raise RemoteProtocolError(f"connection {self.connection_id}: {self.why_closed}")
        if follows and self._check_header is not None:
            self._check_header(buffer, end)
        self.buffer, self.start, self.end, self._limit = buffer, 0, end, limit
        if end == 0:
            self._keep(0, follows)
            return False
        return True

    def release(self, consumed_end: int) -> None:
        """Give back ``buffer[start:consumed_end]``; what follows is kept and comes again."""
        assert self.start <= consumed_end <= self.end
        if consumed_end == self._limit:
            self._limit = self.start = self.end = 0
            if self._carry is not None:
                self._carry = None
                self._mark(IS_KEPT, False)
            return
        follows = 0
        if consumed_end == self.end:
            _, follows = whole_frames(
                self.buffer, consumed_end, self._limit, self.frame_length_max, self._is_log_allowed
            )
        self._keep(consumed_end, follows)

    def advance(self, consumed_end: int) -> None:
        """Like ``release``, but the rest stays where it is: only for the one user of a receive buffer."""
        assert self.start <= consumed_end <= self.end
        self.start = consumed_end
        if consumed_end == self.end:
            self.release(consumed_end)

    def discard(self) -> bool:
        """Throw away what came, at most 64 KiB; False for nothing. Ends close, as in ``receive``."""
        return not self.is_closed and self._receive_into(_DISCARDED) > 0

    def _receive_into(self, view: memoryview) -> int:
        """How many bytes came; 0 when there are none now, and when there will be none: then it is closed."""
        try:
            received = self._sock.recv_into(view)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self.fail(error)
            return 0
        if received == 0:
            why, self.incompatibility = self._explain()
            self.close(why or PEER_CLOSED)
        return received

    def _keep(self, offset: int, follows: int) -> None:
        """Copy ``buffer[offset:limit]`` aside, with room for the frame of ``follows`` bytes there."""
        left = self._limit - offset
        frames = self.end - offset
        is_own = self.buffer is not self._receive_buffer.array
        if follows > len(self._receive_buffer.array) // 2:
            # Too large to be copied back and forth at every turn.
            if not (is_own and offset == 0 and len(self.buffer) >= follows):
                own = np.zeros(max(follows, left + 1), np.uint8)
                own[:left] = self.buffer[offset : self._limit]
                self._carry = own
        elif not (frames or self.is_closed) and self._table.keep_part(
            self.descriptor, self.buffer[offset : self._limit], follows
        ):
            self._carry, self._limit, self.start, self.end = None, 0, 0, 0
            self._mark(IS_KEPT, False)
            return
        elif not (is_own and offset == 0 and len(self.buffer) == left):
            self._carry = self.buffer[offset : self._limit].copy()
        self._limit = left
        self._mark(IS_KEPT, True)
        self.start, self.end = 0, frames
        if frames:
            assert self._carry is not None
            self.buffer = self._carry

    def pause(self) -> None:
        """Receive nothing until ``resume``: the peer's window fills, as under an Aeron image unpolled."""
        if not self.is_paused and not self.is_closed:
            self.is_paused = True
            self._watch()

    def resume(self) -> None:
        """Undo ``pause``."""
        if self.is_paused and not self.is_finishing and not self.is_closed:
            self.is_paused = False
            self._watch()
            if self.has_frames or self._is_adopted:
                self._mark_readable()  # the poller does not know of them

    # -- sending --

    def offer(self, *buffers: Buffer) -> int:
        """Send ``buffers`` in one go, all or nothing: a position > 0, or a code of ``Offer``.

        Each buffer is a contiguous run of bytes; together they are whole frames. What the socket does
        not take at once is copied, so the buffers are the caller's again on return.
        """
        if self.is_closed or self.is_finishing:
            return Offer.CLOSED
        if self._is_connecting:
            return Offer.NOT_CONNECTED
        total = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        if self._queue:
            if self.queued_bytes + total > self._queue_bytes_max:
                return Offer.BACK_PRESSURED
            for buffer in buffers:
                self._enqueue(buffer, 0)
            self.position += total
            return self.position
        assert len(buffers) <= BUFFERS_PER_SEND_MAX
        taken = self._send(buffers)
        if self.is_closed:
            return Offer.CLOSED
        if taken < total:
            for buffer in buffers:
                length = len(buffer)
                if taken < length:
                    self._enqueue(buffer, taken)
                    taken = 0
                else:
                    taken -= length
            self._watch()
        self.position += total
        return self.position

    def write(self, buffer: Buffer) -> int:
        """Send what the socket takes of ``buffer`` and queue nothing; returns the bytes, 0, or a code."""
        if self.is_closed:
            return Offer.CLOSED
        if self._is_connecting:
            return Offer.NOT_CONNECTED
        if self._queue:
            return 0
        taken = self._send((buffer,))
        self.position += taken
        return Offer.CLOSED if self.is_closed else taken

    @property
    def _has_unsent(self) -> bool:
        return bool(self._queue)

    def _send(self, buffers: Sequence[Buffer]) -> int:
        """How many bytes the socket took; what it says against it closes the connection."""
        try:
            if len(buffers) == 1:
                return self._sock.send(buffers[0])  # type: ignore[arg-type]
            return self._sock.sendmsg(buffers)  # type: ignore[arg-type]
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self.fail(error)
            return 0

    def want_writable(self) -> None:
        """Wake ``Poller.wait`` once when the socket takes bytes again, for callers of ``write``."""
        if not self.is_closed and not self._is_connecting:
            self._set_events(self._events | WRITABLE)

    def flush(self) -> None:
        """Send what is queued as far as the socket takes it."""
        queue = self._queue
        while queue and not self.is_closed:
            taken = self._send([queue[i] for i in range(min(len(queue), BUFFERS_PER_SEND_MAX))])
            if not taken:
                return
            self.queued_bytes -= taken
            while taken:
                head = queue[0]
                if taken < len(head):
                    queue[0] = head[taken:]
                    break
                taken -= len(head)
                queue.popleft()
        if self.is_finishing:
            self._end_stream()
        self._watch()

    def _enqueue(self, buffer: Buffer, offset: int) -> None:
        copy = memoryview(bytes(memoryview(buffer)[offset:]))  # type: ignore[arg-type]
        self._queue.append(copy)
        self._mark(IS_QUEUED, True)
        self.queued_bytes += len(copy)

    # -- ending --

    def _watch(self) -> None:
        events = 0 if self.is_paused else READABLE
        self._set_events(events | WRITABLE if self._has_unsent else events)
        self._mark(IS_PAUSED, self.is_paused)
        self._mark(IS_QUEUED, self._has_unsent)
        self._mark(IS_ENDING, self.is_finishing or self._is_connecting)

    def _set_events(self, events: int) -> None:
        if events != self._events and not self.is_closed:
            self._events = events
            self._poller.modify(self._sock.fileno(), events)

    def fail(self, error: OSError) -> None:
        """Close for what the system says."""
        self.error_number = error.errno or 0
        why, self.incompatibility = self._explain()
        self.close(why or reason_of(error))

    def finish(self) -> None:
        """Take nothing more, send what is queued, then end the stream: the peer reads all, and closes.

        A close at once could reset the connection, and lose on the way what the peer has not received. The
        owner closes where the peer does not.
        """
        if self.is_closed or self.is_finishing:
            return
        self.is_finishing = self.is_paused = True
        if not self._queue:
            self._end_stream()
        self._watch()

    def _end_stream(self) -> None:
        if not self.is_closed:
            try:
                self._sock.shutdown(socket.SHUT_WR)
            except OSError as error:
                self.fail(error)

    def close(self, why: str = "closed by this side") -> None:
        """Close at once; what is queued is lost. Safe to call twice."""
        if self.is_closed:
            return
        self.is_closed = True
        self.why_closed = why
        self._poller.unregister(self._sock.fileno())
        self._sock.close()
        if self._is_connecting:
            self._on_unconnected()
        self._queue.clear()
        self.queued_bytes = 0
        if self._on_readable is not None:
            self._mark_readable()  # the owner has yet to see that this connection ended

    def detach(self) -> HandedOver:
        """Give the socket away, with the bytes received and not released; this connection is closed then."""
        kept = self.buffer[self.start : self._limit] if self._limit else self._table.part(self.descriptor)
        rest = kept.tobytes()
        self.is_closed = True
        self.why_closed = "handed over"
        self._poller.unregister(self._sock.fileno())
        return HandedOver(self._sock, rest)

    @property
    def was_refused(self) -> bool:
        """Whether nobody listens at the address: the one sign that the peer's process is not there."""
        return self.error_number in REFUSALS
