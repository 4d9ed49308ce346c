"""Supervised sessions: every member keeps their answers, the leader sends them, until the clients have them.

services ── drain_egress ──▶ KeptAnswers ── send ──▶ client       on the leader, once the client has asked
client ── AnswersTaken ──▶ leader ── TakenAnswers ──▶ followers

The leader suspends a session that is full: it drops the session's messages and sends SessionRetained. The
client stops and reports which answers it has. Once there is room again, the leader sends how many of its
messages are in the log (SessionResumed), and the client goes on from there.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from cluster.consensus.context import NULL_VALUE, ConsensusModuleContext
from cluster.consensus.kept_answers import AnswerColumns, KeptAnswers
from cluster.consensus.replica import ReplicatedState
from cluster.member.ports import Clients, Peers
from cluster.protocol.link import AnswersTaken, SessionRetained, TakenAnswer, TakenAnswers
from cluster.service.channel import ServiceChannel, ServiceEgress
from cluster.transport.message_frames import link_frame

REPORT_ALL_INTERVAL_NS = 1_000_000_000  # all is sent to followers again: some of it may have been lost
REPORTED_AT_ONCE = 1000  # numbers in one message


def drain_egress(channels: Iterable[ServiceChannel], answers: KeptAnswers) -> Iterator[ServiceEgress]:
    """What services have answered since; answers to supervised sessions are kept.

    Raises LocalProtocolError for what no answer can be.
    """
    for channel in channels:
        while (batch := channel.poll_egress()) is not None:
            if batch.answer_ids is not None:
                answers.keep(
                    AnswerColumns(
                        batch.session_ids,
                        batch.timestamps,
                        batch.offsets,
                        batch.lengths,
                        batch.numbers,
                        batch.answer_ids,
                        batch.buffer,
                    )
                )
            yield batch


class Supervision:
    """On every member; what sends is for the leader. Compiled turns keep and send, too."""

    def __init__(
        self, context: ConsensusModuleContext, replica: ReplicatedState, clients: Clients, peers: Peers
    ) -> None:
        self._service_count = context.service_count
        self._replica = replica
        self._answers = replica.answers
        self._table = replica.sessions.table
        self._clients = clients
        self._peers = peers
        self._news: dict[tuple[int, int], int] = {}  # session, service: number that followers have not heard
        self._report_all_ns = 0

    def reset(self) -> None:
        """The member leads no more, or in another term: clients ask again."""
        self._answers.stop_asking()
        self._news.clear()
        self._table.slots["retained"] = 0

    def _is_known(self, session_id: int) -> bool:
        return self._table.slot_of(session_id) >= 0

    # ---- answers

    def send(self) -> int:
        """Send what clients wait for, and hold the sessions that are full; returns to how many."""
        touched = self._answers.take_touched()
        return sum(self._send_to(session_id) for session_id in touched if self._is_known(session_id))

    def _send_to(self, session_id: int) -> bool:
        slot, connection_id = self._slot(session_id), self._answers.asked_over(session_id)
        if connection_id == NULL_VALUE or connection_id != slot["connection_id"]:
            return False
        term_id, has_sent = self._replica.leadership_term_id, False
        for frames in self._answers.due(session_id, term_id):
            self._clients.send(connection_id, frames)
            has_sent = True
        if not slot["retained"] and self._answers.byte_count(session_id) >= self._answers.bytes_max:
            slot["retained"] = 1
            self._clients.send(connection_id, link_frame(SessionRetained(session_id, term_id)))
        return has_sent

    def _slot(self, session_id: int) -> np.void:
        slot: np.void = self._table.slots[self._table.slot_of(session_id)]
        return slot

    # ---- what clients have

    def on_taken(self, connection_id: int, message: AnswersTaken, now_ns: int) -> bool:
        """Whether its client is to hear that its messages are taken again."""
        session_id = message.cluster_session_id
        session = self._replica.sessions.sessions.get(session_id)
        if (
            session is None
            or session.connection_id != connection_id
            or message.leadership_term_id != self._replica.leadership_term_id
            or not session.is_supervised
        ):
            return False
        slot = self._slot(session_id)
        slot["active_ns"] = now_ns
        for number, service_id in message.numbers:
            is_service = 0 <= service_id < self._service_count
            if is_service and self._answers.take(session_id, service_id, number):
                self._news[session_id, service_id] = number
        self._answers.ask(session_id, connection_id)
        has_room = 2 * self._answers.byte_count(session_id) <= self._answers.bytes_max
        is_released = message.correlation_id != NULL_VALUE and has_room
        if is_released:
            slot["retained"] = 0
        self._answers.touch(session_id)
        return is_released

    def report_to_followers(self, now_ns: int) -> None:
        """What clients have: the news, and all of it now and then."""
        if now_ns >= self._report_all_ns:
            self._report_all_ns = now_ns + REPORT_ALL_INTERVAL_NS
            self._news = {(session, service): number for session, service, number in self._answers.taken()}
        for frame in self._news_frames():
            for member_id in self._peers.ids:
                self._peers.links.send(member_id, frame)
        self._news.clear()

    def _news_frames(self) -> Iterator[bytes]:
        answers = [TakenAnswer(session, number, service) for (session, service), number in self._news.items()]
        for begin in range(0, len(answers), REPORTED_AT_ONCE):
            part = tuple(answers[begin : begin + REPORTED_AT_ONCE])
            yield link_frame(TakenAnswers(self._replica.leadership_term_id, part))

    def on_reported(self, message: TakenAnswers) -> None:
        """On a follower: the leader's clients have these."""
        for session_id, number, service_id in message.answers:
            if self._is_known(session_id) and 0 <= service_id < self._service_count:
                self._answers.take(session_id, service_id, number)
