"""The operating system's calls for compiled turns: a table of their addresses (``log/calls.py``)."""

import numpy as np

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
        self.table = np.zeros(calls.CALLS, np.int64)
        for place, name in _NAMES.items():
            self.table[place] = calls.function_address(name)

    def raise_failure(self) -> None:
        """Nothing can be raised within a call."""


def system_calls() -> SystemCalls | None:
    """The table for this machine; None where its C library lacks a call that is needed."""
    try:
        return SystemCalls()
    except AttributeError:
        return None
