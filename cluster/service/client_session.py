"""A client as its service sees it (Aeron: ClientSession)."""

from dataclasses import dataclass, field

from cluster.service.buffer_claim import BufferClaim
from cluster.service.payload import Payload
from cluster.service.session_egress import SessionEgress


@dataclass(slots=True, eq=False)
class ClientSession:
    """One open session. Only the leader's offers reach the client; other members send nothing."""

    id: int
    response_stream_id: int = field(repr=False)
    response_channel: str
    encoded_principal: bytes = field(repr=False)
    _egress: SessionEgress = field(repr=False)

    @property
    def cluster_session_id(self) -> int:
        """The same as ``id``, with its name in the protocol."""
        return self.id

    @property
    def is_closing(self) -> bool:
        """Whether this service has asked to close the session."""
        return self._egress.is_closing

    def offer(self, *payload: Payload) -> int:
        """Send one message, made of the given buffers, to the client.

        Returns a positive number; Offer.NOT_CONNECTED if the session is closed; or Offer.BACK_PRESSURED if
        too much waits to be sent. Then nothing was sent: call ``idle_strategy().idle()`` and offer again. On
        a follower and in a replay it returns 1 and sends nothing, but keeps an answer to a supervised
        session. Raises LocalProtocolError, on every member alike, if sending is not allowed here or if the
        message is too long for the log.
        """
        return self._egress.offer(payload)

    def try_claim(self, length: int, claim: BufferClaim) -> int:
        """Give ``claim`` room for ``length`` bytes, which its ``commit`` sends.

        Returns and raises what ``offer`` does; only after a positive result is there a claim.
        """
        return self._egress.try_claim(length, claim)

    def close(self) -> bool:
        """Ask the consensus module to close the session; ``on_session_close`` follows."""
        return self._egress.close()
