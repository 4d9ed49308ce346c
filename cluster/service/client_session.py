"""A client as its service sees it (Aeron: ClientSession, ContainerClientSession)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from cluster.service.buffer_claim import BufferClaim

if TYPE_CHECKING:
    from cluster.service.cluster import Cluster

Payload: TypeAlias = bytes | bytearray | memoryview | np.ndarray


# What an offer returns where it is only acted: on followers and in replays (Aeron: ClientSession).
MOCKED_OFFER = 1


class ClientSession:
    """One open session. Offers reach the client on the leader; elsewhere they are only acted."""

    __slots__ = (
        "_cluster",
        "_egress_position",
        "_is_closing",
        "_is_connected",
        "_is_open",
        "encoded_principal",
        "id",
        "response_channel",
        "response_stream_id",
    )

    def __init__(
        self,
        cluster_session_id: int,
        response_stream_id: int,
        response_channel: str,
        encoded_principal: bytes,
        cluster: Cluster,
    ) -> None:
        self.id = cluster_session_id
        self.response_stream_id = response_stream_id
        self.response_channel = response_channel
        self.encoded_principal = encoded_principal
        self._cluster = cluster
        self._is_closing = False
        self._is_open = True
        self._is_connected = False  # only on the leader, and if the container is a responder
        self._egress_position = 0

    @property
    def cluster_session_id(self) -> int:
        """The same as ``id``, under its name in the protocol."""
        return self.id

    @property
    def is_closing(self) -> bool:
        """Whether this service has asked for the session to be closed."""
        return self._is_closing

    def offer(self, *payload: Payload) -> int:
        """Send one message, gathered from the given buffers, to the client.

        Returns a positive number, Offer.NOT_CONNECTED when the session is closed, or Offer.BACK_PRESSURED
        when too much waits to be sent: then nothing was, and it is to be offered again after
        ``idle_strategy().idle()``. On a follower and in a replay it returns 1 and sends nothing. Raises
        LocalProtocolError on every member alike where sending is not allowed, and when the message is longer
        than the log could hold.
        """
        return self._cluster._offer_to(self, payload)

    def try_claim(self, length: int, claim: BufferClaim) -> int:
        """Give ``claim`` room for ``length`` bytes; the message goes out when it is committed.

        Returns and raises what ``offer`` does; only a positive number means that there is a claim.
        """
        return self._cluster._try_claim_to(self, length, claim)

    def close(self) -> bool:
        """Ask the consensus module to close the session; it ends with ``on_session_close``."""
        return self._cluster._close(self)

    def __repr__(self) -> str:
        return f"ClientSession(id={self.id}, response_channel={self.response_channel!r})"
