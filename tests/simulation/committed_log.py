"""The one log that all members must agree on, read entry by entry as it becomes committed.

Its bytes are those of whoever committed a position first; everyone who commits it later must have the same.
"""

from __future__ import annotations

import numpy as np

from cluster.consensus.service_messages import service_id_of
from cluster.log.deliver import read_message
from cluster.log.frames import SESSION_HEADER_LENGTH
from cluster.protocol import decode
from cluster.protocol.enums import CloseReason
from cluster.protocol.frame import align
from cluster.protocol.log import (
    ClusterActionRequest,
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
)
from cluster.protocol.session import SessionMessageHeader
from tests.simulation.consumer_log import LoggedGroups
from tests.simulation.lane_log import LoggedLanes
from tests.simulation.service import SERVICE_MARK, timer_delay_ms, timer_id
from tests.simulation.violation import Violation, require


class LoggedSession:
    """What the log says of one session."""

    __slots__ = ("close_reason", "closed_at", "ends", "is_ended", "is_left", "last_activity", "messages")

    def __init__(self, timestamp: int) -> None:
        self.messages = 0
        self.ends: list[int] = []  # positions behind each message
        self.last_activity = timestamp  # cluster time; keep-alives are not in the log
        self.is_ended = False  # a message of it asked the service to close it
        self.is_left = False  # its client has closed it
        self.closed_at: int | None = None
        self.close_reason: CloseReason | int | None = None


