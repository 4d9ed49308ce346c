"""The container's half of a session: its answers (Aeron: ContainerClientSession).

Answers to a supervised session are numbered, and handed to the consensus module on every member, which keeps
them until the client has them.
"""

from __future__ import annotations

from collections.abc import Sequence

from cluster.protocol.enums import Offer, Role
from cluster.protocol.link import answer_id_of
from cluster.protocol.service import CloseSession
from cluster.service.buffer_claim import BufferClaim
from cluster.service.channel import EGRESS_OVERHEAD
from cluster.service.outbox import Outbox
from cluster.service.payload import Payload, check_length, gathered
from cluster.service.service_context import ServiceContext
from cluster.service.service_state import ServiceState

# What an offer returns where it is only acted: on followers and in replays (Aeron: ClientSession).
MOCKED_OFFER = 1


class SessionEgress:
    """Answers to one session; ``is_connected`` only on the leader, and if the container is a responder."""

    __slots__ = (
        "_length_max",
        "_outbox",
        "_position",
        "_service_id",
        "_session_id",
        "_state",
        "answered",
        "is_closing",
        "is_connected",
        "is_open",
        "is_supervised",
    )

    def __init__(self, session_id: int, state: ServiceState, outbox: Outbox, context: ServiceContext) -> None:
        self._session_id = session_id
        self._state = state
        self._outbox = outbox
        self._service_id = context.service_id
        self._length_max = context.max_message_length
        self._position = 0  # bytes of answers so far, their headers included
        self.is_open = True
        self.is_connected = False
        self.is_closing = False  # the service has asked for it
        self.is_supervised = False
        self.answered = 0  # answers since a supervised session was opened

    def offer(self, payload: Sequence[Payload]) -> int:
        """``ClientSession.offer``."""
        self._outbox.check_may_send()
        message = gathered(payload, self._length_max)
        if (refused := self._refusal()) is not None:
            return refused
        answer_id = self.next_answer_id if self.is_supervised else 0
        if not self._outbox.answer(self._session_id, message, answer_id):
            return Offer.BACK_PRESSURED
        self.answered += self.is_supervised
        if self._state.role is not Role.LEADER:
            return MOCKED_OFFER
        self._position += EGRESS_OVERHEAD + len(message)
        return self._position

    def try_claim(self, length: int, claim: BufferClaim) -> int:
        """``ClientSession.try_claim``."""
        self._outbox.check_may_send()
        check_length(length, self._length_max)
        refused = self._refusal()
        if refused is not None and refused != MOCKED_OFFER:
            return refused
        reserved = 0 if refused else EGRESS_OVERHEAD + length
        if not self._outbox.claim_answer(claim, length, reserved, self._offer_claimed):
            return Offer.BACK_PRESSURED
        is_acted = refused is not None or self._state.role is not Role.LEADER
        return MOCKED_OFFER if is_acted else self._position + reserved

    def close(self) -> bool:
        """``ClientSession.close``."""
        self._outbox.check_may_send()
        if not self.is_closing and self.is_open:
            self.is_closing = self._outbox.send(CloseSession(cluster_session_id=self._session_id).encode())
            return self.is_closing
        return True

    @property
    def next_answer_id(self) -> int:
        """Of the next answer to a supervised session."""
        return answer_id_of(self._service_id, self.answered + 1)

    def _offer_claimed(self, message: memoryview) -> int:
        return self.offer((message,))

    def _refusal(self) -> int | None:
        """What an offer returns without being sent; None when it goes out."""
        if not self.is_open:
            return Offer.NOT_CONNECTED
        if self.is_supervised:
            return None  # it is kept, connected or not
        if self._state.role is not Role.LEADER:
            return MOCKED_OFFER
        return None if self.is_connected else Offer.NOT_CONNECTED
