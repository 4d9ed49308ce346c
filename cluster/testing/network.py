"""Sockets over virtual time: production links, ports, connections and clients run on these unchanged.

A connection is two pipes of bytes, each with a delay of its own. What TCP hides stays hidden (bytes of one
connection never change order, none is missing in the middle); what it does not hide is done here:

    gone     a killed process: end-of-file or reset at any byte, whoever dials is refused
    silent   a blocked path, a machine without power, a process that is paused: nothing comes back
    full     buffers that take less than was to be written

A path (from host, to host) is one-way: what is blocked on it comes later, when it opens again, unless the
connection was given up meanwhile.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import defaultdict, deque
from dataclasses import dataclass, field
from random import Random
from typing import Any
from zlib import crc32

from cluster.log.connection_table import ConnectionTable
from cluster.testing.wire import Wire
from cluster.testing.world import MS, Process, VirtualWorld
from cluster.transport.endpoint import Endpoint
from cluster.transport.names import Names
from cluster.transport.poller import READABLE, WRITABLE

CAPACITY = 256 * 1024  # bytes between two processes before the sender's socket takes no more
DELAY_NS = 100_000  # of a piece; it may be twice as long
RETRY_NS = 200 * MS  # of the kernel, when nothing comes back
RETRY_MAX_NS = 1_600 * MS
ERROR_OR_HANG_UP = 0x008 | 0x010
SEND_NS = 5_000

_FIN, RESET = b"fin", b"reset"  # distinguished from bytes by identity


@dataclass(slots=True)
class Path:
    """What one host's packets to another meet."""

    is_blocked: bool = False


@dataclass(eq=False)
class Pipe:
    """One direction of a connection."""

    number: int
    source: SimulatedSocket
    sink: SimulatedSocket
    pieces: deque[tuple[int, bytes]] = field(default_factory=deque)  # arrival, bytes or an end
    pending: int = 0  # bytes sent and not read
    last_ns: int = 0
    is_waiting: bool = False  # for an event
    is_severed: bool = False
    retry_ns: int = RETRY_NS

    def __post_init__(self) -> None:
        self.path = self.source.address[0], self.sink.address[0]


class SimulatedSocket:
    """What ``cluster.transport`` calls on a socket."""

    family = socket.AF_INET

    def __init__(self, poller: SimulatedPoller, fd: int) -> None:
        self.poller = poller
        self.fd = fd
        self.address: tuple[str, int] = (poller.process.host, 0)
        self.peer_host = ""
        self.backlog: deque[SimulatedSocket] | None = None
        self.backlog_max = 0  # connections that wait to be accepted; who dials beyond is not answered
        self.received = bytearray()
        self.incoming: Pipe | None = None
        self.outgoing: Pipe | None = None
        self.is_open = False
        self.is_ended = False  # the peer will send no more
        self.is_closed = False
        self.error = 0

    # -- set up --

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def setsockopt(self, *_: Any) -> None:
        pass

    def getsockopt(self, level: int, option: int, length: int = 0) -> Any:
        return self.error

    def fileno(self) -> int:
        return -1 if self.is_closed else self.fd

    def getsockname(self) -> tuple[str, int]:
        return self.address

    def getpeername(self) -> tuple[str, int]:
        return self.peer_host, 0

    def bind(self, address: tuple[str, int]) -> None:
        self.poller.network.bind(self, address)

    def listen(self, backlog: int) -> None:
        self.backlog, self.backlog_max = deque(), backlog

    def accept(self) -> tuple[SimulatedSocket, tuple[str, int]]:
        if not self.backlog:
            raise BlockingIOError
        accepted = self.backlog.popleft()
        return accepted, accepted.address

    def connect_ex(self, address: tuple[str, int]) -> int:
        self.poller.process.effect()
        self.peer_host = address[0]
        self.poller.network.dial(self, address)
        return errno.EINPROGRESS

    # -- bytes --

    def recv_into(self, view: memoryview) -> int:
        received = self.received
        if received:
            length = self.poller.network.limit(min(len(view), len(received)))
            view[:length] = received[:length]
            del received[:length]
            pipe = self.incoming
            assert pipe is not None
            was_full = pipe.pending >= CAPACITY * 2 // 3
            pipe.pending -= length
            if self.poller.network.wire is not None:
                self.poller.network.wire.on_read(pipe.number, length, self.poller.process.now_ns)
            if was_full:
                pipe.source.mark()
            return length
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        if self.is_ended:
            return 0
        raise BlockingIOError

    def send(self, data: Any) -> int:
        process = self.poller.process
        process.effect()
        process.spend(SEND_NS)
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        pipe = self.outgoing
        assert pipe is not None
        view = memoryview(data).cast("B")
        space = CAPACITY - pipe.pending
        if space <= 0:
            raise BlockingIOError
        length = self.poller.network.limit(min(space, len(view)))
        self.poller.network.push(pipe, bytes(view[:length]), process.now_ns)
        return length

    def sendmsg(self, buffers: Any) -> int:
        return self.send(b"".join(bytes(memoryview(buffer)) for buffer in buffers))

    def shutdown(self, how: int) -> None:
        assert how == socket.SHUT_WR
        self.poller.network.on_shutdown(self)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.poller.network.on_close(self)

    # -- called by the network --

    def mark(self) -> None:
        """Something changed: the owner's poller looks again, and its process wakes."""
        if not self.is_closed:
            self.poller.mark()

    def mask(self) -> int:
        """What epoll would say."""
        if self.backlog is not None:
            return READABLE if self.backlog else 0
        mask = 0
        if self.received or self.is_ended:
            mask = READABLE
        if self.error:
            mask |= READABLE | WRITABLE | ERROR_OR_HANG_UP
        elif self.is_open and self.outgoing is not None and self.outgoing.pending < CAPACITY * 2 // 3:
            mask |= WRITABLE
        return mask


