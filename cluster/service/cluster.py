"""What a service may ask of the cluster it runs in (Aeron: Cluster)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cluster.errors import ClusterError, LocalProtocolError
from cluster.protocol.enums import ClusterTimeUnit, Offer, Role
from cluster.protocol.service import CancelTimer, CloseSession, ScheduleTimer
from cluster.protocol.session import SessionMessageHeader
from cluster.service.buffer_claim import BufferClaim
from cluster.service.channel import EGRESS_OVERHEAD, EgressBatch
from cluster.service.client_session import MOCKED_OFFER, ClientSession, Payload
from cluster.service.idle_strategy import IdleStrategy

if TYPE_CHECKING:
    from cluster.service.agent import ClusteredServiceAgent

MESSAGE_HEADER_LENGTH = 8 + SessionMessageHeader.BLOCK_LENGTH


class Cluster:
    """Handed to ``on_start``; good for as long as the service runs, on its thread only.

    What sends (offers, timers, closing a session) is allowed in the callbacks of log entries and
    raises LocalProtocolError in the others. A False or BACK_PRESSURED is to be tried again, with
    ``idle_strategy().idle()`` between, lest the members come to differ.
    """

    __slots__ = ("_agent", "_idle_strategy")

    def __init__(self, agent: ClusteredServiceAgent) -> None:
        self._agent = agent
        self._idle_strategy = IdleStrategy(agent.idle)

    def member_id(self) -> int:
        """This member's id, -1 before the first log is joined."""
        return self._agent.member_id

    def role(self) -> Role:
        """The member's role as this service was told; FOLLOWER in every replay."""
        return self._agent.role

    def log_position(self) -> int:
        """Log position after the event being delivered, in bytes."""
        return self._agent.log_position

    def leadership_term_id(self) -> int:
        """The leadership term of the event being delivered, -1 before the first."""
        return self._agent.leadership_term_id

    def time(self) -> int:
        """Cluster time of the event being delivered: the leader's, the same on every member."""
        return self._agent.cluster_time

    def time_unit(self) -> ClusterTimeUnit | None:
        """The unit of ``time()``, None before the first leadership term is known."""
        return self._agent.time_unit

    def client_sessions(self) -> tuple[ClientSession, ...]:
        """The open sessions by ascending id."""
        return self._agent.client_sessions()

    def get_client_session(self, cluster_session_id: int) -> ClientSession | None:
        """The open session of that id, None when there is none."""
        return self._agent.sessions.get(cluster_session_id)

    def for_each_client_session(self, action: Callable[[ClientSession], None]) -> None:
        """Call ``action`` with each open session by ascending id."""
        for session in self._agent.client_sessions():
            action(session)

    def close_client_session(self, cluster_session_id: int) -> bool:
        """Ask for a session to be closed; raises ClusterError for an unknown id, False: try again."""
        self._agent.check_may_send()
        session = self._agent.sessions.get(cluster_session_id)
        if session is None:
            raise ClusterError(f"unknown cluster session {cluster_session_id}")
        return self._close(session)

    def schedule_timer(self, correlation_id: int, deadline: int) -> bool:
        """Set a timer for a cluster time, replacing that of the same id; False: try again."""
        self._agent.check_may_send()
        return self._agent.send(ScheduleTimer(correlation_id=correlation_id, deadline=deadline).encode())

    def cancel_timer(self, correlation_id: int) -> bool:
        """Take a timer back; it may fire all the same when its event is in the log. False: try again."""
        self._agent.check_may_send()
        return self._agent.send(CancelTimer(correlation_id=correlation_id).encode())

    def offer(self, *payload: Payload) -> int:
        """Send one message, gathered from the given buffers, to all services of the cluster.

        Every member's service sends it; the log gets it once. Positive, or Offer.BACK_PRESSURED.
        """
        agent = self._agent
        agent.check_may_send()
        header = SessionMessageHeader(
            leadership_term_id=agent.leadership_term_id,
            cluster_session_id=agent.service_id,
            timestamp=agent.cluster_time,
        ).encode()
        message = header + self._gathered(payload)
        return len(message) if agent.send(message) else Offer.BACK_PRESSURED

    def try_claim(self, length: int, claim: BufferClaim) -> int:
        """Give ``claim`` room for a message to the cluster; it is sent when the claim is committed.

        Positive when there is a claim, or Offer.BACK_PRESSURED.
        """
        agent = self._agent
        agent.check_may_send()
        self._check_length(length)
        reserved = MESSAGE_HEADER_LENGTH + length
        is_open = agent.claims.open(claim, length, agent.control_room, reserved, self.offer)
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
        or, with Offer.BACK_PRESSURED, none; on a follower and in a replay 1, and nothing is sent. Raises
        LocalProtocolError on every member alike for columns that cannot be.
        """
        agent = self._agent
        agent.check_may_send()
        batch = agent.batch
        is_answer = batch is not None and session_ids is batch.session_ids
        if timestamps is None:
            timestamps = batch.timestamps if is_answer else np.full(len(session_ids), agent.cluster_time)  # type: ignore[union-attr]
        if not len(session_ids) == len(offsets) == len(lengths) == len(timestamps):
            raise LocalProtocolError(
                f"columns of different length: {len(session_ids)} session ids, {len(offsets)} offsets, "
                f"{len(lengths)} lengths, {len(timestamps)} timestamps"
            )
        if len(session_ids):
            self._check_within(offsets, lengths, _view(buffer).nbytes)
        if agent.role is not Role.LEADER or len(session_ids) == 0:
            return MOCKED_OFFER
        if not agent.is_responder:
            return Offer.NOT_CONNECTED
        if batch is None or buffer is not batch.buffer:
            buffer = _copied_bytes(buffer)  # the service may use its own again as soon as this returns
        answers = EgressBatch(
            agent.leadership_term_id,
            _copied(session_ids),
            _copied(timestamps),
            _copied(offsets),
            _copied(lengths),
            buffer,
        )
        return len(session_ids) if agent.offer_egress(answers) else Offer.BACK_PRESSURED

    def idle_strategy(self) -> IdleStrategy:
        """What to ``idle()`` on between two tries; it raises when the container is to end."""
        return self._idle_strategy

    # -- behind ClientSession --

    def _offer_to(self, session: ClientSession, payload: Sequence[Payload]) -> int:
        agent = self._agent
        agent.check_may_send()
        message = self._gathered(payload)
        if (refused := self._refusal_of(session)) is not None:
            return refused
        if not agent.append_egress(session.id, message):
            return Offer.BACK_PRESSURED
        session._egress_position += EGRESS_OVERHEAD + len(message)
        return session._egress_position

    def _try_claim_to(self, session: ClientSession, length: int, claim: BufferClaim) -> int:
        agent = self._agent
        agent.check_may_send()
        self._check_length(length)
        refused = self._refusal_of(session)
        if refused is not None and refused != MOCKED_OFFER:
            return refused
        reserved = 0 if refused else EGRESS_OVERHEAD + length
        if not agent.claims.open(claim, length, agent.egress_room, reserved, session.offer):
            return Offer.BACK_PRESSURED
        return refused or session._egress_position + reserved

    def _refusal_of(self, session: ClientSession) -> int | None:
        """What an offer to the session returns without being sent; None when it goes out."""
        if not session._is_open:
            return Offer.NOT_CONNECTED
        if self._agent.role is not Role.LEADER:
            return MOCKED_OFFER
        return None if session._is_connected else Offer.NOT_CONNECTED

    def _close(self, session: ClientSession) -> bool:
        self._agent.check_may_send()
        if session._is_closing or not session._is_open:
            return True
        session._is_closing = self._agent.send(CloseSession(cluster_session_id=session.id).encode())
        return session._is_closing

    def _gathered(self, payload: Sequence[Payload]) -> bytes:
        message = b"".join(payload)  # type: ignore[arg-type]  # arrays are buffers too
        self._check_length(len(message))
        return message

    def _check_length(self, length: int) -> None:
        maximum = self._agent.max_message_length
        if length > maximum:
            raise LocalProtocolError(f"a message of {length} bytes is longer than the maximum of {maximum}")
        if length < 0:
            raise LocalProtocolError(f"a message of {length} bytes cannot be")

    def _check_within(self, offsets: np.ndarray, lengths: np.ndarray, buffer_length: int) -> None:
        self._check_length(int(lengths.max()))
        if int(offsets.min()) < 0 or int(lengths.min()) < 0 or int((offsets + lengths).max()) > buffer_length:
            raise LocalProtocolError(f"a payload lies outside the buffer of {buffer_length} bytes")


def _copied(column: np.ndarray) -> np.ndarray:
    return np.array(column, np.int64)


def _view(buffer: Payload) -> memoryview:
    view = buffer.data if isinstance(buffer, np.ndarray) else memoryview(buffer)
    return view.cast("B")


def _copied_bytes(buffer: Payload) -> np.ndarray:
    # Through a bytearray: the kernel that frames answers takes writable arrays of at least one byte.
    return np.frombuffer(bytearray(_view(buffer)) or bytearray(1), np.uint8)
