"""The process of a service, as its member sees it: a child, a Unix socket, and another child when it ends.

driver/service-N.sock ◀── connects ── `cluster service`, whoever starts it; one at a time
ends by itself, or is killed: started again after a pause that doubles up to ten seconds

A child is gone when the kernel says so, not when its socket is at its end: what it forked may hold a copy.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from cluster.errors import RemoteProtocolError
from cluster.log.connection_table import SERVICE_LINK
from cluster.log.runs import headers
from cluster.member.services.remote_service import ProcessEvents
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

LOOK_INTERVAL_NS = 10_000_000  # at a child that has not told of its end
PAUSE_MIN_NS, PAUSE_MAX_NS = 100_000_000, 10_000_000_000
WELL_NS = 30_000_000_000  # a process that has run for so long was well: the pauses begin anew
HANG_TIMEOUT_NS = 1_000_000_000  # a child that has lost its connection has this long to end
CLOSE_TIMEOUT_S = 3.0


def socket_path(driver_directory: str, service_id: int) -> str:
    """Where a member listens for the process of its service."""
    return f"{driver_directory}/service-{service_id}.sock"


def command_of(driver_directory: str, service_id: int) -> list[str]:
    """How a member starts the process of its service."""
    where = ["--driver-dir", driver_directory, "--service-id", str(service_id), "--child"]
    return [sys.executable, "-m", "cluster", "service", *where]


class ChildProcess:
    """``ServiceProcess`` of this machine."""

    def __init__(
        self,
        service_id: int,
        driver_directory: str,
        poller: Poller,
        command: Sequence[str],
        tell: Callable[[str], None],
    ) -> None:
        """Listen; an empty ``command`` starts nothing: the process comes by itself.

        Raises PortInUse, ConfigurationError.
        """
        self._name = f"service {service_id}"
        self._service_id = service_id
        self._poller = poller
        self._command = list(command)
        self._tell = tell
        endpoint = Endpoint(Medium.IPC, path=socket_path(driver_directory, service_id))
        self._listener = Listener(endpoint, poller, tell)
        self._receive_buffer = ReceiveBuffer()
        self._connection: Connection | None = None
        self._is_greeted = False
        self._peer: tuple[int, socket.socket] | None = None  # who has connected last, and its socket
        self._child: subprocess.Popen[bytes] | None = None
        self._began_ns = 0
        self._next_look_ns = 0
        self._lost_ns: int | None = None  # since when a child has no connection any more
        self._pause_ns = PAUSE_MIN_NS
        self._due_ns = 0  # not before this is a child started

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
        self._command = []

    def close(self) -> None:
        """End the process in order if it does that soon, and listen no more."""
        self.retire()
        self._listener.close()
        if self._connection is not None:
            self._connection.finish()
        if self._child is not None:
            self._await_end(self._child)
        if self._connection is not None:
            self._connection.close()

    def _await_end(self, child: subprocess.Popen[bytes]) -> None:
        """Take what the child still says, lest it waits for us, and kill it when its time is up."""
        deadline = time.monotonic() + CLOSE_TIMEOUT_S
        while child.poll() is None and time.monotonic() < deadline:
            if self._connection is None or not self._connection.discard():
                time.sleep(0.005)
        if child.poll() is None:
            child.kill()
            child.wait()

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
        self._tell(why)
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
            self._tell(f"{self._name}: its process was cut off: {error}")
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
        self._tell(f"{self._name} runs in process {hello.pid}")
        self._is_greeted = True
        connection.serve(SERVICE_LINK, self._service_id)
        self._lost_ns = None
        events.on_connected()
        return offset + header.aligned_length

    # -- the child --

    def _look_after_child(self, now_ns: int) -> None:
        child = self._child
        if child is None:
            if self._command and self._connection is None and now_ns >= self._due_ns:
                self._start_child(now_ns)
        elif (status := child.poll()) is not None:
            self._child = None
            self._end_input_of(child.pid)
            self._on_end(child.pid, status, now_ns)
        elif self._connection is None and self._is_hanging(now_ns):
            child.kill()

    def _end_input_of(self, pid: int) -> None:
        """What a child that is gone has sent is received still; then its stream ends, whoever has a copy."""
        if self._connection is not None and self._peer is not None and self._peer[0] == pid:
            with contextlib.suppress(OSError):  # at its end already
                self._peer[1].shutdown(socket.SHUT_RDWR)

    def _is_hanging(self, now_ns: int) -> bool:
        return self._lost_ns is not None and now_ns - self._lost_ns > HANG_TIMEOUT_NS

    def _start_child(self, now_ns: int) -> None:
        self._began_ns, self._lost_ns = now_ns, None
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        try:
            # In a session of its own: a Ctrl-C at the terminal is the member's business.
            self._child = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )
        except OSError as error:
            self._on_failure(f"its process cannot be started: {error.strerror}", now_ns)

    def _on_end(self, pid: int, status: int, now_ns: int) -> None:
        if self._command:
            how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            self._on_failure(f"its process {pid} {how}", now_ns)

    def _on_failure(self, what: str, now_ns: int) -> None:
        if now_ns - self._began_ns > WELL_NS:
            self._pause_ns = PAUSE_MIN_NS
        self._due_ns = now_ns + self._pause_ns
        self._tell(f"{self._name}: {what}; it is started again in {self._pause_ns / 1e9:.1f} s")
        self._pause_ns = min(2 * self._pause_ns, PAUSE_MAX_NS)
