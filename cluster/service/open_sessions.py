"""The sessions that the log has open at the event being delivered."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from cluster.log.message_numbers import MessageNumbers
from cluster.protocol import snapshot
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
    _supervised: set[int] = field(default_factory=set)  # of them
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
        channel = opened.response_channel
        message_count: int | None = 0
        answered = 0
        if isinstance(opened, snapshot.ClientSession):
            if is_supervised(channel):
                channel, answered = split_answer_count(channel)
            channel, message_count = split_message_count(channel)
        supervised = self._context.is_responder and is_supervised(channel)
        self.numbers.open(session_id, message_count, is_supervised=supervised, answered=answered)
        if supervised:
            self._supervised.add(session_id)
        egress = self._egress[session_id] = SessionEgress(
            session_id,
            self._state,
            self._outbox,
            self._context,
            self.numbers if supervised else None,
            is_connected=is_connected,
        )
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
            self._supervised.discard(session_id)
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

    def records(self) -> Iterator[snapshot.ClientSession]:
        """All of them as a snapshot has them, by ascending id."""
        for session in self.ordered():
            channel = session.response_channel
            if (count := self.numbers.count_of(session.id)) is not None:
                channel = with_message_count(channel, count)
            if session.id in self._supervised:
                channel = with_answer_count(channel, self.numbers.answered_of(session.id))
            yield snapshot.ClientSession(
                session.id, session.response_stream_id, channel, session.encoded_principal
            )
