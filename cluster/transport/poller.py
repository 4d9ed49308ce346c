"""Waiting for sockets: one epoll for all of a process's connections, and a way to be woken.

The order in which the kernel names ready sockets decides nothing: ``wait`` only marks them, and
their owners drain them in their own fixed order (spec of safety, "One order").
"""

import os
import select
import socket
import threading
import time
from typing import Protocol

from cluster.log.connection_table import ConnectionTable
from cluster.transport.names import Names

READABLE = select.EPOLLIN
WRITABLE = select.EPOLLOUT
EVENTS_PER_WAIT_MAX = 256


class Target(Protocol):
    """What is registered: called for its own socket's events, from within ``Poller.wait``."""

    def on_ready(self, events: int) -> None:
        """``events`` is epoll's mask. Only mark what is ready; work is done at the owner's ``poll``."""


class Poller:
    """Level-triggered epoll. Owned by one thread; others may ``wake`` it, and ``sleep``."""

    def __init__(self, names: Names | None = None) -> None:
        """``names`` are what is dialled from here by."""
        self.names = Names() if names is None else names
        self._epoll = select.epoll()
        self._targets: dict[int, Target] = {}
        self._event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._event_fd, READABLE)
        self._closed = False
        self._waking = threading.RLock()  # again by a signal handler
        self.table = ConnectionTable()

    def open_socket(self, family: socket.AddressFamily) -> socket.socket:
        """A stream socket to be watched here: the door to the network, where a simulator has another."""
        return socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)

    def register(self, fd: int, target: Target, events: int) -> None:
        """Watch ``fd`` for ``events`` and call ``target``. A descriptor is watched once."""
        assert fd not in self._targets
        self._epoll.register(fd, events)
        self._targets[fd] = target
        self.table.clear(fd)

    def modify(self, fd: int, events: int) -> None:
        """Watch ``fd`` for ``events`` from now on; 0 leaves only errors and hang-ups."""
        self._epoll.modify(fd, events)

    def unregister(self, fd: int) -> None:
        """Stop watching ``fd``; call it before the descriptor is closed."""
        if self._targets.pop(fd, None) is not None:
            self._epoll.unregister(fd)
            self.table.clear(fd)

    def target(self, fd: int) -> Target:
        """What watches ``fd``."""
        return self._targets[fd]

    def wait(self, timeout_s: float) -> int:
        """Mark what is ready, at most ``timeout_s`` later (rounded up to ms; 0: now); returns how many."""
        events = self._epoll.poll(timeout_s, EVENTS_PER_WAIT_MAX)
        targets = self._targets
        for fd, mask in events:
            target = targets.get(fd)
            if target is not None:
                target.on_ready(mask)
            elif fd == self._event_fd:
                os.eventfd_read(fd)
        return len(events)

    def sleep(self, timeout_s: float, spin_ns: int = 0) -> bool:
        """Sleep until ``wait`` would mark something, at most ``timeout_s``; mark nothing.

        For the first ``spin_ns`` it looks again and again, and keeps its core; True when that was enough.
        Another thread may ``wait`` and register meanwhile; ``close`` it may not.
        """
        poll = self._epoll.poll
        if spin_ns:
            end_ns = time.monotonic_ns() + min(spin_ns, int(timeout_s * 1e9))
            while time.monotonic_ns() < end_ns:
                if poll(0, 1):
                    return True
        poll(timeout_s, 1)
        return False

    def fileno(self) -> int:
        """A descriptor that is readable when ``sleep`` would return."""
        return self._epoll.fileno()

    def wake(self) -> None:
        """End a ``wait`` that runs in another thread, or the next one; nothing once it is closed."""
        with self._waking:  # what was closed may be a file of somebody else's by now
            if not self._closed:
                os.eventfd_write(self._event_fd, 1)

    def leave(self) -> None:
        """In a process that was forked off: release its copies, and touch nothing that the parent watches."""
        self._targets.clear()
        self._waking = threading.RLock()  # a thread that is not in this process may have it
        self.close()

    def close(self) -> None:
        """Release both descriptors. Sockets are their owners' to close."""
        with self._waking:
            if not self._closed:
                self._closed = True
                self._epoll.close()
                os.close(self._event_fd)
