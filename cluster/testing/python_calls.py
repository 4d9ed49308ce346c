"""Calls of compiled code that Python answers: what libc is in production (``log/calls.py``).

What a call raises cannot pass through compiled code: it is kept, every call fails from then on, and
``raise_failure`` raises it when the compiled code has returned.
"""

import ctypes
import errno
from collections.abc import Callable, Mapping

import numpy as np
from numba import config

from cluster.archive.file_calls import START_WRITING
from cluster.archive.files import File
from cluster.log import calls


def put_call(table: np.ndarray, place: int, function: Callable[..., int], count: int) -> object:
    """Have a function of so many integers called in this place, for as long as what is returned is kept."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        table[place] = id(function)
        calls.PLAIN[id(function)] = function
        return function
    callback = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * count)(function)
    table[place] = ctypes.cast(callback, ctypes.c_void_p).value
    return callback


class FileCalls:
    """A call does what the method of the file with that number does. ``table`` holds as long as this does."""

    def __init__(self, by_number: Mapping[int, File]) -> None:
        self._by_number = by_number
        self._raised: BaseException | None = None
        self._error_number = ctypes.c_int32()
        self._kept: list[object] = []
        self.table = np.zeros(calls.CALLS, np.int64)
        self.put(calls.WRITE, self._write, 4)
        self.put(calls.SYNC_DATA, self._sync, 1)
        self.put(calls.SYNC, self._full_sync, 1)
        self.put(calls.SYNC_RANGE, self._sync_range, 4)
        error_number = ctypes.addressof(self._error_number)
        self._kept.append(put_call(self.table, calls.ERROR_NUMBER, lambda: error_number, 0))

    def put(self, place: int, function: Callable[..., int], count: int) -> None:
        """Have a function called in this place. What it raises is the error that the call has met."""

        def call(*arguments: int) -> int:
            try:
                if self._raised is None:
                    return function(*arguments)
                self._error_number.value = errno.EIO
            except OSError as error:
                is_to_wait = isinstance(error, BlockingIOError)
                self._error_number.value = errno.EAGAIN if is_to_wait else error.errno or errno.EIO
            except BaseException as error:
                self._raised = error
                self._error_number.value = errno.EIO
            return -1

        self._kept.append(put_call(self.table, place, call, count))

    def raise_failure(self) -> None:
        """Raise what ended the process in the middle of compiled code."""
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised

    def _write(self, file: int, buffer: int, length: int, offset: int) -> int:
        self._by_number[file].pwrite(ctypes.string_at(buffer, length), offset)
        return length

    def _sync(self, file: int) -> int:
        self._by_number[file].datasync()
        return 0

    def _full_sync(self, file: int) -> int:
        self._by_number[file].fullsync()
        return 0

    def _sync_range(self, file: int, offset: int, length: int, flags: int) -> int:
        opened = self._by_number[file]
        (opened.start_writeback if flags == START_WRITING else opened.push)(offset, length)
        return 0
