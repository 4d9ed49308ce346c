"""A client as its service sees it (Aeron: ClientSession)."""

from __future__ import annotations

from dataclasses import dataclass, field

from cluster.service.buffer_claim import BufferClaim
from cluster.service.payload import Payload
from cluster.service.session_egress import SessionEgress


@dataclass(slots=True, eq=False)
class ClientSession:
    """One open session. Offers reach the client on the leader; elsewhere they are only acted."""

    id: int
    response_stream_id: int = field(repr=False)
    response_channel: str
    encoded_principal: bytes = field(repr=False)
    _egress: SessionEgress = field(repr=False)

    @property
    def cluster_session_id(self) -> int:
        """The same as ``id``, under its name in the protocol."""
        return self.id

    @property
    def is_closing(self) -> bool:
        """Whether this service has asked for the session to be closed."""
        return self._egress.is_closing

    def offer(self, *payload: Payload) -> int:
        """Send one message, gathered from the given buffers, to the client.

        Returns a positive number, Offer.NOT_CONNECTED when the session is closed, or Offer.BACK_PRESSURED
        when too much waits to be sent: then nothing was, and it is to be offered again after
        ``idle_strategy().idle()``. On a follower and in a replay it returns 1 and sends nothing; what a
        supervised session is answered is kept there, too. Raises
        LocalProtocolError on every member alike where sending is not allowed, and when the message is longer
        than the log could hold.
        """
        return self._egress.offer(payload)

    def try_claim(self, length: int, claim: BufferClaim) -> int:
        """Give ``claim`` room for ``length`` bytes; the message goes out when it is committed.

        Returns and raises what ``offer`` does; only a positive number means that there is a claim.
        """
        return self._egress.try_claim(length, claim)

    def close(self) -> bool:
        """Ask the consensus module to close the session; it ends with ``on_session_close``."""
        return self._egress.close()
