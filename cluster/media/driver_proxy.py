"""The commands of one client to its media driver (Aeron: DriverProxy)."""

from __future__ import annotations

import os
from collections.abc import Callable

from cluster.errors import MediaDriverError
from cluster.media.many_to_one_ring_buffer import ManyToOneRingBuffer
from cluster.protocol import media
from cluster.protocol.sbe import Composite


class DriverProxy:
    """Raises MediaDriverError, LocalProtocolError (long channel)."""

    def __init__(self, ring: ManyToOneRingBuffer) -> None:
        self._ring = ring
        self._pid = os.getpid()
        self.client_id = ring.next_correlation_id()

    def client_close(self) -> None:
        self._write(media.CLIENT_CLOSE, media.CorrelatedCommand(self.client_id, -1))

    def next_correlation_id(self) -> int:
        """A number that no other client of the driver gets."""
        return self._ring.next_correlation_id()

    def check_process(self) -> None:
        """Raise MediaDriverError in a process that was forked off: the client is its parent's."""
        if os.getpid() != self._pid:
            raise MediaDriverError(
                f"this client of a media driver is of process {self._pid}: open another one here"
            )

    def command(self, type_id: int, kind: Callable[..., Composite], *fields: int | str) -> int:
        """Send a command, whose kind begins as ``CorrelatedCommand`` does; returns its correlation id."""
        correlation_id = self._ring.next_correlation_id()
        self._write(type_id, kind(self.client_id, correlation_id, *fields))
        return correlation_id

    def _write(self, type_id: int, command: Composite) -> None:
        self.check_process()
        self._ring.write(type_id, command.encode_body())
