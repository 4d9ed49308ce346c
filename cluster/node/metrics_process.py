"""The process that serves a member's metrics, as the member sees it: a socket, and who listens there.

The member binds the socket, so that a port in use is said at its start. All that comes there is its child's
(``cluster/cli/metrics_process.py``): no turn of the member is spent on it.
"""

import pickle
import socket
import sys
from collections.abc import Callable

from cluster.errors import ConfigurationError, PortInUse
from cluster.node.child import Child
from cluster.node.config import NodeConfig
from cluster.transport.endpoint import parse_endpoint
from cluster.transport.listener import BACKLOG, bind_first
from cluster.transport.poller import Poller

CLOSE_TIMEOUT_S = 1.0


class MetricsProcess:
    """Started by the first ``do_work``, and again when it has ended; none without ``metrics_endpoint``."""

    def __init__(self, config: NodeConfig, poller: Poller, say: Callable[[str], None]) -> None:
        """Raises PortInUse, ConfigurationError."""
        self._sock: socket.socket | None = None
        command: list[str] = []
        descriptors: list[int] = []
        if address := config.metrics_address:
            try:
                self._sock = bind_first(parse_endpoint(f"tcp:{address}"), poller.names, poller.open_socket)
            except (PortInUse, ConfigurationError) as error:
                raise type(error)(f"metrics_endpoint: {error}") from None
            self._sock.listen(BACKLOG)
            descriptors = [self._sock.fileno()]
            command = [sys.executable, "-m", "cluster.cli.metrics_process", str(descriptors[0])]
        self._child = Child("metrics", command, say, given=pickle.dumps(config), descriptors=descriptors)

    def do_work(self, now_ns: int) -> None:
        """Start it where it does not run."""
        if self._child.is_running:
            self._child.take_end(now_ns)
        else:
            self._child.start(now_ns)

    def close(self) -> None:
        """Listen no more, and end it."""
        if self._sock is not None:
            self._sock.close()
        self._child.retire()
        self._child.terminate()
        self._child.await_end(CLOSE_TIMEOUT_S, lambda: False)
