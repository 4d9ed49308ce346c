"""The calls of compiled turns into a simulated world: what libc is in production (``log/calls.py``).

A call does what production's classes do with the same socket or file (``python_calls.py``), so a run takes as
much chance and time whoever makes it.
"""

import ctypes
import struct
from typing import Protocol

from cluster.log import calls
from cluster.member.busy.system import EVENT_DATA, EVENT_LENGTH
from cluster.member.busy.words import READY_MAX
from cluster.testing.disk import SimulatedFiles
from cluster.testing.network import SimulatedPoller

_PIECE = struct.Struct("<qq")  # struct iovec
_TIME = struct.Struct("<qq")  # struct timespec
_EVENT = struct.Struct("<i")
SECOND_NS = 1_000_000_000


class CallingProcess(Protocol):
    """The process."""

    poller: SimulatedPoller
    files: SimulatedFiles

    def clock_ns(self) -> int: ...


class SimulatedCalls:
    """Puts calls to sockets and clock beside those to files. They hold as long as the files do."""

    def __init__(self, owner: CallingProcess) -> None:
        self._owner = owner
        file_calls = owner.files.calls
        file_calls.put(calls.WAIT, self._wait, 4)
        file_calls.put(calls.CLOCK, self._clock, 2)
        file_calls.put(calls.RECEIVE, self._receive, 4)
        file_calls.put(calls.SEND, self._send, 3)
        self.table, self.raise_failure = file_calls.table, file_calls.raise_failure

    def _wait(self, epoll: int, events: int, events_max: int, timeout_ms: int) -> int:
        ready = self._owner.poller.ready()[:READY_MAX]
        memory = _memory(events, EVENT_LENGTH * events_max)
        for i, (descriptor, mask) in enumerate(ready):
            _EVENT.pack_into(memory, i * EVENT_LENGTH, mask)
            _EVENT.pack_into(memory, i * EVENT_LENGTH + EVENT_DATA, descriptor)
        return len(ready)

    def _clock(self, clock: int, time: int) -> int:
        _TIME.pack_into(_memory(time, _TIME.size), 0, *divmod(self._owner.clock_ns(), SECOND_NS))
        return 0

    def _receive(self, descriptor: int, buffer: int, length: int, flags: int) -> int:
        return self._owner.poller.sockets[descriptor].recv_into(_memory(buffer, length))

    def _send(self, descriptor: int, pieces: int, count: int) -> int:
        places = [
            _PIECE.unpack_from(_memory(pieces, _PIECE.size * count), _PIECE.size * i) for i in range(count)
        ]
        data = b"".join(bytes(_memory(address, length)) for address, length in places)
        return self._send_bytes(descriptor, data)

    def _send_bytes(self, descriptor: int, data: bytes) -> int:
        return self._owner.poller.sockets[descriptor].send(data)


def _memory(address: int, length: int) -> memoryview:
    return memoryview((ctypes.c_uint8 * length).from_address(address)).cast("B")
