"""Logs and member directories that tests write: with real frames, of all kinds of entries."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from cluster.archive.recording_log import RecordingLog
from cluster.log.append import append_message, message_end_position
from cluster.log.frames import LogParams
from cluster.protocol.catalog import RecordingDescriptor
from cluster.protocol.enums import CloseReason, ClusterTimeUnit
from cluster.protocol.log import NewLeadershipTermEvent, SessionCloseEvent, SessionOpenEvent, TimerEvent
from cluster.protocol.session import SessionMessageHeader

T0 = 1_700_000_000_000
TERM_LENGTH = 64 * 1024
SEGMENT_LENGTH = 128 * 1024
SESSION_ID = 0x11223344


def log_params(
    term_length: int = TERM_LENGTH, mtu: int = 1408, session_id: int = SESSION_ID, initial_term_id: int = 0
) -> LogParams:
    return LogParams(term_length, mtu, initial_term_id, session_id)


@dataclass
class LogWriter:
    """Frames of a log from ``start`` on; ``entries`` has (position, end) of each message."""

    params: LogParams = field(default_factory=log_params)
    start: int = 0
    leadership_term_id: int = 0
    time: int = T0
    time_unit: ClusterTimeUnit = ClusterTimeUnit.MILLIS
    entries: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._out = np.zeros(1 << 20, np.uint8)
        self.position = self.start

    def append(self, message: bytes) -> int:
        """Append any message; return its end position."""
        at = self.position - self.start
        while at + 4 * len(message) + 2 * self.params.term_length > len(self._out):
            self._out = np.concatenate([self._out, np.zeros(len(self._out), np.uint8)])
        end = append_message(self._out, at, self.position, self.params, message)
        self.entries.append((self._begin_of(message, end), end))
        self.position = end
        return end

    def _begin_of(self, message: bytes, end: int) -> int:
        """Where the message's first frame lies: behind the padding, if there is any."""
        return end - message_end_position(0, len(message), self.params)

    def term(self, leadership_term_id: int, leader_member_id: int = 0) -> None:
        self.leadership_term_id = leadership_term_id
        base = self.position
        event = NewLeadershipTermEvent(
            leadership_term_id,
            0,
            self.time,
            base,
            leader_member_id,
            self.params.session_id,
            self.time_unit,
            1,
        )
        end = message_end_position(base, len(event.encode()), self.params)
        self.append(event.replace(log_position=end).encode())

    def open_session(self, session: int) -> None:
        channel = "aeron:udp?endpoint=localhost:20202"
        self.append(
            SessionOpenEvent(self.leadership_term_id, 42, session, self._tick(), 102, channel, b"").encode()
        )

    def message(self, payload: bytes, session: int = 1) -> int:
        header = SessionMessageHeader(self.leadership_term_id, session, self._tick()).encode()
        return self.append(header + payload)

    def timer(self, correlation_id: int) -> None:
        self.append(TimerEvent(self.leadership_term_id, correlation_id, self._tick()).encode())

    def close_session(self, session: int) -> None:
        self.append(
            SessionCloseEvent(
                self.leadership_term_id, session, self._tick(), CloseReason.CLIENT_ACTION
            ).encode()
        )

    def walk(self, seed: int, count: int, longest: int = 3000) -> None:
        """Some session's life: ``count`` messages of random lengths, a timer now and then."""
        rng = random.Random(seed)
        self.open_session(seed + 1)
        for index in range(count):
            length = rng.choice((rng.randrange(200), rng.randrange(200), rng.randrange(longest)))
            self.message(rng.randbytes(length), seed + 1)
            if index % 50 == 49:
                self.timer(1000 * seed + index)
        self.close_session(seed + 1)

    def _tick(self) -> int:
        self.time += {0: 1, 1: 1000, 2: 1_000_000}[int(self.time_unit)]
        return self.time

    def frames(self, begin: int | None = None, end: int | None = None) -> np.ndarray:
        """The bytes between two positions."""
        begin = self.start if begin is None else begin
        end = self.position if end is None else end
        return self._out[begin - self.start : end - self.start]


class Clock:
    """Epoch milliseconds, moved by hand."""

    def __init__(self, now_ms: int = T0) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def a_log(count: int = 100, seed: int = 1, **params: int) -> LogWriter:
    """A term with one session's ``count`` messages."""
    log = LogWriter(log_params(**params))
    log.term(0)
    log.walk(seed, count)
    return log


def a_descriptor(recording_id: int, *, start_position: int = 0, stop_position: int) -> RecordingDescriptor:
    """Of a stopped recording of a log."""
    return RecordingDescriptor(
        0,
        0,
        recording_id,
        T0,
        T0,
        start_position,
        stop_position,
        0,
        1 << 17,
        1 << 16,
        1408,
        7,
        100,
        "",
        "",
        "",
    )


def append_term(
    log: RecordingLog, recording_id: int, leadership_term_id: int, base_position: int, timestamp: int
) -> None:
    """Begin a term at a position, where the one before it closes. Raises LocalProtocolError."""
    log._append_terms(recording_id, [(leadership_term_id, base_position)], timestamp)
    log._sync()
