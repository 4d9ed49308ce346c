"""What a service may ask of the cluster it runs in (Aeron: Cluster)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cluster.errors import ClusterError, LocalProtocolError
from cluster.protocol.enums import ClusterTimeUnit, Offer, Role
from cluster.protocol.service import CancelTimer, ScheduleTimer
from cluster.protocol.session import SessionMessageHeader
from cluster.service.batch_answers import BatchAnswers, copied_column
from cluster.service.buffer_claim import BufferClaim
from cluster.service.channel import NO_NUMBERS
from cluster.service.client_session import ClientSession
from cluster.service.idle_strategy import IdleStrategy
from cluster.service.open_sessions import OpenSessions
from cluster.service.outbox import Outbox
from cluster.service.payload import Payload, check_length, gathered
from cluster.service.service_context import ServiceContext
from cluster.service.service_state import ServiceState

MESSAGE_HEADER_LENGTH = 8 + SessionMessageHeader.BLOCK_LENGTH


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cluster:
    """Handed to ``on_start``; good for as long as the service runs, on its thread only.

    What sends (offers, timers, closing a session) is allowed in the callbacks of log entries and
    raises LocalProtocolError in the others. A False or BACK_PRESSURED is to be tried again, with
    ``idle_strategy().idle()`` between, lest the members come to differ.
    """

    _context: ServiceContext
    _state: ServiceState
    _sessions: OpenSessions
    _outbox: Outbox
    _answers: BatchAnswers
    _idle_strategy: IdleStrategy

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
        rows: np.ndarray | None = None,
    ) -> int:
        """Answer many sessions at once: row i sends ``buffer[offsets[i] : offsets[i] + lengths[i]]``.

        Sessions that are not open are skipped. ``rows`` are those of the messages in the batch being
        delivered that are answered, which ``ClusterClient.request`` goes by; where ``session_ids`` is the
        column of that batch, row i answers message i. ``timestamps`` are those of the answers' headers:
        without them each has the time of the message that it answers, and else ``time()``.
        Returns the number of rows, which are handed over all or, with Offer.BACK_PRESSURED, none; on a
        follower and in a replay 1, and nothing is sent, but what supervised sessions are answered is kept.
        Raises LocalProtocolError on every member alike for columns that cannot be.
        """
        self._outbox.check_may_send()
        state, batch = self._state, self._state.batch
        numbers, times = NO_NUMBERS, np.full(len(session_ids), state.cluster_time)
        if state.message_number:
            numbers = state.message_number * (np.asarray(session_ids) == state.message_session_id)
        if batch is not None and (rows is not None or session_ids is batch.session_ids):
            answered = slice(None) if rows is None else _checked_rows(rows, len(session_ids), len(batch))
            numbers, times = state.batch_numbers[answered], batch.timestamps[answered]
        elif rows is not None:
            raise LocalProtocolError("rows: no batch is being delivered")
        if timestamps is None:
            timestamps = times
        return self._answers.offer(session_ids, offsets, lengths, buffer, timestamps, numbers)

    def idle_strategy(self) -> IdleStrategy:
        """What to ``idle()`` on between two tries; it raises when the container is to end."""
        return self._idle_strategy


def _checked_rows(rows: np.ndarray, count: int, batch_length: int) -> np.ndarray:
    chosen = copied_column(rows)
    if len(chosen) != count or ((chosen < 0) | (chosen >= batch_length)).any():
        what = f"rows: expected {count} of the batch's {batch_length}, one for each answer"
        raise LocalProtocolError(f"{what}, got {chosen.tolist()!r:.60}")
    return chosen
