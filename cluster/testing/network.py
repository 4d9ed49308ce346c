"""Sockets over virtual time: production links, ports, connections and clients run on these unchanged.

A connection is two pipes of bytes, each with a delay of its own. What TCP hides stays hidden (bytes of one
connection never change order, none is missing in the middle); what it does not hide is done here:

    slow     delays that vary by pipe and piece, stalls as retransmissions make them
    cut      a connection ends, at any byte: the rest is lost, half frames included
    gone     a killed process: end-of-file or reset, whoever dials is refused
    silent   a blocked path, a machine without power, a process that is paused: nothing comes back
    partial  writes and reads of less than was asked for; full buffers

A path (from host, to host) is one-way: what is blocked on it comes later, when it opens again, unless the
connection was given up meanwhile.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections import deque
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
RETRY_NS = 200 * MS  # of the kernel, when nothing comes back
RETRY_MAX_NS = 1_600 * MS
ERROR_OR_HANG_UP = 0x008 | 0x010
SEND_NS = 5_000

_FIN, _RESET = b"fin", b"reset"  # told apart from bytes by identity


@dataclass(slots=True)
class Path:
    """What one host's packets to another meet."""

    is_blocked: bool = False
    clogged_until_ns: int = 0
    delay_ns: int = 100_000
    jitter: float = 1.0  # a piece takes up to so many times longer
    stall_chance: float = 0.0  # that a piece was lost and is sent again


@dataclass(eq=False)
class _Pipe:
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
        self.incoming: _Pipe | None = None
        self.outgoing: _Pipe | None = None
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
        if option != socket.SO_PEERCRED:
            return self.error
        assert self.outgoing is not None
        return struct.pack("iII", self.outgoing.sink.poller.process.pid, 0, 0)

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
        if how == socket.SHUT_RDWR:
            return  # of a peer that is gone, whose end is on its way
        assert how == socket.SHUT_WR
        self.poller.network.on_shutdown(self)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.poller.network.on_close(self)

    # -- told by the network --

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
        self.marked_count = 0  # since somebody set it to 0
        self.table = ConnectionTable()
        self.names = SimulatedNames(process)

    def open_socket(self, family: socket.AddressFamily) -> SimulatedSocket:
        assert family == socket.AF_INET
        self._fd += 1
        sock = self.sockets[self._fd] = SimulatedSocket(self, self._fd)
        return sock

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
        self.marked_count += len(ready)
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

    def connections(self) -> list[SimulatedSocket]:
        """Open connections by descriptor."""
        return [sock for sock in self.sockets.values() if sock.is_open and not sock.is_closed]


