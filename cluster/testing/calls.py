"""The calls of compiled turns into a simulated world: what libc is in production (``log/calls.py``).

A call does what production's classes do with the same socket or file, so a run takes as much chance and time
whoever makes it. What it raises cannot pass through compiled code: it is kept, every call fails from then on,
and ``raise_failure`` raises it when the turn is over.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numba import config

from cluster.archive.files import Buffer
from cluster.log import calls
from cluster.log.connection_table import KIND, LINK_OUT, OWNER
from cluster.member.busy.system import EVENT_DATA, EVENT_LENGTH, START_WRITING
from cluster.member.busy.words import READY_MAX
from cluster.protocol.frame import HEADER_LENGTH
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

    def on_sent(self, to_member_id: int, buffers: tuple[Buffer, ...]) -> None: ...


def put_call(table: np.ndarray, place: int, function: Callable[..., int], count: int) -> object:
    """Have a function of so many integers called in this place, for as long as what is returned is kept."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        table[place] = id(function)
        calls.PLAIN[id(function)] = function
        return function
    callback = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * count)(function)
    table[place] = ctypes.cast(callback, ctypes.c_void_p).value
    return callback


class SimulatedCalls:
    """``table`` goes to the compiled turn; it holds for as long as this object is there."""

    def __init__(self, owner: CallingProcess) -> None:
        self._owner = owner
        self._raised: BaseException | None = None
        self._error_number = ctypes.c_int32()
        functions: dict[int, tuple[Callable[..., int], int]] = {
            calls.WAIT: (self._wait, 4),
            calls.CLOCK: (self._clock, 2),
            calls.RECEIVE: (self._receive, 4),
            calls.SEND: (self._send, 3),
            calls.WRITE: (self._write, 4),
            calls.SYNC_DATA: (self._sync, 1),
            calls.SYNC: (self._full_sync, 1),
            calls.SYNC_RANGE: (self._sync_range, 4),
        }
        self.table = np.zeros(calls.CALLS, np.int64)
        self._kept = [
            put_call(self.table, place, self._guarded(function), count)
            for place, (function, count) in functions.items()
        ]
        error_number = ctypes.addressof(self._error_number)
        self._kept.append(put_call(self.table, calls.ERROR_NUMBER, lambda: error_number, 0))

    def _guarded(self, function: Callable[..., int]) -> Callable[..., int]:
        def call(*arguments: int) -> int:
            try:
                if self._raised is None:
                    return function(*arguments)
                self._error_number.value = errno.EIO
            except OSError as error:
                self._error_number.value = (
                    errno.EAGAIN if isinstance(error, BlockingIOError) else error.errno or 0
                )
            except BaseException as error:
                self._raised = error
                self._error_number.value = errno.EIO
            return -1

        return call

    def raise_failure(self) -> None:
        """Raise what ended the process in the middle of the turn."""
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised

    # ---- the calls

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
        table = self._owner.poller.table
        if table.get(descriptor, KIND) == LINK_OUT:
            self._owner.on_sent(table.get(descriptor, OWNER), (data[HEADER_LENGTH:],))
        return self._owner.poller.sockets[descriptor].send(data)

    def _write(self, file: int, buffer: int, length: int, offset: int) -> int:
        self._owner.files.by_number[file].pwrite(_memory(buffer, length), offset)
        return length

    def _sync(self, file: int) -> int:
        self._owner.files.by_number[file].datasync()
        return 0

    def _full_sync(self, file: int) -> int:
        self._owner.files.by_number[file].fullsync()
        return 0

    def _sync_range(self, file: int, offset: int, length: int, flags: int) -> int:
        opened = self._owner.files.by_number[file]
        (opened.start_writeback if flags == START_WRITING else opened.push)(offset, length)
        return 0


def _memory(address: int, length: int) -> memoryview:
    return memoryview((ctypes.c_uint8 * length).from_address(address)).cast("B")
