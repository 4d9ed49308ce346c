"""Where others answer a client: a subscription on a port that its driver chose."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import numpy as np

from cluster.media.aeron import Aeron
from cluster.media.client_conductor import ChannelRefused
from cluster.media.frame_wait import await_frames
from cluster.media.message_reader import MessageReader, messages_of


def local_host_towards(endpoint: str) -> str:
    """The address of this host that ``endpoint``, ``host:port``, can answer to. Raises ChannelRefused."""
    host, _, port = endpoint.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(found[0], socket.SOCK_DGRAM) as probe:
            probe.connect(found[4])  # of datagrams: nothing is sent
            address: str = probe.getsockname()[0]
    except (OSError, ValueError) as error:
        raise ChannelRefused(f"{endpoint} is not reached from this host: {error}") from None
    return f"[{address}]" if ":" in address else address


class Answers:
    """The messages that arrive for us on a stream."""

    def __init__(self, aeron: Aeron, towards: str, stream_id: int) -> None:
        """Raises ChannelRefused where no way leads to the endpoint ``towards``."""
        self._aeron = aeron
        self.stream_id = stream_id
        host = local_host_towards(towards)
        self.subscription = aeron.add_subscription(f"aeron:udp?endpoint={host}:0", stream_id)
        self.channel = f"aeron:udp?endpoint={aeron.local_address(self.subscription)}"
        self._readers: dict[int, MessageReader] = {}

    def poll(self) -> list[bytes]:
        """What has arrived whole by now, of whoever sent it."""
        return [message for run in self.poll_runs() for message in messages_of(run)]

    def poll_runs(self) -> Iterator[np.ndarray]:
        """The same as runs of whole messages in their frames; each holds until the next."""
        images = self.subscription.images
        ended = [self._readers.pop(session_id) for session_id in self._readers.keys() - images.keys()]
        for session_id, image in list(images.items()):
            reader = self._readers.get(session_id)
            if reader is None or reader.image is not image:
                self._readers[session_id] = MessageReader(image)
        for reader in (*ended, *self._readers.values()):
            while (run := reader.poll_run()) is not None:
                yield run

    def wait(self, timeout_s: float, descriptor: int, *, is_reading: bool, is_due: bool) -> None:
        """Until there is something to poll, for who ``is_reading``, or the descriptor is readable."""
        images = self.subscription.images.values() if is_reading else ()
        await_frames(images, timeout_s, descriptor, is_due=is_due)

    def close(self) -> None:
        self._aeron.remove_subscription(self.subscription)
