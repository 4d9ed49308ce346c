"""What leaves a service: messages to its consensus module, and answers to clients.

    cluster.schedule_timer, cluster.offer, ... --send---------> stream 105
    session.offer --------------------------answer-----+
                                                       v
                                               rows --flush--> egress, a batch at a time
    cluster.offer_batch --------------------answer_batch------^

Each stream has room for so many bytes; what is claimed takes its room at once.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from cluster.errors import ClusterError
from cluster.service.buffer_claim import BufferClaim, Claimed, check_unused, open_claim
from cluster.service.channel import EGRESS_OVERHEAD, Room, ServiceChannel, ServiceEgress
from cluster.service.service_state import ServiceState


@dataclass(slots=True, eq=False)
class Outbox:
    """The sending half of one service; ``check_may_send`` raises LocalProtocolError on every member alike."""

    _channel: ServiceChannel
    _state: ServiceState
    check_may_send: Callable[[], None]
    _claims: list[BufferClaim] = field(default_factory=list)  # that are open
    _answers: list[tuple[int, int, bytes, int, int]] = field(default_factory=list)  # given one at a time

    def send(self, message: bytes) -> bool:
        """Queue a message for the consensus module; False: back pressure. Raises ClusterError without one."""
        if self._channel.is_closed:
            raise ClusterError("the consensus module is gone: its channel is closed")
        return self._channel.offer_to_consensus_module(message, self._state.log_position)

    def answer(self, session_id: int, payload: bytes, answer_id: int) -> bool:
        """Give one answer, with its id to a supervised session (else 0); False is back pressure."""
        if not self._take_egress_room(EGRESS_OVERHEAD + len(payload)):
            return False
        state = self._state
        number = state.message_number if session_id == state.message_session_id else 0
        self._answers.append((session_id, state.cluster_time, payload, number, answer_id))
        return True

    def answer_batch(self, batch: ServiceEgress) -> bool:
        """Hand over a batch of answers, after those given one at a time; False is back pressure."""
        if not self._take_egress_room(batch.byte_count):
            return False
        self.flush()
        self._channel.offer_egress(batch)
        return True

    def claim_message(
        self, claim: BufferClaim, length: int, reserved: int, offer: Callable[[memoryview], int]
    ) -> bool:
        """Give ``claim`` a buffer for a message to the consensus module; False without ``reserved`` room.

        Raises LocalProtocolError for a claim that is open.
        """
        return self._claim(self._channel.control_room, claim, length, reserved, offer)

    def claim_answer(
        self, claim: BufferClaim, length: int, reserved: int, offer: Callable[[memoryview], int]
    ) -> bool:
        """The same for an answer."""
        return self._claim(self._channel.egress_room, claim, length, reserved, offer)

    def _claim(
        self, room: Room, claim: BufferClaim, length: int, reserved: int, offer: Callable[[memoryview], int]
    ) -> bool:
        check_unused(claim)
        if not room.has(reserved):
            return False
        room.used += reserved

        def release() -> None:
            room.used -= reserved
            self._claims = [other for other in self._claims if other is not claim]

        open_claim(claim, length, Claimed(self.check_may_send, release, offer))
        self._claims.append(claim)
        return True

    def abort_claims(self) -> None:
        """Nobody will commit those that are open: the callback that could has failed."""
        for claim in self._claims:
            claim.abort()

    def flush(self) -> None:
        """Hand the answers given one at a time to the consensus module, as one batch of their term."""
        if not self._answers:
            return
        session_ids, timestamps, payloads, numbers, answer_ids = zip(*self._answers)
        self._answers.clear()
        lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
        # Through a bytearray: the kernel that frames answers takes writable arrays of at least one byte.
        buffer = bytearray().join(payloads) or bytearray(1)
        batch = ServiceEgress(
            self._state.leadership_term_id,
            np.array(session_ids, np.int64),
            np.array(timestamps, np.int64),
            np.cumsum(lengths) - lengths,
            lengths,
            np.frombuffer(buffer, np.uint8),
            np.array(numbers, np.int64),
            np.array(answer_ids, np.int64) if any(answer_ids) else None,
        )
        self._channel.offer_egress(batch)

    @property
    def is_half_full(self) -> bool:
        """Whether either stream has less than half of its room left."""
        return self._channel.egress_room.is_half_used or self._channel.control_room.is_half_used

    def _take_egress_room(self, length: int) -> bool:
        room = self._channel.egress_room
        if not room.has(length):
            return False
        room.used += length
        return True