class Network:
    """All hosts, and the paths between them."""

    def __init__(self, world: VirtualWorld, random: Random) -> None:
        self.world = world
        self.partial_chance = 0.0  # that a read or write takes less than it could
        self.reset_of_killed_chance = 0.5  # that the rest of a killed process's connection is lost
        self.defaults = Path()
        self._random = random
        self._paths: dict[tuple[str, str], Path] = {}
        self._silent_hosts: set[str] = set()
        self._listeners: dict[tuple[str, int], SimulatedSocket] = {}
        self._port = 40_000
        self._pipe_number = 0
        self.wire: Wire | None = None  # of whoever watches

    # -- faults --

    def path(self, source: str, sink: str) -> Path:
        found = self._paths.get((source, sink))
        if found is None:
            d = self.defaults
            found = self._paths[source, sink] = Path(
                delay_ns=d.delay_ns, jitter=d.jitter, stall_chance=d.stall_chance
            )
        return found

    def silence(self, host: str) -> None:
        """The machine has no power: nothing leaves it, and nothing is answered."""
        self._silent_hosts.add(host)

    def revive(self, host: str) -> None:
        self._silent_hosts.discard(host)

    def cut(self, sock: SimulatedSocket) -> None:
        """Break one connection at any byte: both ends learn of it, each in its time."""
        for pipe in (sock.incoming, sock.outgoing):
            if pipe is not None:
                self._end(pipe, _RESET)

    def heal(self) -> None:
        """Every path is open, and as fast as it was at first."""
        for path in self._paths.values():
            path.is_blocked = False
            path.clogged_until_ns = 0
            path.delay_ns = self.defaults.delay_ns
            path.jitter = self.defaults.jitter
            path.stall_chance = self.defaults.stall_chance

    def retry(self, sock: SimulatedSocket) -> None:
        """What waits for the kernel's next attempt to reach ``sock`` is sent again now."""
        if sock.incoming is not None and sock.incoming.is_waiting:
            self._arrive(sock.incoming)

    def limit(self, length: int) -> int:
        """How much of a transfer of ``length`` bytes is done in one call."""
        if self.partial_chance and length > 1 and self._random.random() < self.partial_chance:
            return self._random.randint(1, length - 1)
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
        if source in self._silent_hosts or sink in self._silent_hosts:
            return None
        path = self.path(source, sink)
        if path.is_blocked or self.world.now_ns < path.clogged_until_ns:
            return None
        duration_ns = path.delay_ns + int(path.delay_ns * path.jitter * self._random.random())
        if path.stall_chance and self._random.random() < path.stall_chance:
            duration_ns += RETRY_NS
        return duration_ns

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

    def _pipe(self, source: SimulatedSocket, sink: SimulatedSocket) -> _Pipe:
        self._pipe_number += 1
        return _Pipe(self._pipe_number, source, sink)

    def _on_connected(self, sock: SimulatedSocket) -> None:
        if not sock.is_closed:
            sock.is_open = True
            sock.mark()

    def _refuse(self, sock: SimulatedSocket) -> None:
        if not sock.is_closed:
            sock.error = errno.ECONNREFUSED
            sock.mark()

    # -- bytes on their way --

    def push(self, pipe: _Pipe, data: bytes, sent_ns: int) -> None:
        if self.wire is not None:
            source, sink = pipe.source.poller.process, pipe.sink.poller.process
            is_held = self.path(*pipe.path).is_blocked
            self.wire.on_bytes(pipe.number, source, sink, data, sent_ns, is_held)
        if not pipe.is_severed:  # else the reset is on its way
            pipe.pending += len(data)
            self._schedule(pipe, data, sent_ns)

    def _schedule(self, pipe: _Pipe, piece: bytes, sent_ns: int) -> None:
        path = self.path(*pipe.path)
        random = self._random.random
        arrival_ns = sent_ns + path.delay_ns + int(path.delay_ns * path.jitter * random())
        if path.stall_chance and random() < path.stall_chance:
            arrival_ns += RETRY_NS
        arrival_ns = max(arrival_ns, pipe.last_ns)
        pipe.last_ns = arrival_ns
        pipe.pieces.append((arrival_ns, piece))
        if not pipe.is_waiting:
            pipe.is_waiting = True
            self.world.at(arrival_ns, self._arrive, pipe)

    def _arrive(self, pipe: _Pipe) -> None:
        """Hand over what has come, unless the path lets nothing through now."""
        world = self.world
        now_ns = world.now_ns
        pipe.is_waiting = False
        if not pipe.pieces:
            return
        path = self.path(*pipe.path)
        source, sink = pipe.path
        is_silent = source in self._silent_hosts or sink in self._silent_hosts
        if path.is_blocked or is_silent or now_ns < path.clogged_until_ns:
            pipe.is_waiting = True
            world.at(max(now_ns + pipe.retry_ns, path.clogged_until_ns), self._arrive, pipe)
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
            elif piece is _RESET:
                sock.error = sock.error or errno.ECONNRESET
                sock.is_ended = True
            else:
                world.trace.bytes_moved(now_ns, "to", pipe.number, crc32(piece))
                sock.received += piece
        sock.mark()
        if pipe.pieces:
            pipe.is_waiting = True
            world.at(pipe.pieces[0][0], self._arrive, pipe)

    def _reset_source(self, pipe: _Pipe) -> None:
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

    def _end(self, pipe: _Pipe, how: bytes) -> None:
        """Nothing more comes through; with a reset, what is on its way ends at any byte."""
        is_ending = pipe.pieces and pipe.pieces[-1][1] is _FIN
        if pipe.is_severed and not (how is _RESET and is_ending):
            return
        if how is _RESET:
            pieces, pipe.pieces = list(pipe.pieces), deque()
            keep = self._random.randint(0, sum(len(piece) for _, piece in pieces))
            for arrival_ns, piece in pieces:
                if keep <= 0 or piece is _FIN or piece is _RESET:
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
            self._end(sock.outgoing, _RESET if sock.received or sock.error else _FIN)

    def on_killed(self, poller: SimulatedPoller) -> None:
        """The kernel closes what a killed process had open; of some connections the rest is lost."""
        for sock in poller.take_sockets():
            if sock.outgoing is not None and self._random.random() < self.reset_of_killed_chance:
                self._end(sock.outgoing, _RESET)
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
