"""A media driver without files or network, for a member with Aeron's clients."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np

from cluster.errors import MediaDriverError
from cluster.media.client_conductor import ChannelRefused
from cluster.media.publication import BACK_PRESSURED
from cluster.protocol.enums import EventCode
from cluster.protocol.frame import FLAG_BEGIN, FLAG_END, frame, header_at
from cluster.protocol.session import SessionConnectRequest, SessionEvent

MTU_PAYLOAD = 1376
MEMBER, TERM, SESSION = 2, 5, 9
CHANNEL = "aeron:udp?endpoint=10.0.0.7:9020|alias=me"
REQUEST = SessionConnectRequest(77, 102, 3 << 8, CHANNEL, b"secret", "name=me")


def an_event(code: EventCode, session_id: int = SESSION, detail: str = "") -> SessionEvent:
    """What a member says to that request."""
    return SessionEvent(session_id, 77, TERM, MEMBER, code, 3 << 8, 10**10, detail)


def egress(message: bytes) -> bytes:
    """As it goes to a client."""
    return frame(message, session_id=0, stream_id=102)


class ScriptedImage:
    """What a client's publication sends."""

    needed = 0

    def __init__(self, session_id: int = 5, source_identity: str = "10.0.0.7:40123") -> None:
        self.session_id = session_id
        self.source_identity = source_identity
        self._frames: deque[bytes] = deque()
        self.is_damaged = False

    def sends(self, message: bytes) -> None:
        """In frames of an MTU."""
        parts = [message[at : at + MTU_PAYLOAD] for at in range(0, len(message), MTU_PAYLOAD)]
        for number, part in enumerate(parts):
            flags = (FLAG_BEGIN if number == 0 else 0) | (FLAG_END if number == len(parts) - 1 else 0)
            self._frames.append(frame(part, session_id=self.session_id, stream_id=101, flags=flags))

    @property
    def is_read(self) -> bool:
        return not self._frames

    def poll(self, out: np.ndarray, at: int = 0) -> int:
        if self.is_damaged:
            raise MediaDriverError("an image has no frame there")
        length = 0
        first = len(self._frames[0]) if self._frames else 0
        self.needed = first if first > out.size - at else 0
        while self._frames and at + length + len(self._frames[0]) <= out.size:
            data = self._frames.popleft()
            out[at + length : at + length + len(data)] = np.frombuffer(data, np.uint8)
            length += len(data)
        return length


class ScriptedPublication:
    """Where a client is answered."""

    def __init__(self, channel: str, stream_id: int) -> None:
        self.channel = channel
        self.stream_id = stream_id
        self.is_connected = True
        self.takes = True
        self.message_length_max = 100_000
        self.offered: list[bytes] = []
        self.registration_id = -1
        self.session_id = -3
        self.position = 0
        self.room = 1 << 30  # for recorded frames
        self.recorded = bytearray()
        self.begins_at: tuple[int, ...] | None = None  # as the driver has made it, if not as it was asked

    def is_at(self, *place: int) -> bool:
        return place == (self.begins_at or place)

    def offer_recorded(self, run: np.ndarray, start: int, end: int) -> int:
        while start < end and self.room > 0:
            length = header_at(run, start).aligned_length
            self.recorded += run[start : start + length].tobytes()
            self.room -= length
            start += length
        return start

    def offer(self, message: bytes) -> int:
        if not self.takes:
            return BACK_PRESSURED
        self.offered.append(message)
        return len(self.offered)


class ScriptedAeron:
    """``Aeron`` of one thread, which is its own conductor."""

    def __init__(self) -> None:
        self.conductor = self
        self.images: dict[int, Any] = {}
        self.others: dict[int, Any] = {}  # of a second subscription
        self.publications: list[ScriptedPublication] = []  # as they were added
        self.removed: list[ScriptedPublication] = []
        self.subscribed: list[tuple[str, int]] = []
        self.is_connecting = True
        self.failure: Exception | None = None
        self.is_answering = True  # the driver has what it was asked for
        self.room = 1 << 30  # of publications that are asked for

    def client(self, session_id: int = 5, source_identity: str = "10.0.0.7:40123") -> ScriptedImage:
        image = self.images[session_id] = ScriptedImage(session_id, source_identity)
        return image

    def add_subscription(self, channel: str, stream_id: int) -> Any:
        self.subscribed.append((channel, stream_id))
        images = self.images if len(self.subscribed) == 1 else self.others
        return SimpleNamespace(stream_id=stream_id, images=images)

    def ask_for_exclusive_publication(self, channel: str, stream_id: int) -> int:
        number = len(self.publications)
        publication = ScriptedPublication(channel, stream_id)
        publication.is_connected = self.is_connecting
        publication.registration_id = number
        publication.room = self.room
        self.publications.append(publication)
        return number

    def publication_of(self, registration_id: int) -> ScriptedPublication | None:
        publication = self.publications[registration_id]
        if "nonsense" in publication.channel:
            raise ChannelRefused("the media driver refused: nonsense")
        return publication if self.is_answering else None

    def give_up_publication(self, registration_id: int) -> None:
        self.removed.append(self.publications[registration_id])

    def __enter__(self) -> ScriptedAeron:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def do_work(self) -> int:
        if self.failure is not None:
            raise self.failure
        return 0
