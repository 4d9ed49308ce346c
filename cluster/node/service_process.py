"""The process of a service, as its member sees it: a child, a Unix socket, and another child when it ends.

driver/service-N.sock ◀── connects ── `cluster service`, whoever starts it; one at a time
ends by itself, or is killed: started again after a pause that doubles up to ten seconds

A child is gone when the kernel says so, not when its socket is at its end: what it forked may hold a copy.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Callable
from dataclasses import InitVar, dataclass

from cluster.errors import RemoteProtocolError
from cluster.log.connection_table import SERVICE_LINK
from cluster.log.runs import headers
from cluster.member.services.remote_service import ProcessEvents
from cluster.node.child import Child
from cluster.node.node_log import NodeLog
from cluster.protocol.frame import HEADER_LENGTH
from cluster.protocol.service_link import (
    FRAME_LENGTH_MAX,
    SERVICE_LINK_VERSION,
    ServiceEnd,
    ServiceHello,
    decode_service_link,
)
from cluster.protocol.versions import version_text
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.listener import Listener, peer_process
from cluster.transport.message_frames import link_frame
from cluster.transport.poller import Poller
from cluster.transport.sockets import Connection, ReceiveBuffer

LOOK_INTERVAL_NS = 10_000_000  # at a child that has not reported its end
HANG_TIMEOUT_NS = 1_000_000_000  # a child that has lost its connection has this long to end
CLOSE_TIMEOUT_S = 3.0


def socket_path(driver_directory: str, service_id: int) -> str:
    """Where a member listens for the process of its service."""
    return f"{driver_directory}/service-{service_id}.sock"


def open_process(
    service_id: int, mode: str, driver_directory: str, poller: Poller, log: NodeLog
) -> ChildProcess:
    """Of this machine; an external one is started by somebody else. Raises PortInUse, ConfigurationError."""
    where = ["--driver-dir", driver_directory, "--service-id", str(service_id), "--child"]
    command = [] if mode == "external" else [sys.executable, "-m", "cluster", "service", *where]
    endpoint = Endpoint(Medium.IPC, path=socket_path(driver_directory, service_id))
    child = Child(f"service {service_id}", command, log.warning)
    return ChildProcess(service_id, endpoint, poller, child, log.info)


@dataclass(eq=False)
class ChildProcess:
    """``ServiceProcess``: a connection, and the child that is to make it."""

    _service_id: int
    endpoint: InitVar[Endpoint]
    _poller: Poller
    _child: Child
    _say: Callable[[str], None]
    _connection: Connection | None = None
    _is_greeted: bool = False
    _peer: tuple[int, socket.socket] | None = None  # who has connected last, and its socket
    _next_look_ns: int = 0
    _lost_ns: int | None = None  # since when a child has no connection any more

    def __post_init__(self, endpoint: Endpoint) -> None:
        """Listen at ``endpoint``. Raises PortInUse, ConfigurationError."""
        self._name = f"service {self._service_id}"
        self._listener = Listener(endpoint, self._poller, self._say)
        self._receive_buffer = ReceiveBuffer()

    # -- ServiceProcess --

    @property
    def descriptor(self) -> int | None:
        connection = self._connection
        if connection is None or not (self._is_greeted and connection.is_connected):
            return None
        return None if connection.is_readable or connection.has_frames else connection.descriptor

    def do_work(self, now_ns: int, events: ProcessEvents, *, is_receiving: bool) -> int:
        """Accept, receive, and look after the child. Returns how much was done."""
        work_count = self._accept()
        connection = self._connection
        if connection is not None and is_receiving and (connection.is_readable or connection.has_frames):
            work_count += self._receive(connection, events)
        if connection is not None and connection.is_closed:
            self._connection = None
            self._lost_ns = now_ns
            if self._is_greeted:
                events.on_lost()
        if now_ns >= self._next_look_ns:
            self._next_look_ns = now_ns + LOOK_INTERVAL_NS
            self._look_after_child(now_ns)
        return work_count

    def send(self, frame: bytes) -> None:
        """Send to the process that is connected."""
        if self._connection is not None:
            self._connection.offer(frame)

    def retire(self) -> None:
        """Start none any more."""
        self._child.retire()

    def close(self) -> None:
        """End the process in order if it does that soon, and listen no more."""
        self.retire()
        self._listener.close()
        if self._connection is not None:
            self._connection.finish()
        # What the child still says is taken, lest it waits for us.
        self._child.await_end(
            CLOSE_TIMEOUT_S, lambda: self._connection is not None and self._connection.discard()
        )
        if self._connection is not None:
            self._connection.close()

    # -- connections --

    def _accept(self) -> int:
        accepted = self._listener.accept()
        for sock in accepted:
            self._take(sock)
        return len(accepted)

    def _take(self, sock: socket.socket) -> None:
        connection = Connection(
            sock, self._poller, self._receive_buffer, is_log_allowed=False, frame_length_max=FRAME_LENGTH_MAX
        )
        if self._connection is None:
            self._connection, self._is_greeted = connection, False
            self._peer = peer_process(sock)[0], sock
            return
        why = f"{self._name} runs already in another process"
        self._say(why)
        connection.offer(link_frame(ServiceEnd(False, why.encode())))
        connection.finish()  # and is closed when the process has read that and ends

    def _receive(self, connection: Connection, events: ProcessEvents) -> int:
        try:
            if not connection.receive():
                return 0
            start, end = connection.start, connection.end
            if not self._is_greeted:
                start = self._greet(connection, events)
            events.on_frames(connection.buffer, start, end)
            if not connection.is_closed:
                connection.release(end)
        except RemoteProtocolError as error:
            self._say(f"{self._name}: its process was cut off: {error}")
            connection.close(str(error))
        return 1

    def _greet(self, connection: Connection, events: ProcessEvents) -> int:
        """Take the first frame; returns where the second begins."""
        offset, header = next(headers(connection.buffer, connection.start, connection.end))
        hello = decode_service_link(
            connection.buffer, offset + HEADER_LENGTH, header.frame_length - HEADER_LENGTH
        )
        if not isinstance(hello, ServiceHello):
            raise RemoteProtocolError("the first message is no ServiceHello")
        if (hello.service_id, hello.protocol_version) != (self._service_id, SERVICE_LINK_VERSION):
            raise RemoteProtocolError(
                f"service {hello.service_id} of version {version_text(hello.protocol_version)}, expected "
                f"{self._service_id} of {version_text(SERVICE_LINK_VERSION)}"
            )
        self._say(f"{self._name} runs in process {hello.pid}")
        self._is_greeted = True
        connection.serve(SERVICE_LINK, self._service_id)
        self._lost_ns = None
        events.on_connected()
        return offset + header.aligned_length

    # -- the child --

    def _look_after_child(self, now_ns: int) -> None:
        child = self._child
        if not child.is_running:
            if self._connection is None and child.start(now_ns):
                self._lost_ns = None
        elif (pid := child.take_end(now_ns)) is not None:
            self._end_input_of(pid)
        elif self._connection is None and self._is_hanging(now_ns):
            child.kill()

    def _end_input_of(self, pid: int) -> None:
        """What a child that is gone has sent is received still; then its stream ends, whoever has a copy."""
        if self._connection is not None and self._peer is not None and self._peer[0] == pid:
            with contextlib.suppress(OSError):  # at its end already
                self._peer[1].shutdown(socket.SHUT_RDWR)

    def _is_hanging(self, now_ns: int) -> bool:
        return self._lost_ns is not None and now_ns - self._lost_ns > HANG_TIMEOUT_NS
