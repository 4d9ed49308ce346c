"""The operating system's calls for compiled turns: a table of their addresses (``log/calls.py``)."""

import ctypes

import numpy as np
from numba import config

from cluster.log import calls

_NAMES = {
    calls.WAIT: "epoll_wait",
    calls.CLOCK: "clock_gettime",
    calls.RECEIVE: "recv",
    calls.SEND: "writev",
    calls.WRITE: "pwrite64",
    calls.SYNC_DATA: "fdatasync",
    calls.SYNC: "fsync",
    calls.SYNC_RANGE: "sync_file_range",
    calls.ERROR_NUMBER: "__errno_location",
}


class SystemCalls:
    """``table`` has the addresses. Raises AttributeError where the C library lacks one of them."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        self.table = np.zeros(calls.CALLS, np.int64)
        for place, name in _NAMES.items():
            function = getattr(library, name)
            function.restype = ctypes.c_int64
            address = ctypes.cast(function, ctypes.c_void_p).value
            assert address is not None
            self.table[place] = address
            if config.DISABLE_JIT:  # type: ignore[attr-defined]
                calls.PLAIN[address] = _with_integers(function)

    def raise_failure(self) -> None:
        """Nothing can be raised within a call."""


def system_calls() -> SystemCalls | None:
    """The table for this machine; None where its C library lacks a call that is needed."""
    try:
        return SystemCalls()
    except AttributeError:
        return None


def _with_integers(function: "ctypes._NamedFuncPointer"):  # type: ignore[no-untyped-def]
    return lambda *values: int(function(*map(ctypes.c_int64, values)))
