"""Answers to many sessions at once, as columns: of a service that offers them so, or that is compiled."""

from dataclasses import dataclass

import numpy as np

from cluster.errors import LocalProtocolError
from cluster.log.session_frames import longest_payload
from cluster.protocol.enums import Offer, Role
from cluster.service.channel import ServiceEgress
from cluster.service.open_sessions import OpenSessions
from cluster.service.outbox import Outbox
from cluster.service.payload import check_length, copied_bytes, view_of
from cluster.service.service_context import ServiceContext
from cluster.service.service_state import ServiceState
from cluster.service.session_egress import MOCKED_OFFER


@dataclass(frozen=True, slots=True)
class BatchAnswers:
    """Hands them over, with the ids of those to supervised sessions."""

    _context: ServiceContext
    _state: ServiceState
    _sessions: OpenSessions
    _outbox: Outbox

    def offer(
        self,
        session_ids: np.ndarray,
        offsets: np.ndarray,
        lengths: np.ndarray,
        buffer: np.ndarray,
        timestamps: np.ndarray,
        numbers: np.ndarray,
    ) -> int:
        """As ``Cluster.offer_batch``; ``numbers``: of the messages that are answered, in their sessions."""
        state, batch = self._state, self._state.batch
        if not len(session_ids) == len(offsets) == len(lengths) == len(timestamps):
            raise LocalProtocolError(
                f"columns of different length: {len(session_ids)} session ids, {len(offsets)} offsets, "
                f"{len(lengths)} lengths, {len(timestamps)} timestamps"
            )
        offsets, lengths = copied_column(offsets), copied_column(lengths)
        if len(session_ids):
            longest = longest_payload(offsets, lengths, view_of(buffer).nbytes)
            check_length(longest, self._context.max_message_length)
        is_leading, has_supervised = state.role is Role.LEADER, self._sessions.has_supervised
        if not (is_leading or has_supervised) or len(session_ids) == 0:
            return MOCKED_OFFER
        if not self._context.is_responder:
            return Offer.NOT_CONNECTED
        session_ids, numbers_of = copied_column(session_ids), self._sessions.numbers
        answer_ids = (
            numbers_of.next_answer_ids(session_ids, self._context.service_id) if has_supervised else None
        )
        if batch is None or buffer is not batch.buffer:
            buffer = copied_bytes(buffer)  # the service may use its own again as soon as this returns
        answers = ServiceEgress(
            state.leadership_term_id,
            session_ids,
            copied_column(timestamps),
            offsets,
            lengths,
            buffer,
            copied_column(numbers),
            answer_ids,
        )
        if answer_ids is not None and not is_leading:
            if not answer_ids.any():
                return MOCKED_OFFER
            answers = answers.rows(answer_ids > 0)
        if not self._outbox.answer_batch(answers):
            return Offer.BACK_PRESSURED
        if answer_ids is not None:  # only now: whatever was raised before, no number is without an answer
            numbers_of.on_answered(session_ids, self._context.service_id)
        return len(session_ids) if is_leading else MOCKED_OFFER


def copied_column(column: np.ndarray) -> np.ndarray:
    """The caller may use its own again."""
    return np.array(column, np.int64)
