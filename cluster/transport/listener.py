"""Listening sockets: bound or refused by name, accepted when the owner polls.

A Unix socket is for processes of the own user alone: its file has mode 0600 before it listens, and whoever
connects is asked for by the kernel's word (SO_PEERCRED).
"""

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Callable

from cluster.errors import ConfigurationError, PortInUse
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.names import Names
from cluster.transport.poller import READABLE, Poller

BACKLOG = 512
ACCEPTS_PER_POLL_MAX = 8  # so that a flood of connects cannot hold up a turn
SOCKET_MODE = 0o600
NOT_HERE = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_CREDENTIALS = struct.Struct("iII")  # struct ucred: pid, uid, gid


def peer_process(sock: socket.socket) -> tuple[int, int]:
    """Process and user that connected this Unix socket; copies of it that others hold change neither."""
    peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(peer)
    return pid, uid


class Listener:
    """One listening socket. ``endpoint`` has the port that was given when 0 was asked for."""

    def __init__(self, endpoint: Endpoint, poller: Poller, on_stranger: Callable[[str], None]) -> None:
        """Bind and listen; ``on_stranger`` hears of other users' processes. Raises PortInUse."""
        assert endpoint.medium is not Medium.GRPC
        self._poller = poller
        self._on_stranger = on_stranger
        self._sock = bind_first(endpoint, poller.names, poller.open_socket)
        self._sock.setblocking(False)
        self._sock.listen(BACKLOG)
        if endpoint.medium is Medium.TCP:
            endpoint = Endpoint(Medium.TCP, endpoint.host, self._sock.getsockname()[1])
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
        for _ in range(ACCEPTS_PER_POLL_MAX):
            try:
                sock, _ = self._sock.accept()
            except OSError:  # none waits, the peer is gone again, or descriptors ran out
                self._is_ready = False
                break
            if self._is_ours(sock):
                accepted.append(sock)
            else:
                sock.close()
        return accepted

    def _is_ours(self, sock: socket.socket) -> bool:
        """Whether the peer may come in here: over a Unix socket only a process of the own user."""
        if self.endpoint.medium is not Medium.IPC:
            return True
        pid, uid = peer_process(sock)
        if uid != os.geteuid():
            self._on_stranger(f"{self.endpoint}: process {pid} is of user {uid}, expected {os.geteuid()}")
            return False
        return True

    def close(self) -> None:
        """Stop listening and remove the Unix socket's file."""
        if self._sock.fileno() == -1:
            return
        self._poller.unregister(self._sock.fileno())
        self._sock.close()
        if self.endpoint.medium is Medium.IPC:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.endpoint.path)


def bind_first(
    endpoint: Endpoint, names: Names, open_socket: Callable[[socket.AddressFamily], socket.socket]
) -> socket.socket:
    """Bound to the first address that this host has. Raises PortInUse, ConfigurationError."""
    failure: OSError | None = None
    try:
        for place in names.own(endpoint):
            try:
                return _bind(place, open_socket(place.family))
            except OSError as error:
                if error.errno not in NOT_HERE:
                    raise
                failure = failure or error
    except OSError as error:
        failure = error
    assert failure is not None, "an endpoint has one address at least"
    if failure.errno == errno.EADDRINUSE:
        raise PortInUse(f"{endpoint}: the address is in use already")
    raise ConfigurationError(f"{endpoint}: cannot listen there: {failure.strerror or failure}")


def _bind(place: Endpoint, sock: socket.socket) -> socket.socket:
    try:
        if place.medium is Medium.IPC:
            _bind_path(sock, place)
        else:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with place.address() as address:
                sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


def _bind_path(sock: socket.socket, endpoint: Endpoint) -> None:
    """Make the file of a Unix socket, in place of one that is left over from a process that is gone."""
    with endpoint.address() as address:
        try:
            sock.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not _is_stale(address):
                raise
            os.unlink(endpoint.path)
            sock.bind(address)
    os.chmod(endpoint.path, SOCKET_MODE)


def _is_stale(address: tuple[str, int] | str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        return probe.connect_ex(address) == errno.ECONNREFUSED
