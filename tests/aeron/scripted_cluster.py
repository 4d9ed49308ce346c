"""The members of a real cluster as a session meets them: what each got, and what it says."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple, Self

import numpy as np

from cluster.aeron import aeron_cluster
from cluster.aeron.aeron_cluster import AeronCluster
from cluster.aeron.log_follower import Found
from cluster.errors import LocalProtocolError, MediaDriverError
from cluster.media.client_conductor import ChannelRefused
from cluster.protocol import Message, decode
from cluster.protocol.enums import EventCode, Offer
from cluster.protocol.frame import HEADER_LENGTH, frame
from cluster.protocol.session import (
    NewLeaderEvent,
    SessionConnectRequest,
    SessionEvent,
    SessionKeepAlive,
    SessionMessageHeader,
)
from cluster.transport.message_frames import each_frame
from tests.aeron.scripted_aeron import Clock

ENDPOINTS = {0: "host:9002", 1: "host:9102", 2: "host:9202"}
LISTED = ",".join(f"{member_id}={endpoint}" for member_id, endpoint in ENDPOINTS.items())
SESSION = 7
LOG_MESSAGE_MAX = 900  # less than the way there takes


class ScriptedPublication:
    """To one member: ``result`` of the next offers, below 0, or 0 to take them."""

    def __init__(self, channel: str, is_connected: bool) -> None:
        self.channel = channel
        self.is_connected = is_connected
        self.is_removed = False
        self.message_length_max = 1000
        self.results: list[int] = []
        self.offered: list[bytes] = []

    def offer(self, message: bytes) -> int:
        if len(message) > self.message_length_max:
            raise LocalProtocolError(
                f"a message of {len(message)} bytes, expected at most {self.message_length_max}"
            )
        if self.results:
            return self.results.pop(0)
        if not self.is_connected:
            return Offer.NOT_CONNECTED
        self.offered.append(message)
        return 96 * len(self.offered)

    def offer_frames(self, run: np.ndarray, start: int, end: int) -> int:
        for _, at, length in each_frame(run, start, end):
            if length > self.message_length_max or self.offer(run[at : at + length].tobytes()) < 0:
                return at - HEADER_LENGTH
        return end

    @property
    def payloads(self) -> list[tuple[int, bytes]]:
        """Term and payload of each message of the application."""
        found = [(decode_any(each), each[SessionMessageHeader.ENCODED_LENGTH :]) for each in self.offered]
        return [(m.leadership_term_id, p) for m, p in found if isinstance(m, SessionMessageHeader)]

    def of(self, kind: type[Message]) -> list[Any]:
        """The messages of this kind that were offered."""
        return [message for message in map(decode_any, self.offered) if isinstance(message, kind)]


def decode_any(data: bytes) -> Message | None:
    return decode(data)


class Wait(NamedTuple):
    """What somebody has waited for."""

    descriptor: int
    is_reading: bool
    is_due: bool


class ScriptedFollower:
    """What it finds of the log a test says."""

    def __init__(self) -> None:
        self.session_id = -1
        self.is_due = False
        self.found: deque[Found] = deque()
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class ScriptedMembers:
    """In place of ``Aeron``, and of the subscription to egress."""

    def __init__(self, monkeypatch: Any) -> None:
        self.clock = Clock()
        self.all: list[ScriptedPublication] = []
        self.refused = ""  # channels that have this
        self.refusals = 0
        self.lost = ""  # why the driver is
        self.answers_at_once = False
        self._answered = 0  # requests
        self.connects = True  # a publication is connected at once
        self.waits: list[Wait] = []
        self.egress: list[bytes] = []
        self.heard: list[bytes] = []  # runs of frames
        self.conductor = self
        self.stream_id, self.channel = 102, "aeron:udp?endpoint=me:1"
        self._ids = count(1)
        monkeypatch.setattr(aeron_cluster, "Answers", lambda aeron, towards, stream_id: self)

    def session(self, **options: Any) -> AeronCluster:
        """One that nobody runs: ``turn`` does."""
        options = {
            "on_egress": lambda run: self.heard.append(bytes(run)),
            "now_ns": lambda: self.clock.now_ns,
            **options,
        }
        return AeronCluster(self, options.pop("endpoints", ENDPOINTS), **options)  # type: ignore[arg-type]

    def open_session(self, **options: Any) -> AeronCluster:
        """Opened in term 3, which member 0 leads."""
        session = self.session(**options)
        self.turn(session)
        self.say(self.answer(EventCode.OK, 0))
        self.turn(session, 2)
        return session

    def turn(self, session: AeronCluster, times: int = 1, *, seconds: float = 0.0) -> None:
        for _ in range(times):
            self.clock.wait(seconds)
            session.do_work()

    def to(self, member_id: int) -> ScriptedPublication:
        """The last publication to this member."""
        return next(each for each in reversed(self.all) if each.channel.endswith(ENDPOINTS[member_id]))

    def requests(self) -> list[SessionConnectRequest]:
        return [request for each in self.all for request in each.of(SessionConnectRequest)]

    def answer(self, code: EventCode, leader: int, detail: str = "", *, correlation_id: int = 0) -> Message:
        """To the last request."""
        asked = correlation_id or max(request.correlation_id for request in self.requests())
        return SessionEvent(SESSION, asked, 3, leader, code, 0, 2_000_000_000, detail)

    def new_leader(self, term_id: int, leader: int, session_id: int = SESSION) -> Message:
        return NewLeaderEvent(term_id, session_id, leader, LISTED)

    def say(self, message: Message | bytes) -> None:
        """It arrives on egress."""
        self.egress.append(message if isinstance(message, bytes) else message.encode())

    def keep_alives(self, member_id: int) -> int:
        return len(self.to(member_id).of(SessionKeepAlive))

    # ---- of Aeron and of Answers

    def add_exclusive_publication(self, channel: str, stream_id: int) -> ScriptedPublication:
        assert stream_id == 101
        if self.refused and self.refused in channel:
            self.refusals += 1
            raise ChannelRefused(f"{channel} is refused")
        self.all.append(ScriptedPublication(channel, self.connects))
        return self.all[-1]

    def remove_publication(self, publication: ScriptedPublication) -> None:
        publication.is_removed = True

    def next_correlation_id(self) -> int:
        return next(self._ids)

    def do_work(self) -> int:
        if self.lost:
            raise MediaDriverError(self.lost)
        return 0

    def poll_runs(self) -> Iterator[np.ndarray]:
        if self.answers_at_once and len(self.requests()) > self._answered:
            self._answered += 1
            self.say(self.answer(EventCode.OK, 0))
        arrived = [self.egress.pop(0) for _ in range(len(self.egress))]
        frames = (frame(message, session_id=5, stream_id=102, term_offset=96) for message in arrived)
        if arrived:
            yield np.frombuffer(b"".join(frames), np.uint8).copy()

    def wait(self, timeout_s: float, descriptor: int, *, is_reading: bool, is_due: bool) -> None:
        self.waits.append(Wait(descriptor, is_reading, is_due))
        time.sleep(0.0005)

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass
