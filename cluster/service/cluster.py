"""What a service may ask of the cluster it runs in (Aeron: Cluster)."""

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
    """The cluster as a service sees it. ``on_start`` gets it; use it only on the service's thread.

    Calls that send (offers, timers, closing a session) are allowed in callbacks for log entries, and raise
    LocalProtocolError in the others. After False or BACK_PRESSURED, call ``idle_strategy().idle()`` and try
    again: if you do not, the members' states may differ.
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
        """Log position after the entry whose callback is running, in bytes (Aeron: Header.position)."""
        return self._state.log_position

    def leadership_term_id(self) -> int:
        """Leadership term of the entry whose callback is running; -1 before the first."""
        return self._state.leadership_term_id

    def time(self) -> int:
        """Cluster time of the entry whose callback is running, the same on every member."""
        return self._state.cluster_time

    def time_unit(self) -> ClusterTimeUnit | None:
        """The unit of ``time()``, None before the first leadership term is known."""
        return self._state.time_unit

    def context(self) -> ServiceContext:
        """Where the service runs, and an error handler for errors that it does not raise."""
        return self._context

    def client_sessions(self) -> tuple[ClientSession, ...]:
        """The open sessions, in order of their ids."""
        return self._sessions.ordered()

    def get_client_session(self, cluster_session_id: int) -> ClientSession | None:
        """The open session with this id, or None."""
        return self._sessions.by_id.get(cluster_session_id)

    def for_each_client_session(self, action: Callable[[ClientSession], None]) -> None:
        """Call ``action`` with each open session, in order of their ids."""
        for session in self._sessions.ordered():
            action(session)

    def close_client_session(self, cluster_session_id: int) -> bool:
        """Close a session. Raises ClusterError for an unknown id. After False, try again."""
        self._outbox.check_may_send()
        session = self._sessions.by_id.get(cluster_session_id)
        if session is None:
            raise ClusterError(f"unknown cluster session {cluster_session_id}")
        return session.close()

    def schedule_timer(self, correlation_id: int, deadline: int) -> bool:
        """Set a timer for a cluster time. It replaces a timer with the same id. After False, try again."""
        self._outbox.check_may_send()
        return self._outbox.send(ScheduleTimer(correlation_id=correlation_id, deadline=deadline).encode())

    def cancel_timer(self, correlation_id: int) -> bool:
        """Cancel a timer. It still fires if its event is in the log already. After False, try again."""
        self._outbox.check_may_send()
        return self._outbox.send(CancelTimer(correlation_id=correlation_id).encode())

    def offer(self, *payload: Payload) -> int:
        """Send one message, made of the given buffers, to all services of the cluster.

        Every member's service offers it, but the log has it once. Returns a positive number, or
        Offer.BACK_PRESSURED.
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
        """Give ``claim`` room for a message to the cluster, which its ``commit`` sends.

        Returns a positive number if there is a claim, or Offer.BACK_PRESSURED.
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

        Sessions that are not open are skipped. ``rows`` says which messages of the delivered batch the rows
        answer, so that ``ClusterClient.request`` gets its answers. If ``session_ids`` is the column of that
        batch, row i answers message i. ``timestamps`` are for the headers of the answers. Without them an
        answer has the time of the message that it answers, or else ``time()``.

        Returns the number of rows. With Offer.BACK_PRESSURED none is sent. On a follower and in a replay it
        returns 1 and sends nothing, but keeps the answers to supervised sessions. Raises LocalProtocolError,
        on every member alike, for columns that do not fit together.
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
        """Call ``idle()`` on it between two tries; it raises when the service is to end."""
        return self._idle_strategy


def _checked_rows(rows: np.ndarray, count: int, batch_length: int) -> np.ndarray:
    chosen = copied_column(rows)
    if len(chosen) != count or ((chosen < 0) | (chosen >= batch_length)).any():
        what = f"rows: expected {count} of the batch's {batch_length}, one for each answer"
        raise LocalProtocolError(f"{what}, got {chosen.tolist()!r:.60}")
    return chosen
