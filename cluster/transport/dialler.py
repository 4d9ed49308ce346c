"""The client's end: connections to members over any medium, and the clock and the waiting beside them."""

import logging
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeAlias
from weakref import WeakMethod

from cluster.protocol.resume import TOKEN_LENGTH
from cluster.transport.dial import dial
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.names import Names
from cluster.transport.poller import Poller
from cluster.transport.sockets import Connection, ReceiveBuffer
from cluster.transport.tls import TlsFiles, TlsSession, client_context
from cluster.transport.tls_connection import TlsConnection

SPIN_NS = 25_000
SPIN_REST = 16
NEVER = 1 << 62
NAME_PATIENCE_S = 0.02  # of the first dial of a name; /etc/hosts answers sooner

Duty: TypeAlias = Callable[[], "float | None"]


class Dialler:
    """Makes connections that one thread at a time polls; what a client sees of the world."""

    def __init__(self, tls: TlsFiles | None = None) -> None:
        """With ``tls`` nothing else is spoken over TCP and gRPC. Raises ConfigurationError."""
        self._tls = tls
        self._context = None if tls is None else client_context(tls)
        self.poller = Poller(Names(patience_s=NAME_PATIENCE_S))  # also of others whose events end a ``wait``
        self._receive_buffer = ReceiveBuffer()
        self._sleeping = threading.Lock()  # locked by the thread that waits
        self._spin_rest = 0  # waits for what is due, until one spins again
        self._is_closed = False
        self._stir = threading.Event()  # ends a rest of the thread beside

    now_ns = staticmethod(time.monotonic_ns)
    warn = staticmethod(logging.getLogger("cluster.client").warning)

    def poll(self) -> None:
        """Mark what is ready; never waits."""
        self.poller.wait(0)

    def wait(self, timeout_s: float, *, is_due: bool = False) -> None:
        """Sleep until something is ready, at most ``timeout_s``. Any thread may, also while others poll.

        What ``is_due`` is looked for without a sleep at first, for as long as to be woken takes. Where that
        was in vain, others may need the core: the next ``SPIN_REST`` waits sleep at once.
        """
        is_first = self._sleeping.acquire(blocking=False)
        if not is_first and not self._sleeping.acquire(timeout=timeout_s):
            return
        try:
            if is_first and not self._is_closed:
                if not is_due or self._spin_rest > 0:
                    self._spin_rest -= is_due
                    self.poller.sleep(timeout_s)
                elif not self.poller.sleep(timeout_s, SPIN_NS):
                    self._spin_rest = SPIN_REST
        finally:
            self._sleeping.release()

    def wake(self) -> None:
        """End a ``wait`` of another thread, or the next one; until the next ``poll``."""
        self.poller.wake()

    def fileno(self) -> int:
        """A descriptor that is readable when a ``wait`` would end, for an event loop."""
        return self.poller.fileno()

    def run_beside(self, duty: Duty) -> None:
        """Call ``duty`` from a thread after as many seconds as it returns, until None, or ``close``."""
        threading.Thread(
            target=_run, args=(WeakMethod(duty), self._stir), name="cluster-client", daemon=True
        ).start()

    def call_soon(self) -> None:
        """Have the duty of ``run_beside`` called now."""
        self._stir.set()

    def dial(self, endpoint: Endpoint) -> Connection:
        """Start to connect and return at once; a connection that could not be made shows as closed."""
        if endpoint.medium is Medium.GRPC:
            # Loading gRPC takes longer than a short-lived client over a socket lives.
            from cluster.transport.grpc_client import open_session

            stream = open_session(endpoint, self._tls)
            self._spin_rest = NEVER  # its threads want the interpreter
            return Connection(stream.sock, self.poller, self._receive_buffer, explain=stream.explain)
        make: Callable[..., Connection] = Connection
        if self._context is not None and endpoint.medium is Medium.TCP:
            session = TlsSession(self._context, str(endpoint), server_name=endpoint.host)
            make = partial(TlsConnection, tls=session)
        return dial(endpoint, self.poller, self._receive_buffer, make=make)

    def response_channel(self, connection: Connection, endpoint: Endpoint) -> str:
        """The channel of a session's egress, in the log for a real Aeron node to parse."""
        if endpoint.medium is Medium.TCP:
            host, port = connection.local_address
            host = f"[{host}]" if ":" in host else host
            return f"aeron:udp?endpoint={host}:{port}"
        return "aeron:ipc"

    def resume_token(self) -> bytes:
        """What proves that a session is this client's (protocol/resume.py)."""
        return os.urandom(TOKEN_LENGTH)

    def on_forked(self, why: str) -> None:
        """As ``forks`` says: connections close without a word, and a ``wait`` ends at once."""
        self._sleeping, self._stir, self._is_closed = threading.Lock(), threading.Event(), True
        self.poller.leave()

    def close(self) -> None:
        """Release the poller. Connections are their owners' to close, before this."""
        self._is_closed = True
        self._stir.set()
        self.poller.wake()
        with self._sleeping:
            self.poller.close()


def _run(duty: WeakMethod[Duty], stir: threading.Event) -> None:
    rest_s: float | None = 0.0
    while rest_s is not None:
        if stir.wait(rest_s):
            stir.clear()
        call = duty()
        rest_s = None if call is None else call()
        del call  # it would keep its object through the rest
