"""What a service may ask of the cluster it runs in (Aeron: Cluster)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cluster.errors import ClusterError, LocalProtocolError
from cluster.log.session_frames import longest_payload
from cluster.protocol.enums import ClusterTimeUnit, Offer, Role
from cluster.protocol.service import CancelTimer, ScheduleTimer
from cluster.protocol.session import SessionMessageHeader
from cluster.service.buffer_claim import BufferClaim
from cluster.service.channel import ServiceEgress
from cluster.service.client_session import ClientSession
from cluster.service.idle_strategy import IdleStrategy
from cluster.service.open_sessions import OpenSessions
from cluster.service.outbox import Outbox
from cluster.service.payload import Payload, check_length, copied_bytes, gathered, view_of
from cluster.service.service_context import ServiceContext
from cluster.service.service_state import ServiceState
from cluster.service.session_egress import MOCKED_OFFER

MESSAGE_HEADER_LENGTH = 8 + SessionMessageHeader.BLOCK_LENGTH


class Cluster:
    """Handed to ``on_start``; good for as long as the service runs, on its thread only.

    What sends (offers, timers, closing a session) is allowed in the callbacks of log entries and
    raises LocalProtocolError in the others. A False or BACK_PRESSURED is to be tried again, with
    ``idle_strategy().idle()`` between, lest the members come to differ.
    """

    __slots__ = ("_context", "_idle_strategy", "_outbox", "_sessions", "_state")

    def __init__(
        self,
        context: ServiceContext,
        state: ServiceState,
        sessions: OpenSessions,
        outbox: Outbox,
        idle_strategy: IdleStrategy,
    ) -> None:
        self._context = context
        self._state = state
        self._sessions = sessions
        self._outbox = outbox
        self._idle_strategy = idle_strategy

    def member_id(self) -> int:
        """This member's id, -1 before the first log is joined."""
        return self._state.member_id

    def role(self) -> Role:
        """The member's role as this service knows it; FOLLOWER in every replay."""
        return self._state.role

    def log_position(self) -> int:
        """Log position after the event being delivered, in bytes (Aeron: Header.position)."""
        return self._state.log_position

    def leadership_term_id(self) -> int:
        """The leadership term of the event being delivered, -1 before the first."""
        return self._state.leadership_term_id

    def time(self) -> int:
        """Cluster time of the event being delivered: the leader's, the same on every member."""
        return self._state.cluster_time

    def time_unit(self) -> ClusterTimeUnit | None:
        """The unit of ``time()``, None before the first leadership term is known."""
        return self._state.time_unit

    def context(self) -> ServiceContext:
        """What is configured of this service and its member, and where errors go that it does not raise."""
        return self._context

    def client_sessions(self) -> tuple[ClientSession, ...]:
        """The open sessions by ascending id."""
        return self._sessions.ordered()

    def get_client_session(self, cluster_session_id: int) -> ClientSession | None:
        """The open session of that id, None when there is none."""
        return self._sessions.by_id.get(cluster_session_id)

    def for_each_client_session(self, action: Callable[[ClientSession], None]) -> None:
        """Call ``action`` with each open session by ascending id."""
        for session in self._sessions.ordered():
            action(session)

    def close_client_session(self, cluster_session_id: int) -> bool:
        """Ask for a session to be closed; raises ClusterError for an unknown id, False: try again."""
        self._outbox.check_may_send()
        session = self._sessions.by_id.get(cluster_session_id)
        if session is None:
            raise ClusterError(f"unknown cluster session {cluster_session_id}")
        return session.close()

    def schedule_timer(self, correlation_id: int, deadline: int) -> bool:
        """Set a timer for a cluster time, replacing that of the same id; False: try again."""
        self._outbox.check_may_send()
        return self._outbox.send(ScheduleTimer(correlation_id=correlation_id, deadline=deadline).encode())

    def cancel_timer(self, correlation_id: int) -> bool:
        """Take a timer back; it may fire all the same when its event is in the log. False: try again."""
        self._outbox.check_may_send()
        return self._outbox.send(CancelTimer(correlation_id=correlation_id).encode())

    def offer(self, *payload: Payload) -> int:
        """Send one message, gathered from the given buffers, to all services of the cluster.

        Every member's service sends it; the log gets it once. Positive, or Offer.BACK_PRESSURED.
        """
        self._outbox.check_may_send()
        header = SessionMessageHeader(
            leadership_term_id=self._state.leadership_term_id,
            cluster_session_id=self._context.service_id,
            timestamp=self._state.cluster_time,
        ).encode()
        message = header + gathered(payload, self._context.max_message_length)
        return len(message) if self._outbox.send(message) else Offer.BACK_PRESSURED

    def try_claim(self, length: int, claim: BufferClaim) -> int:
        """Give ``claim`` room for a message to the cluster; it is sent when the claim is committed.

        Positive when there is a claim, or Offer.BACK_PRESSURED.
        """
        self._outbox.check_may_send()
        check_length(length, self._context.max_message_length)
        reserved = MESSAGE_HEADER_LENGTH + length
        is_open = self._outbox.claim_message(claim, length, reserved, self.offer)
        return reserved if is_open else Offer.BACK_PRESSURED

    def offer_batch(
        self,
        session_ids: np.ndarray,
        offsets: np.ndarray,
        lengths: np.ndarray,
        buffer: np.ndarray,
        timestamps: np.ndarray | None = None,
    ) -> int:
        """Answer many sessions at once: row i sends ``buffer[offsets[i] : offsets[i] + lengths[i]]``.

        Sessions that are not open are skipped. ``timestamps`` are those of the answers' headers:
        without them each has the time of its message where ``session_ids`` is the column of the
        batch being delivered, and else ``time()``. Returns the number of rows, which are handed over all
        or, with Offer.BACK_PRESSURED, none; on a follower and in a replay 1, and nothing is sent, but what
        supervised sessions are answered is kept. Raises
        LocalProtocolError on every member alike for columns that cannot be.
        """
        self._outbox.check_may_send()
        state = self._state
        batch = state.batch
        is_answer = batch is not None and session_ids is batch.session_ids
        if timestamps is None:
            timestamps = batch.timestamps if is_answer else np.full(len(session_ids), state.cluster_time)  # type: ignore[union-attr]
        if not len(session_ids) == len(offsets) == len(lengths) == len(timestamps):
            raise LocalProtocolError(
                f"columns of different length: {len(session_ids)} session ids, {len(offsets)} offsets, "
                f"{len(lengths)} lengths, {len(timestamps)} timestamps"
            )
        offsets, lengths = _copied(offsets), _copied(lengths)
        if len(session_ids):
            longest = longest_payload(offsets, lengths, view_of(buffer).nbytes)
            check_length(longest, self._context.max_message_length)
        answer_ids = self._sessions.answer_ids(session_ids)
        is_leading = state.role is Role.LEADER
        if not (is_leading or answer_ids is not None) or len(session_ids) == 0:
            return MOCKED_OFFER
        if not self._context.is_responder:
            return Offer.NOT_CONNECTED
        if batch is None or buffer is not batch.buffer:
            buffer = copied_bytes(buffer)  # the service may use its own again as soon as this returns
        answers = ServiceEgress(
            state.leadership_term_id,
            _copied(session_ids),
            _copied(timestamps),
            offsets,
            lengths,
            buffer,
            answer_ids,
        )
        if answer_ids is not None and not is_leading:
            answers = answers.rows(answer_ids > 0)
        if not self._outbox.answer_batch(answers):
            return Offer.BACK_PRESSURED
        if answer_ids is not None:
            self._sessions.count_answers(session_ids, answer_ids)
        return len(session_ids) if is_leading else MOCKED_OFFER

    def idle_strategy(self) -> IdleStrategy:
        """What to ``idle()`` on between two tries; it raises when the container is to end."""
        return self._idle_strategy


def _copied(column: np.ndarray) -> np.ndarray:
    return np.array(column, np.int64)
