"""What goes wrong with networks, beside cut paths: ``cluster.testing.network`` with faults.

slow     delays that vary by path and piece, stalls as retransmissions make them
clogged  nothing comes through for a while, and all of it then
partial  writes and reads of less than was asked for
cut      a connection ends, at any byte: the rest is lost, half frames included
"""

from __future__ import annotations

import socket
import struct
from collections import defaultdict
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from cluster.testing.network import (
    DELAY_NS,
    RESET,
    RETRY_NS,
    Network,
    Path,
    Pipe,
    SimulatedPoller,
    SimulatedSocket,
)
from cluster.testing.world import Process, VirtualWorld


@dataclass(slots=True)
class FaultyPath(Path):
    """What one host's packets to another meet."""

    clogged_until_ns: int = 0
    delay_ns: int = DELAY_NS
    jitter: float = 1.0  # a piece takes up to so many times longer
    stall_chance: float = 0.0  # that a piece was lost and is sent again


class FaultySocket(SimulatedSocket):
    """One whose peer is known, and may be gone."""

    def getsockopt(self, level: int, option: int, length: int = 0) -> Any:
        if option != socket.SO_PEERCRED:
            return super().getsockopt(level, option, length)
        assert self.outgoing is not None
        return struct.pack("iII", self.outgoing.sink.poller.process.pid, 0, 0)

    def shutdown(self, how: int) -> None:
        if how == socket.SHUT_WR:  # else of a peer that is gone, whose end is on its way
            super().shutdown(how)


class FaultyPoller(SimulatedPoller):
    """One that can be asked what it has."""

    marked_count = 0  # since somebody set it to 0

    def new_socket(self, fd: int) -> FaultySocket:
        return FaultySocket(self, fd)

    def ready(self) -> list[tuple[int, int]]:
        ready = super().ready()
        self.marked_count += len(ready)
        return ready

    def connections(self) -> list[SimulatedSocket]:
        """Open connections by descriptor."""
        return [sock for sock in self.sockets.values() if sock.is_open and not sock.is_closed]


class FaultyNetwork(Network):
    """A network whose paths may be changed, and whose connections break."""

    _paths: defaultdict[tuple[str, str], FaultyPath]  # type: ignore[assignment]

    def __init__(self, world: VirtualWorld, random: Random) -> None:
        super().__init__(world, random)
        self.defaults = FaultyPath()
        self.partial_chance = 0.0  # that a read or write takes less than it could
        self._paths = defaultdict(lambda: replace(self.defaults))

    def poller(self, process: Process) -> FaultyPoller:
        return FaultyPoller(self, process)

    def limit(self, length: int) -> int:
        if self.partial_chance and length > 1 and self._random.random() < self.partial_chance:
            return self._random.randint(1, length - 1)
        return length

    def heal(self) -> None:
        """Every path is open, and as fast as it was at first."""
        for ends in self._paths:
            path, default = self._paths[ends], self.defaults
            path.is_blocked, path.clogged_until_ns = False, 0
            path.delay_ns, path.jitter, path.stall_chance = (
                default.delay_ns,
                default.jitter,
                default.stall_chance,
            )

    def cut(self, sock: SimulatedSocket) -> None:
        """Break one connection at any byte: both ends learn of it, each in its time."""
        for pipe in (sock.incoming, sock.outgoing):
            if pipe is not None:
                self._end(pipe, RESET)

    def retry(self, sock: SimulatedSocket) -> None:
        """What waits for the kernel's next attempt to reach ``sock`` is sent again now."""
        if sock.incoming is not None and sock.incoming.is_waiting:
            self._arrive(sock.incoming)

    def _lets_through(self, source: str, sink: str) -> bool:
        is_clogged = self.world.now_ns < self._paths[source, sink].clogged_until_ns
        return not is_clogged and super()._lets_through(source, sink)

    def _duration_ns(self, source: str, sink: str) -> int:
        path, random = self._paths[source, sink], self._random.random
        duration_ns = path.delay_ns + int(path.delay_ns * path.jitter * random())
        is_stalled = path.stall_chance and random() < path.stall_chance
        return duration_ns + RETRY_NS if is_stalled else duration_ns

    def _next_try_ns(self, pipe: Pipe) -> int:
        return max(super()._next_try_ns(pipe), self._paths[pipe.path].clogged_until_ns)