class SimulatedNames(Names):
    """Every host is known by its own name, at once."""

    def __init__(self, process: Process) -> None:
        super().__init__(lambda host, answer: answer((host,), ""), clock_ns=lambda: process.now_ns)

    def own(self, endpoint: Endpoint) -> list[Endpoint]:
        return [endpoint]


class SimulatedPoller:
    """``cluster.transport.poller.Poller`` of one process."""

    def __init__(self, network: Network, process: Process) -> None:
        self.network = network
        self.process = process
        self.sockets: dict[int, SimulatedSocket] = {}
        self._watched: dict[int, list[Any]] = {}  # fd: target, events, socket
        self._fd = 10
        self._is_marked = False
        self.table = ConnectionTable()
        self.names = SimulatedNames(process)

    def open_socket(self, family: socket.AddressFamily) -> SimulatedSocket:
        assert family == socket.AF_INET
        self._fd += 1
        sock = self.sockets[self._fd] = self.new_socket(self._fd)
        return sock

    def new_socket(self, fd: int) -> SimulatedSocket:
        return SimulatedSocket(self, fd)

    def register(self, fd: int, target: Any, events: int) -> None:
        assert fd not in self._watched
        self._watched[fd] = [target, events, self.sockets[fd]]
        self._is_marked = True
        self.table.clear(fd)

    def modify(self, fd: int, events: int) -> None:
        self._watched[fd][1] = events
        self._is_marked = True

    def unregister(self, fd: int) -> None:
        self._watched.pop(fd, None)
        self.table.clear(fd)

    def target(self, fd: int) -> Any:
        return self._watched[fd][0]

    def mark(self) -> None:
        self._is_marked = True
        self.process.wake(self.network.world.now_ns)

    def wait(self, timeout_s: float) -> int:
        """Never waits: whoever turns the process does."""
        ready = self.ready()
        for fd, mask in ready:
            watched = self._watched.get(fd)
            if watched is not None:
                watched[0].on_ready(mask)
        return len(ready)

    def ready(self) -> list[tuple[int, int]]:
        """Descriptors and masks, as the kernel would name them."""
        if not self._is_marked:
            return []
        ready = []
        for fd, (_, events, sock) in self._watched.items():
            mask = sock.mask() & (events | ERROR_OR_HANG_UP)
            if mask:
                ready.append((fd, mask))
        if len(ready) > 1:
            self.network.shuffle(ready)  # epoll promises no order
        self._is_marked = bool(ready)  # level-triggered
        return ready

    def fileno(self) -> int:
        return 0

    def wake(self) -> None:
        self.process.wake(self.network.world.now_ns)

    def close(self) -> None:
        pass

    def take_sockets(self) -> list[SimulatedSocket]:
        """All sockets of a process that died."""
        sockets = list(self.sockets.values())
        self.sockets.clear()
        self._watched.clear()
        return sockets


