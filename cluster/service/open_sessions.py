"""The sessions that the log has open at the event being delivered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from cluster.log.message_numbers import MessageNumbers
from cluster.protocol import snapshot
from cluster.protocol.link import split_answer_id
from cluster.protocol.log import SessionOpenEvent
from cluster.protocol.response_channel import (
    is_supervised,
    split_answer_count,
    split_message_count,
    with_answer_count,
    with_message_count,
)
from cluster.service.client_session import ClientSession
from cluster.service.outbox import Outbox
from cluster.service.service_context import ServiceContext
from cluster.service.service_state import ServiceState
from cluster.service.session_egress import SessionEgress


@dataclass(slots=True, eq=False)
class OpenSessions:
    """Sessions by id, as services see them, each with the container's half of it."""

    _state: ServiceState
    _outbox: Outbox
    _context: ServiceContext
    _egress: dict[int, SessionEgress] = field(default_factory=dict)
    _supervised: dict[int, SessionEgress] = field(default_factory=dict)  # of them
    _ordered: tuple[ClientSession, ...] | None = ()
    by_id: dict[int, ClientSession] = field(default_factory=dict)
    numbers: MessageNumbers = field(default_factory=MessageNumbers)

    def __contains__(self, session_id: int) -> bool:
        return session_id in self.by_id

    def ordered(self) -> tuple[ClientSession, ...]:
        """All of them by ascending id."""
        if self._ordered is None:
            self._ordered = tuple(self.by_id[session_id] for session_id in sorted(self.by_id))
        return self._ordered

    def open(
        self, opened: SessionOpenEvent | snapshot.ClientSession, *, is_connected: bool = False
    ) -> ClientSession:
        """Add the session that the log or a snapshot has."""
        session_id = opened.cluster_session_id
        egress = SessionEgress(session_id, self._state, self._outbox, self._context, is_connected)
        self._egress[session_id] = egress
        channel = opened.response_channel
        message_count: int | None = 0
        if isinstance(opened, snapshot.ClientSession):
            if is_supervised(channel):
                channel, egress.answered = split_answer_count(channel)
            channel, message_count = split_message_count(channel)
        if message_count is not None:
            self.numbers.open(session_id, message_count)
        if self._context.is_responder and is_supervised(channel):
            egress.is_supervised = True
            self._supervised[session_id] = egress
        session = self.by_id[session_id] = ClientSession(
            session_id,
            opened.response_stream_id,
            channel,
            bytes(opened.encoded_principal),
            egress,
        )
        self._ordered = None
        return session

    def close(self, session_id: int) -> ClientSession | None:
        """Take a session out, which cannot be answered any more; None when it is not open."""
        session = self.by_id.pop(session_id, None)
        if session is not None:
            self._supervised.pop(session_id, None)
            egress = self._egress.pop(session_id)
            self.numbers.close(session_id)
            egress.is_connected = egress.is_open = False
            self._ordered = None
        return session

    def is_connected(self, session_id: int) -> bool:
        """Whether the session is open and can be answered from here."""
        egress = self._egress.get(session_id)
        return egress is not None and egress.is_connected

    def begin_leading(self, *, is_connected: bool) -> None:
        """The member leads a term: its clients are reached or not, and no close is under way any more."""
        for egress in self._egress.values():
            egress.is_connected = is_connected
            egress.is_closing = False

    def disconnect(self) -> None:
        """No client is reached from here any more."""
        for egress in self._egress.values():
            egress.is_connected = False

    # -- supervised sessions --

    @property
    def has_supervised(self) -> bool:
        return bool(self._supervised)

    def answer_ids(self, session_ids: np.ndarray) -> np.ndarray | None:
        """Of answers to these sessions, 0 for one that is not supervised; None when none of them is."""
        if not self._supervised:
            return None
        answer_ids = np.zeros(len(session_ids), np.int64)
        order = np.argsort(session_ids, kind="stable")
        known, begins, counts = np.unique(session_ids[order], return_index=True, return_counts=True)
        for session_id, begin, count in zip(known.tolist(), begins.tolist(), counts.tolist()):
            egress = self._supervised.get(session_id)
            if egress is not None:
                first = egress.next_answer_id
                answer_ids[order[begin : begin + count]] = np.arange(first, first + count)
        return answer_ids if answer_ids.any() else None

    def count_answers(self, session_ids: np.ndarray, answer_ids: np.ndarray) -> None:
        """Answers with these ids were sent."""
        for session_id, answer_id in zip(session_ids.tolist(), answer_ids.tolist()):
            if answer_id:
                self._supervised[session_id].answered = split_answer_id(answer_id)[1]

    def records(self) -> Iterator[snapshot.ClientSession]:
        """All of them as a snapshot has them, by ascending id."""
        for session in self.ordered():
            channel, egress = session.response_channel, self._supervised.get(session.id)
            if (count := self.numbers.count_of(session.id)) is not None:
                channel = with_message_count(channel, count)
            if egress is not None:
                channel = with_answer_count(channel, egress.answered)
            yield snapshot.ClientSession(
                session.id, session.response_stream_id, channel, session.encoded_principal
            )