class CommittedLog:
    """Bytes and meaning; ``end`` is what is committed by anyone, ``read_to`` what is taken apart."""

    def __init__(self, session_timeout: int, service_count: int) -> None:
        self.bytes = bytearray()
        self.sessions: dict[int, LoggedSession] = {}
        self.lanes = LoggedLanes()
        self.groups = LoggedGroups()
        self.leaders: dict[int, tuple[int, int]] = {}  # term: (member, incarnation)
        self.startup_terms: set[int] = set()  # whose leaders had just started: they close all sessions
        self.session_timeout = session_timeout  # in cluster time
        self._service_ids = range(service_count)
        self.timers: dict[int, int] = {}  # correlation id: deadline, of those that may still fire
        self.cancelled: set[int] = set()
        self.fired: set[int] = set()
        self.awaited_service_messages: set[tuple[int, bytes]] = set()  # (service, payload)
        self.service_messages: set[tuple[int, bytes]] = set()
        self.last_timestamp = 0
        self.leadership_term_id = -1
        self.entries = 0
        self._read_to = 0

    def on_turn(self, world_ms: int, incarnation: int) -> None:
        """So long the world has lasted; a life of that number goes on."""
        self.groups.world_ms = world_ms
        self.lanes.lives = max(self.lanes.lives, incarnation)

    @property
    def end(self) -> int:
        return len(self.bytes)

    def first_frame_from(self, position: int) -> int:
        """Where the first frame begins at or behind a position, which may be of another log; or the end."""
        begin = 0
        while begin < min(position, self.end):
            begin += align(int.from_bytes(self.bytes[begin : begin + 4], "little"))
        return begin

    def compare(self, position: int, data: bytes, whose: str, invariant: str = "I-4") -> None:
        """``data`` is committed at ``position`` according to a member, or a reader."""
        known = self.bytes[position : position + len(data)]
        require(
            data[: len(known)] == known,
            invariant,
            f"{whose} has other bytes than were committed between {position} and {position + len(data)}",
        )

    def extend(self, data: bytes) -> None:
        """``data`` follows what was committed so far."""
        self.bytes += data
        buffer = np.frombuffer(bytes(self.bytes[self._read_to :]), np.uint8).copy()
        begin, offset = self._read_to, 0
        while offset < len(buffer):
            message, end = read_message(buffer, offset, len(buffer))
            if end == offset:
                break  # the rest of a fragmented message is not committed yet
            if message is not None:
                self._on_entry(message, begin + offset, begin + end)
            offset = end
        self._read_to += offset

    def _on_entry(self, message: bytes, position: int, end: int) -> None:
        self.entries += 1
        entry = decode(message)
        timestamp = getattr(entry, "timestamp", self.last_timestamp)
        require(
            timestamp >= self.last_timestamp,
            "I-20",
            f"cluster time falls from {self.last_timestamp} to {timestamp} at {position}",
        )
        self.last_timestamp = timestamp
        match entry:
            case SessionMessageHeader():
                payload = message[SESSION_HEADER_LENGTH:]
                if entry.cluster_session_id > 0:
                    self._on_message(entry.cluster_session_id, payload, timestamp, end)
                else:
                    self._on_service_message(service_id_of(entry.cluster_session_id), payload, position)
            case SessionOpenEvent():
                require(
                    entry.cluster_session_id not in self.sessions,
                    "I-7",
                    f"session {entry.cluster_session_id} is opened twice, at {position}",
                )
                self.sessions[entry.cluster_session_id] = LoggedSession(timestamp)
                principal = bytes(entry.encoded_principal)
                _, life = self.leaders.get(self.leadership_term_id, (-1, self.lanes.lives))
                self.lanes.on_open(
                    entry.cluster_session_id, principal, timestamp, position, self.groups.lasted, life
                )
                self.groups.on_open(entry.cluster_session_id, principal, timestamp, position, end)
            case SessionCloseEvent():
                self._on_close(entry.cluster_session_id, entry.close_reason, timestamp, position)
            case TimerEvent():
                self._on_timer(entry.correlation_id, timestamp, position)
            case NewLeadershipTermEvent():
                require(
                    entry.leadership_term_id > self.leadership_term_id,
                    "I-9",
                    f"term {entry.leadership_term_id} begins at {position} after {self.leadership_term_id}",
                )
                self.leadership_term_id = entry.leadership_term_id
            case ClusterActionRequest():
                pass
            case _:
                raise Violation("I-12", f"no entry that a cluster writes at {position}")
        term_id = getattr(entry, "leadership_term_id", self.leadership_term_id)
        require(
            term_id == self.leadership_term_id,
            "I-9",
            f"an entry of term {term_id} in term {self.leadership_term_id} at {position}",
        )

    def _on_message(self, session_id: int, payload: bytes, timestamp: int, end: int) -> None:
        session = self.sessions.get(session_id)
        require(
            session is not None and session.closed_at is None,
            "I-7",
            f"a message of session {session_id}, which is not open, ends at {end}",
        )
        assert session is not None
        _, told_session, number = payload[1 : payload.index(b"|")].split(b".")
        require(
            (int(told_session), int(number)) == (session_id, session.messages + 1),
            "I-7",
            f"message {payload[:24]!r} of session {session_id} ends at {end}, "
            f"expected number {session.messages + 1}",
        )
        self.lanes.on_message(session_id, payload, end)
        session.messages += 1
        session.ends.append(end)
        session.last_activity = timestamp
        timers = [timer_id(end, service_id) for service_id in self._service_ids]
        match payload[:1]:
            case b"t":
                self.timers |= dict.fromkeys(timers, timestamp + timer_delay_ms(end))
            case b"x":
                self.timers |= dict.fromkeys(timers, timestamp + timer_delay_ms(end))
                self.cancelled.update(timers)
            case b"m":
                sent = SERVICE_MARK + payload
                self.awaited_service_messages.update((service_id, sent) for service_id in self._service_ids)
            case b"c":
                session.is_ended = True

    def _on_service_message(self, service_id: int, payload: bytes, position: int) -> None:
        message = service_id, payload
        require(
            message in self.awaited_service_messages and message not in self.service_messages,
            "I-3",
            f"message {payload[:24]!r} of service {service_id} at {position} was not sent, or is there twice",
        )
        self.service_messages.add(message)
        self.awaited_service_messages.remove(message)

    def _on_close(self, session_id: int, reason: CloseReason | int, timestamp: int, position: int) -> None:
        session = self.sessions.get(session_id)
        require(
            session is not None and session.closed_at is None,
            "I-7",
            f"session {session_id}, which is not open, is closed at {position}",
        )
        assert session is not None
        session.closed_at, session.close_reason = position, reason
        self.lanes.on_close(session_id)
        why = CloseReason(reason)
        is_right = {
            CloseReason.SERVICE_ACTION: session.is_ended,
            CloseReason.CLIENT_ACTION: session.is_left
            or self.lanes.has(session_id)
            or self.groups.has(session_id),
            # Silence is the leader's monotonic time, of which cluster time passes at nine tenths at least.
            CloseReason.TIMEOUT: timestamp - session.last_activity >= self.session_timeout * 9 // 10 - 1
            or self.leadership_term_id in self.startup_terms,
        }
        require(
            is_right[why],
            "I-7",
            f"session {session_id} is closed at {position} with {why.name}, for which there was no reason",
        )

    def _on_timer(self, correlation_id: int, timestamp: int, position: int) -> None:
        deadline = self.timers.get(correlation_id)
        require(
            deadline is not None and correlation_id not in self.fired,
            "I-8",
            f"timer {correlation_id} fires at {position}: it was not set, or fired before",
        )
        require(
            correlation_id not in self.cancelled,
            "I-8",
            f"timer {correlation_id} fires at {position}, it was cancelled as soon as it was set",
        )
        assert deadline is not None
        require(
            timestamp >= deadline,
            "I-8",
            f"timer {correlation_id} fires at time {timestamp}, its deadline is {deadline}",
        )
        self.fired.add(correlation_id)

    def unfinished(self) -> str:
        """What is still to come when nobody sends any more: "" for nothing. Cluster time always passes."""
        timers = sorted(self.timers.keys() - self.fired - self.cancelled)
        if timers:
            return f"I-8: timers {timers[:5]} of {len(self.timers)} never fired"
        if self.awaited_service_messages:
            return f"I-3: {len(self.awaited_service_messages)} messages of services never came into the log"
        endless = [session_id for session_id, session in self.sessions.items() if session.closed_at is None]
        return f"I-14: sessions {endless[:5]} never ended" if endless else ""
