"""The commands of one client to its media driver (Aeron: DriverProxy)."""

from __future__ import annotations

import os
from collections.abc import Callable

from cluster.errors import MediaDriverError
from cluster.media.many_to_one_ring_buffer import ManyToOneRingBuffer
from cluster.protocol import media
from cluster.protocol.sbe import Composite


class DriverProxy:
    """Each command returns its correlation id. Raises MediaDriverError, LocalProtocolError (long channel)."""

    def __init__(self, ring: ManyToOneRingBuffer) -> None:
        self._ring = ring
        self._pid = os.getpid()
        self.client_id = ring.next_correlation_id()

    def add_exclusive_publication(self, channel: str, stream_id: int) -> int:
        return self._command(media.ADD_EXCLUSIVE_PUBLICATION, media.AddPublication, stream_id, channel)

    def add_subscription(self, channel: str, stream_id: int) -> int:
        return self._command(media.ADD_SUBSCRIPTION, media.AddSubscription, -1, stream_id, channel)

    def remove_publication(self, registration_id: int) -> int:
        return self._command(media.REMOVE_PUBLICATION, media.RemovePublication, registration_id)

    def remove_subscription(self, registration_id: int) -> int:
        return self._command(media.REMOVE_SUBSCRIPTION, media.RemoveSubscription, registration_id)

    def add_destination(self, registration_id: int, channel: str) -> int:
        return self._command(media.ADD_DESTINATION, media.DestinationCommand, registration_id, channel)

    def add_sent_destination(self, registration_id: int, channel: str) -> int:
        return self._command(media.ADD_SENT_DESTINATION, media.DestinationCommand, registration_id, channel)

    def remove_destination(self, registration_id: int, channel: str) -> int:
        return self._command(media.REMOVE_DESTINATION, media.DestinationCommand, registration_id, channel)

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

    def _command(self, type_id: int, kind: Callable[..., Composite], *fields: int | str) -> int:
        """Each kind begins as ``CorrelatedCommand`` does."""
        correlation_id = self._ring.next_correlation_id()
        self._write(type_id, kind(self.client_id, correlation_id, *fields))
        return correlation_id

    def _write(self, type_id: int, command: Composite) -> None:
        self.check_process()
        self._ring.write(type_id, command.encode_body())
