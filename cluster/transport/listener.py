"""Listening sockets: bound or refused by name, accepted when the owner polls."""

from __future__ import annotations

import contextlib
import errno
import os
import socket

from cluster.errors import ConfigurationError, PortInUse
from cluster.transport.endpoint import Endpoint, Medium, unix_address
from cluster.transport.poller import READABLE, Poller

BACKLOG = 512
ACCEPTS_PER_POLL_MAX = 8  # so that a flood of connects cannot hold up a turn
LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})


class Listener:
    """One listening socket. ``endpoint`` has the port that was given when 0 was asked for."""

    def __init__(self, endpoint: Endpoint, poller: Poller, *, address: str | None = None) -> None:
        """Bind and listen; ``PortInUse`` names the address when another process holds it.

        A Unix socket file that no process listens on any more is replaced. ``address`` is a Unix address
        to use in place of the endpoint's own.
        """
        assert endpoint.medium is not Medium.GRPC
        self._poller = poller
        self._sock = _bind(endpoint, address, poller)
        self._sock.setblocking(False)
        self._sock.listen(BACKLOG)
        self._path = endpoint.path if endpoint.medium is Medium.IPC else ""
        if endpoint.medium is Medium.TCP:
            endpoint = (
                Endpoint(Medium.TCP, endpoint.host, self._sock.getsockname()[1]) if not address else endpoint
            )
        self.endpoint = endpoint
        self._is_ready = False
        poller.register(self._sock.fileno(), self, READABLE)

    def on_ready(self, events: int) -> None:
        self._is_ready = True

    def accept(self) -> list[socket.socket]:
        """Return the connections that wait, oldest first, at most a few a turn."""
        if not self._is_ready:
            return []
        accepted: list[socket.socket] = []
        while len(accepted) < ACCEPTS_PER_POLL_MAX:
            try:
                sock, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                self._is_ready = False
                break
            except OSError:  # the peer is gone again, or descriptors ran out: others may still come
                self._is_ready = False
                break
            accepted.append(sock)
        return accepted

    def close(self) -> None:
        """Stop listening and remove the Unix socket's file."""
        if self._sock.fileno() == -1:
            return
        self._poller.unregister(self._sock.fileno())
        self._sock.close()
        if self._path and not unix_address(self._path).startswith("\0"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)


def _bind(endpoint: Endpoint, address: str | None, poller: Poller) -> socket.socket:
    family = socket.AF_UNIX if address else endpoint.family
    sock = poller.open_socket(family)
    if family != socket.AF_UNIX:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    target = address or endpoint.address
    try:
        try:
            sock.bind(target)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or family != socket.AF_UNIX or not _is_stale(str(target)):
                raise
            os.unlink(str(target))
            sock.bind(target)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(f"{endpoint}: the address is in use by another process") from None
        reason = error.strerror or str(error)
        raise ConfigurationError(f"{endpoint}: cannot listen there: {reason}") from None
    return sock


def _is_stale(path: str) -> bool:
    """Whether a Unix socket file is left over from a process that is gone."""
    if path.startswith("\0"):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        return probe.connect_ex(path) == errno.ECONNREFUSED
