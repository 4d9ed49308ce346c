"""The sessions that the log has open at the event being delivered."""

from __future__ import annotations

from cluster.protocol import snapshot
from cluster.protocol.log import SessionOpenEvent
from cluster.service.client_session import ClientSession
from cluster.service.outbox import Outbox
from cluster.service.service_state import ServiceState
from cluster.service.session_egress import SessionEgress


class OpenSessions:
    """Sessions by id, as services see them, each with the container's half of it."""

    def __init__(self, state: ServiceState, outbox: Outbox, length_max: int) -> None:
        """``length_max``: bytes of the longest answer."""
        self._state = state
        self._outbox = outbox
        self._length_max = length_max
        self._egress: dict[int, SessionEgress] = {}
        self._ordered: tuple[ClientSession, ...] | None = ()
        self.by_id: dict[int, ClientSession] = {}

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
        egress = SessionEgress(session_id, self._state, self._outbox, self._length_max)
        egress.is_connected = is_connected
        self._egress[session_id] = egress
        session = self.by_id[session_id] = ClientSession(
            session_id,
            opened.response_stream_id,
            opened.response_channel,
            bytes(opened.encoded_principal),
            egress,
        )
        self._ordered = None
        return session

    def close(self, session_id: int) -> ClientSession | None:
        """Take a session out, which cannot be answered any more; None when it is not open."""
        session = self.by_id.pop(session_id, None)
        if session is not None:
            egress = self._egress.pop(session_id)
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
