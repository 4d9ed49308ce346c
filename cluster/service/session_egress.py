"""The container's half of a session: its answers (Aeron: ContainerClientSession).

Answers to a supervised session are numbered, and handed to the consensus module on every member, which keeps
them until the client has them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.log.message_numbers import MessageNumbers
from cluster.protocol.enums import Offer, Role
from cluster.protocol.service import CloseSession
from cluster.protocol.session import answer_id_of
from cluster.service.buffer_claim import BufferClaim
from cluster.service.channel import EGRESS_OVERHEAD
from cluster.service.outbox import Outbox
from cluster.service.payload import Payload, check_length, gathered
from cluster.service.service_context import ServiceContext
from cluster.service.service_state import ServiceState

# What an offer returns where it is only acted: on followers and in replays (Aeron: ClientSession).
MOCKED_OFFER = 1


@dataclass(slots=True, eq=False)
class SessionEgress:
    """Answers to one session; ``is_connected`` only on the leader, and if the container is a responder."""

    _session_id: int
    _state: ServiceState
    _outbox: Outbox
    _context: ServiceContext
    _numbers: MessageNumbers | None  # which count the answers; None: the session is not supervised
    is_connected: bool = False
    is_open: bool = True
    is_closing: bool = False  # the service has asked for it
    _position: int = 0  # bytes of answers so far, their headers included

    def offer(self, payload: Sequence[Payload]) -> int:
        """``ClientSession.offer``."""
        self._outbox.check_may_send()
        message = gathered(payload, self._context.max_message_length)
        if (refused := self._refusal()) is not None:
            return refused
        count = 0 if self._numbers is None else self._numbers.answered_of(self._session_id) + 1
        answer_id = answer_id_of(self._context.service_id, count) if count else 0
        if not self._outbox.answer(self._session_id, message, answer_id):
            return Offer.BACK_PRESSURED
        if self._numbers is not None:
            self._numbers.count_answers(self._session_id, count)
        if self._state.role is not Role.LEADER:
            return MOCKED_OFFER
        self._position += EGRESS_OVERHEAD + len(message)
        return self._position

    def try_claim(self, length: int, claim: BufferClaim) -> int:
        """``ClientSession.try_claim``."""
        self._outbox.check_may_send()
        check_length(length, self._context.max_message_length)
        refused = self._refusal()
        if refused is not None and refused != MOCKED_OFFER:
            return refused
        reserved = 0 if refused else EGRESS_OVERHEAD + length
        if not self._outbox.claim_answer(claim, length, reserved, lambda message: self.offer((message,))):
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

    def _refusal(self) -> int | None:
        """What an offer returns without being sent; None when it goes out."""
        if not self.is_open:
            return Offer.NOT_CONNECTED
        if self._numbers is not None:
            return None  # it is kept, connected or not
        if self._state.role is not Role.LEADER:
            return MOCKED_OFFER
        return None if self.is_connected else Offer.NOT_CONNECTED
