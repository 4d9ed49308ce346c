"""Aeron's clients and backups, served by a thread of the member's process that the member does not know.

It is a client of a media driver on this host, which the user runs, and it is to the member as many clients as
it serves, each with a connection made within the process:

    AeronCluster ── ingress image ──▶ AeronClients ─ AeronClientLink ── socket pair ──▶ ClientPort
                 ◀── egress ───────────── publication ◀────┘

Clients of sessions that another member has opened are dialled: they wait to hear from the new leader. Where
the driver ends, those who were served are dialled again as soon as one runs there.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from cluster.aeron.aeron_client_link import AeronClient, egress_channel
from cluster.aeron.aeron_clients import AeronClients
from cluster.aeron.driver_thread import DriverThread
from cluster.media.aeron import Aeron
from cluster.protocol import streams
from cluster.transport.bounds import DEFAULT_BOUNDS, Bounds


class AeronIngress:
    """The thread; ``start`` and ``stop`` are called from another, ``dial`` from any."""

    def __init__(
        self,
        channels: Mapping[int, str],
        aeron_dir: str,
        member_id: int,
        connect: Callable[[None, str, int | None], socket.socket],
        message_length_max: int,
        bounds: Bounds = DEFAULT_BOUNDS,
        *,
        on_error: Callable[[Exception], None],
        on_event: Callable[[str], None],
    ) -> None:
        """Serve at ``channels``, by the driver of ``aeron_dir``, the user's where that is empty.

        They are those of clients and of backups, by the stream of their requests: INGRESS, CONSENSUS.
        ``connect`` is that of a ``ClientPort``. ``on_error`` hears, in this thread, of clients that are
        refused, of a driver that does not run, and of mistakes; ``on_event`` of one that serves.
        """
        self._channels = channels
        self._clients_of = partial(
            AeronClients,
            channels=channels,
            member_id=member_id,
            connect=connect,
            message_length_max=message_length_max,
            bounds=bounds,
            on_error=on_error,
        )
        self._on_event = on_event
        self._dials: deque[AeronClient] = deque()
        self._thread = DriverThread("aeron-ingress", aeron_dir, self._serve, on_error)
        self.start, self.stop = self._thread.start, self._thread.stop

    def dial(self, session_id: int, response_channel: str, response_stream_id: int) -> None:
        """Reach the client of an open session, unless its channel is none of Aeron's network."""
        if streams.INGRESS in self._channels and (channel := egress_channel(response_channel)):
            host = channel.partition("=")[2].rpartition(":")[0]
            self._dials.append(AeronClient(channel, response_stream_id, host, session_id))

    def _serve(self, aeron: Aeron) -> None:
        clients = self._clients_of(aeron)
        where = " and ".join(self._channels.values())
        self._on_event(f"serves Aeron's clients at {where}, by the media driver of {self._thread.aeron_dir}")
        try:
            while not self._thread.is_stopped:
                while self._dials:
                    clients.open(self._dials.popleft())
                clients.do_work()
        except Exception:
            self._dials.extend(clients.served())
            raise
        finally:
            clients.close()