class Network:
    """All hosts, and the paths between them."""

    def __init__(self, world: VirtualWorld, random: Random) -> None:
        self.world = world
        self.reset_of_killed_chance = 0.5  # that the rest of a killed process's connection is lost
        self._random = random
        self._paths: defaultdict[tuple[str, str], Path] = defaultdict(Path)
        self._silent_hosts: set[str] = set()
        self._listeners: dict[tuple[str, int], SimulatedSocket] = {}
        self._port = 40_000
        self._pipe_number = 0
        self.wire: Wire | None = None  # of whoever watches

    # -- faults --

    def path(self, source: str, sink: str) -> Path:
        return self._paths[source, sink]

    def silence(self, host: str) -> None:
        """The machine has no power: nothing leaves it, and nothing is answered."""
        self._silent_hosts.add(host)

    def revive(self, host: str) -> None:
        self._silent_hosts.discard(host)

    def heal(self) -> None:
        """Every path is open."""
        self._paths.clear()

    def poller(self, process: Process) -> SimulatedPoller:
        return SimulatedPoller(self, process)

    def limit(self, length: int) -> int:
        """How much of a transfer of ``length`` bytes is done in one call."""
        return length

    def shuffle(self, ready: list[tuple[int, int]]) -> None:
        self._random.shuffle(ready)

    # -- connecting --

    def bind(self, sock: SimulatedSocket, address: tuple[str, int]) -> None:
        assert address[0] == sock.poller.process.host
        if address in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self._listeners[address] = sock
        sock.address = address

    def dial(self, sock: SimulatedSocket, address: tuple[str, int]) -> None:
        self._port += 1
        sock.address = (sock.address[0], self._port)
        self._send_syn(sock, address)

    def _transit_ns(self, source: str, sink: str) -> int | None:
        """How long a packet takes now, None when it does not arrive."""
        return self._duration_ns(source, sink) if self._lets_through(source, sink) else None

    def _lets_through(self, source: str, sink: str) -> bool:
        is_silent = source in self._silent_hosts or sink in self._silent_hosts
        return not (is_silent or self._paths[source, sink].is_blocked)

    def _duration_ns(self, source: str, sink: str) -> int:
        return DELAY_NS + int(DELAY_NS * self._random.random())

    def _send_syn(self, sock: SimulatedSocket, address: tuple[str, int]) -> None:
        if sock.is_closed:
            return
        now_ns = sock.poller.process.now_ns
        transit_ns = self._transit_ns(sock.address[0], address[0])
        if transit_ns is None:
            self.world.at(now_ns + RETRY_NS, self._send_syn, sock, address)
        else:
            self.world.at(now_ns + transit_ns, self._on_syn, sock, address)

    def _on_syn(self, sock: SimulatedSocket, address: tuple[str, int]) -> None:
        if sock.is_closed:
            return
        back_ns = self._transit_ns(address[0], sock.address[0])
        if back_ns is None:  # not there, or its answer is lost: asked again
            self.world.at(self.world.now_ns + RETRY_NS, self._send_syn, sock, address)
            return
        listener = self._listeners.get(address)
        if listener is None or listener.backlog is None:
            self.world.at(self.world.now_ns + back_ns, self._refuse, sock)
            return
        if len(listener.backlog) >= listener.backlog_max:
            self.world.at(self.world.now_ns + RETRY_NS, self._send_syn, sock, address)
            return
        accepted = listener.poller.open_socket(socket.AF_INET)
        accepted.address = address
        accepted.peer_host = sock.address[0]
        there = self._pipe(sock, accepted)
        back = self._pipe(accepted, sock)
        accepted.incoming, accepted.outgoing = there, back
        accepted.is_open = True
        sock.outgoing, sock.incoming = there, back
        there.last_ns = back.last_ns = self.world.now_ns + back_ns
        listener.backlog.append(accepted)
        listener.mark()
        self.world.at(self.world.now_ns + back_ns, self._on_connected, sock)

    def _pipe(self, source: SimulatedSocket, sink: SimulatedSocket) -> Pipe:
        self._pipe_number += 1
        return Pipe(self._pipe_number, source, sink)

    def _on_connected(self, sock: SimulatedSocket) -> None:
        if not sock.is_closed:
            sock.is_open = True
            sock.mark()

    def _refuse(self, sock: SimulatedSocket) -> None:
        if not sock.is_closed:
            sock.error = errno.ECONNREFUSED
            sock.mark()

    # -- bytes on their way --

    def push(self, pipe: Pipe, data: bytes, sent_ns: int) -> None:
        if self.wire is not None:
            source, sink = pipe.source.poller.process, pipe.sink.poller.process
            is_cut = self.path(*pipe.path).is_blocked
            self.wire.on_bytes(pipe.number, source, sink, data, sent_ns, is_cut)
        if not pipe.is_severed:  # else the reset is on its way
            pipe.pending += len(data)
            self._schedule(pipe, data, sent_ns)

    def _schedule(self, pipe: Pipe, piece: bytes, sent_ns: int) -> None:
        arrival_ns = max(sent_ns + self._duration_ns(*pipe.path), pipe.last_ns)
        pipe.last_ns = arrival_ns
        pipe.pieces.append((arrival_ns, piece))
        if not pipe.is_waiting:
            pipe.is_waiting = True
            self.world.at(arrival_ns, self._arrive, pipe)

    def _arrive(self, pipe: Pipe) -> None:
        """Hand over what has come, unless the path lets nothing through now."""
        world = self.world
        now_ns = world.now_ns
        pipe.is_waiting = False
        if not pipe.pieces:
            return
        if not self._lets_through(*pipe.path):
            pipe.is_waiting = True
            world.at(self._next_try_ns(pipe), self._arrive, pipe)
            pipe.retry_ns = min(2 * pipe.retry_ns, RETRY_MAX_NS)
            return
        pipe.retry_ns = RETRY_NS
        sock = pipe.sink
        while pipe.pieces and pipe.pieces[0][0] <= now_ns:
            _, piece = pipe.pieces.popleft()
            if sock.is_closed:  # the kernel there does not know the connection (any more)
                pipe.pieces.clear()
                if not pipe.is_severed:
                    pipe.is_severed = True
                    self._reset_source(pipe)
                return
            if piece is _FIN:
                sock.is_ended = True
            elif piece is RESET:
                sock.error = sock.error or errno.ECONNRESET
                sock.is_ended = True
            else:
                world.trace.bytes_moved(now_ns, "to", pipe.number, crc32(piece))
                sock.received += piece
        sock.mark()
        if pipe.pieces:
            pipe.is_waiting = True
            world.at(pipe.pieces[0][0], self._arrive, pipe)

    def _next_try_ns(self, pipe: Pipe) -> int:
        return self.world.now_ns + pipe.retry_ns

    def _reset_source(self, pipe: Pipe) -> None:
        transit_ns = self._transit_ns(pipe.path[1], pipe.path[0])
        if transit_ns is None:
            self.world.at(self.world.now_ns + RETRY_NS, self._reset_source, pipe)
        else:
            self.world.at(self.world.now_ns + transit_ns, self._on_reset, pipe.source)

    def _on_reset(self, sock: SimulatedSocket) -> None:
        if not sock.is_closed:
            sock.error = sock.error or errno.ECONNRESET
            sock.is_ended = True
            if sock.incoming is not None:
                sock.incoming.pieces.clear()  # comes to a connection that is no more
            sock.mark()

    # -- ending --

    def _end(self, pipe: Pipe, how: bytes) -> None:
        """Nothing more comes through; with a reset, what is on its way ends at any byte."""
        is_ending = pipe.pieces and pipe.pieces[-1][1] is _FIN
        if pipe.is_severed and not (how is RESET and is_ending):
            return
        if how is RESET:
            pieces, pipe.pieces = list(pipe.pieces), deque()
            keep = self._random.randint(0, sum(len(piece) for _, piece in pieces))
            for arrival_ns, piece in pieces:
                if keep <= 0 or piece is _FIN or piece is RESET:
                    break
                pipe.pieces.append((arrival_ns, piece[:keep]))
                keep -= len(piece)
        self._schedule(pipe, how, pipe.source.poller.process.now_ns)
        pipe.is_severed = True

    def on_shutdown(self, sock: SimulatedSocket) -> None:
        """A process sends no more on this connection, and still reads."""
        if sock.outgoing is not None:
            self._end(sock.outgoing, _FIN)

    def on_close(self, sock: SimulatedSocket) -> None:
        """A process closed its socket, or died: the peer gets the rest and an end, or a reset."""
        sock.poller.sockets.pop(sock.fd, None)
        if sock.backlog is not None:
            if self._listeners.get(sock.address) is sock:
                del self._listeners[sock.address]
            for waiting in list(sock.backlog):
                waiting.close()
        if sock.outgoing is not None:
            self._end(sock.outgoing, RESET if sock.received or sock.error else _FIN)

    def on_killed(self, poller: SimulatedPoller) -> None:
        """The kernel closes what a killed process had open; of some connections the rest is lost."""
        for sock in poller.take_sockets():
            if sock.outgoing is not None and self._random.random() < self.reset_of_killed_chance:
                self._end(sock.outgoing, RESET)
            sock.close()

    def on_power_cut(self, poller: SimulatedPoller) -> None:
        """The machine is gone: nobody closes anything; whoever writes to it later is reset by the new one."""
        for sock in poller.take_sockets():
            sock.is_closed = True
            if sock.backlog is not None and self._listeners.get(sock.address) is sock:
                del self._listeners[sock.address]
            if sock.outgoing is not None:
                sock.outgoing.is_severed = True
                sock.outgoing.pieces.clear()
