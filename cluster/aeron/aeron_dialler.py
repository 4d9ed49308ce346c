"""The world of a client whose cluster is a real Aeron Cluster: what it dials ends in a thread beside it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from functools import partial

from cluster.aeron.aeron_cluster import AeronCluster
from cluster.aeron.aeron_gateway import AeronGateway
from cluster.aeron.aeron_log import TIMEOUT_S, AeronLog
from cluster.aeron.log_follower import LogFollower
from cluster.errors import ClusterError
from cluster.media.aeron import Aeron
from cluster.protocol.frame import message_length_max
from cluster.transport.credentials import CredentialsSupplier
from cluster.transport.dialler import NEVER, Dialler
from cluster.transport.endpoint import Endpoint
from cluster.transport.forks import leave_to_parent
from cluster.transport.sockets import Connection, Explanation

CLOSE_TIMEOUT_S = 2.0  # until the thread has given all back to the driver


class AeronDialler(Dialler):
    """All of a client's connections lead to its one session, which the first of them opens."""

    def __init__(
        self, aeron_dir: str | None, credentials: CredentialsSupplier, client_name: str, timeout_s: float
    ) -> None:
        """``aeron_dir`` is that of a media driver on this host, by default the user's."""
        super().__init__()
        self._settings = aeron_dir, credentials, client_name, timeout_s
        self._gateway: _GatewayThread | None = None

    def dial(self, endpoint: Endpoint) -> Connection:
        """A connection to the session; one that could not be opened shows as closed."""
        gateway = self._gateway
        if gateway is None or (sock := gateway.connect()) is None:
            gateway = self._gateway = _GatewayThread(endpoint.path, *self._settings)
            sock = gateway.connect()
            gateway.start()
        assert sock is not None
        self._spin_rest = NEVER  # its threads want the interpreter
        return Connection(sock, self.poller, self._receive_buffer, explain=gateway.explain)

    def close(self) -> None:
        if self._gateway is not None:
            self._gateway.close()
        super().close()


class _GatewayThread:
    def __init__(
        self,
        consensus_endpoints: str,
        aeron_dir: str | None,
        credentials: CredentialsSupplier,
        client_name: str,
        timeout_s: float,
    ) -> None:
        self._open_log = partial(AeronLog, consensus_endpoints, aeron_dir=aeron_dir, credentials=credentials)
        self._aeron_dir, self._timeout_s = aeron_dir, timeout_s
        self._open_session = partial(AeronCluster, credentials=credentials, client_name=client_name)
        self._arrived: deque[socket.socket] = deque()
        self._lock = threading.Lock()  # of what has arrived, and whether it is taken
        self._is_over = self._is_closing = False
        self._why = ""
        self._gateway: AeronGateway | None = None
        self._thread = threading.Thread(target=self._run, name="aeron-gateway", daemon=True)
        leave_to_parent(self)

    def start(self) -> None:
        """Take the connections that there are, and those to come."""
        self._thread.start()

    def connect(self) -> socket.socket | None:
        """The client's end of a new connection; None when the session is over."""
        with self._lock:
            if self._is_over:
                return None
            ours, theirs = socket.socketpair()
            self._arrived.append(theirs)
        self._wake()
        return ours

    def _wake(self) -> None:
        if self._gateway is not None:
            self._gateway.wake()

    def explain(self) -> Explanation:
        """Why it has ended, as far as the session has not said it."""
        return self._why, None

    def _run(self) -> None:
        try:
            with contextlib.ExitStack() as stack:
                gateway = self._gateway = self._open(stack)
                while not (self._is_closing or gateway.is_over):
                    while self._arrived:
                        gateway.take(self._arrived.popleft())
                    if not gateway.do_work() and not self._arrived:
                        gateway.wait()
        except Exception as error:  # of the cluster and the driver; no more threads, descriptors, memory
            self._why = str(error) if isinstance(error, ClusterError) else f"{type(error).__name__}: {error}"
        with self._lock:
            self._is_over = True
            while self._arrived:
                self._arrived.popleft().close()

    def _open(self, stack: contextlib.ExitStack) -> AeronGateway:
        """Who is there, how far the log is before the session, and an attempt to open that."""
        timeout_s = min(TIMEOUT_S, self._timeout_s / 2)
        with contextlib.closing(self._open_log(timeout_s=timeout_s, give_up_s=0)) as log:
            endpoints, position = log.ingress_endpoints(), log.end_position()
            length_max = message_length_max(log.term_length)
        aeron = stack.enter_context(Aeron.connect(self._aeron_dir, timeout_s))
        follower = LogFollower(self._open_log, position, self._wake)
        stack.callback(follower.await_end, CLOSE_TIMEOUT_S / 2)
        stack.callback(follower.close)
        open_session = partial(self._open_session, aeron, endpoints)
        return stack.enter_context(contextlib.closing(AeronGateway(open_session, follower, length_max)))

    def close(self) -> None:
        self._is_closing = True
        self._wake()
        self._thread.join(CLOSE_TIMEOUT_S)

    def on_forked(self, why: str) -> None:
        """As ``cluster.transport.forks`` says."""
        self._why, self._is_over, self._lock = why, True, threading.Lock()
        for sock in self._arrived:
            sock.close()
        if self._gateway is not None:
            self._gateway.on_forked(why)
