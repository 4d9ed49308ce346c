"""A publication to a stranger: the driver is asked for it, then the stranger has so long to answer it."""

from __future__ import annotations

from cluster.errors import LocalProtocolError
from cluster.media.aeron import Aeron
from cluster.media.publication import Publication
from cluster.protocol.response_channel import with_parameter

CONNECT_TIMEOUT_NS = 5_000_000_000  # Archive.Configuration.CONNECT_TIMEOUT_DEFAULT_NS


class AskedPublication:
    """Nothing waits for the driver: it may have a name to look up first."""

    def __init__(
        self, aeron: Aeron, channel: str, stream_id: int, now_ns: int, timeout_ns: int = CONNECT_TIMEOUT_NS
    ) -> None:
        self.channel = channel
        self.stream_id = stream_id
        self._aeron = aeron
        self._deadline_ns = now_ns + timeout_ns
        self._registration_id = aeron.ask_for_exclusive_publication(channel, stream_id)
        self.publication: Publication | None = None

    def is_connected(self, now_ns: int) -> bool:
        """Whether somebody takes what is offered. Raises ChannelRefused, LocalProtocolError for nobody."""
        if self.publication is None:
            self.publication = self._aeron.publication_of(self._registration_id)
        if self.publication is not None and self.publication.is_connected:
            return True
        if now_ns > self._deadline_ns:
            where = f"channel={self.channel}, streamId={self.stream_id}"
            raise LocalProtocolError(f"no connection established for {where}")
        return False

    def close(self) -> None:
        """Give it back; what was offered is sent."""
        self._aeron.give_up_publication(self._registration_id)


def channel_at(channel: str, position: int, initial_term_id: int, term_length: int, mtu: int) -> str:
    """The channel of a publication that begins at ``position`` of a log of this shape."""
    own = {
        "init-term-id": initial_term_id,
        "term-id": (initial_term_id + position // term_length + 2**31) % 2**32 - 2**31,
        "term-offset": position % term_length,
        "term-length": term_length,
        "mtu": mtu,
        "sparse": "true",
    }
    for key, value in own.items():
        channel = with_parameter(channel, key, str(value))
    return channel
