"""Aeron's clients, served by a thread of the member's process that the member does not know.

It is a client of a media driver on this host, which the user runs, and it is to the member as many clients as
it serves, each with a connection made within the process:

    AeronCluster ── ingress image ──▶ AeronClients ─ AeronClientLink ── socket pair ──▶ ClientPort
                 ◀── egress ───────────── publication ◀────┘

Clients of sessions that another member has opened are dialled: they wait to hear from the new leader. Where
the driver ends, those who were served are dialled again as soon as one runs there.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from cluster.aeron.aeron_client_link import AeronClient, egress_channel
from cluster.aeron.aeron_clients import AeronClients
from cluster.errors import ClusterError
from cluster.media.aeron import Aeron, default_aeron_dir
from cluster.transport.bounds import DEFAULT_BOUNDS, Bounds

RETRY_S = 1.0
STOP_S = 1.0


class AeronIngress:
    """The thread; ``start`` and ``stop`` are called from another, ``dial`` from any."""

    def __init__(
        self,
        channel: str,
        aeron_dir: str,
        member_id: int,
        connect: Callable[[None, str, int | None], socket.socket],
        message_length_max: int,
        bounds: Bounds = DEFAULT_BOUNDS,
        *,
        on_error: Callable[[ClusterError], None],
        on_event: Callable[[str], None],
    ) -> None:
        """Serve at ``channel``, by the driver of ``aeron_dir``, the user's where that is empty.

        ``connect`` is that of a ``ClientPort``. ``on_error`` hears, in this thread, of clients that are
        refused and of a driver that does not run; ``on_event`` of one that serves.
        """
        self._channel = channel
        self._aeron_dir = aeron_dir or default_aeron_dir()
        self._clients_of = partial(
            AeronClients,
            channel=channel,
            member_id=member_id,
            connect=connect,
            message_length_max=message_length_max,
            bounds=bounds,
            on_error=on_error,
        )
        self._on_error = on_error
        self._on_event = on_event
        self._dials: deque[AeronClient] = deque()
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="aeron-ingress", daemon=True)

    def start(self) -> None:
        """Look for the driver, now and as long as there is none."""
        self._thread.start()

    def stop(self) -> None:
        """End all connections, and the thread; a driver that hangs is not waited for."""
        self._is_stopped.set()
        self._thread.join(STOP_S)

    def dial(self, session_id: int, response_channel: str, response_stream_id: int) -> None:
        """Reach the client of an open session, unless its channel is none of Aeron's network."""
        if channel := egress_channel(response_channel):
            host = channel.partition("=")[2].rpartition(":")[0]
            self._dials.append(AeronClient(channel, response_stream_id, host, session_id))

    def _run(self) -> None:
        while not self._is_stopped.is_set():
            try:
                with Aeron.connect(self._aeron_dir, 0) as aeron:
                    self._serve(aeron)
            except ClusterError as error:
                self._on_error(error)
                self._is_stopped.wait(RETRY_S)

    def _serve(self, aeron: Aeron) -> None:
        clients = self._clients_of(aeron)
        self._on_event(f"serves Aeron's clients at {self._channel}, by the media driver of {self._aeron_dir}")
        try:
            while not self._is_stopped.is_set():
                while self._dials:
                    clients.open(self._dials.popleft())
                clients.do_work()
        except ClusterError:
            self._dials.extend(clients.served())
            raise
        finally:
            clients.close()
