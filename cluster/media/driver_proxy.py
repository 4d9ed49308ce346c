"""The commands of one client to its media driver (Aeron: DriverProxy)."""

from __future__ import annotations

import os

from cluster.errors import MediaDriverError
from cluster.media.many_to_one_ring_buffer import ManyToOneRingBuffer
from cluster.protocol import media


class DriverProxy:
    """Each command returns its correlation id. Raises MediaDriverError, LocalProtocolError (long channel)."""

    def __init__(self, ring: ManyToOneRingBuffer) -> None:
        self._ring = ring
        self._pid = os.getpid()
        self.client_id = ring.next_correlation_id()

    def add_exclusive_publication(self, channel: str, stream_id: int) -> int:
        return self._add(media.ADD_EXCLUSIVE_PUBLICATION, channel, stream_id)

    def add_subscription(self, channel: str, stream_id: int) -> int:
        return self._add(media.ADD_SUBSCRIPTION, channel, stream_id)

    def remove_publication(self, registration_id: int) -> int:
        correlation_id = self._ring.next_correlation_id()
        command = media.RemovePublication(self.client_id, correlation_id, registration_id)
        self._write(media.REMOVE_PUBLICATION, command.encode_body())
        return correlation_id

    def remove_subscription(self, registration_id: int) -> int:
        correlation_id = self._ring.next_correlation_id()
        command = media.RemoveSubscription(self.client_id, correlation_id, registration_id)
        self._write(media.REMOVE_SUBSCRIPTION, command.encode_body())
        return correlation_id

    def add_destination(self, registration_id: int, channel: str) -> int:
        return self._destination(media.ADD_DESTINATION, registration_id, channel)

    def remove_destination(self, registration_id: int, channel: str) -> int:
        return self._destination(media.REMOVE_DESTINATION, registration_id, channel)

    def client_close(self) -> None:
        self._write(media.CLIENT_CLOSE, media.CorrelatedCommand(self.client_id, -1).encode_body())

    def next_correlation_id(self) -> int:
        """A number that no other client of the driver gets."""
        return self._ring.next_correlation_id()

    def check_process(self) -> None:
        """Raise MediaDriverError in a process that was forked off: the client is its parent's."""
        if os.getpid() != self._pid:
            raise MediaDriverError(
                f"this client of a media driver is of process {self._pid}: open another one here"
            )

    def _write(self, type_id: int, command: bytes) -> None:
        self.check_process()
        self._ring.write(type_id, command)

    def _destination(self, type_id: int, registration_id: int, channel: str) -> int:
        correlation_id = self._ring.next_correlation_id()
        command = media.DestinationCommand(self.client_id, correlation_id, registration_id, channel)
        self._write(type_id, command.encode_body())
        return correlation_id

    def _add(self, type_id: int, channel: str, stream_id: int) -> int:
        correlation_id = self._ring.next_correlation_id()
        command: media.AddPublication | media.AddSubscription
        if type_id == media.ADD_SUBSCRIPTION:
            command = media.AddSubscription(self.client_id, correlation_id, -1, stream_id, channel)
        else:
            command = media.AddPublication(self.client_id, correlation_id, stream_id, channel)
        self._write(type_id, command.encode_body())
        return correlation_id
