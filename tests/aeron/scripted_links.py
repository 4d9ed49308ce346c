"""Links of a member to members of Java's, by a scripted media driver."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cluster.aeron import aeron_links
from cluster.aeron.aeron_links import AeronLinks
from cluster.errors import LocalProtocolError, MediaDriverError
from cluster.media.client_conductor import ChannelRefused
from cluster.protocol import consensus, decode, link, streams
from cluster.protocol.frame import frame
from cluster.protocol.media import OnOperationSuccess, OnSubscriptionReady
from cluster.protocol.members import parse_members
from cluster.transport.message_frames import each_frame, link_frame
from tests.aeron.scripted_media import ScriptedImage, ScriptedPublication

MEMBERS = parse_members("|".join(f"{i},h:{i}1,h:{i}2,h:{i}3,h:{i}4,h:{i}5" for i in range(3)))
LEADER, OURS, SESSION, TERM = 1, 2, 77, 3
TOLD = consensus.NewLeadershipTerm(2, -1, 0, -1, TERM, 0, 65_536, 9, 0, LEADER, SESSION, 1, False, 64)
CANVASS = consensus.CanvassPosition(2, 64, 2, OURS)
LIVE = link.ReplicationRequest(5, TERM, 64, -1)
SHAPE = link.LogGeometry(7, 65_536, 1408)
COMMAND_MAX = 4096
OWN_SESSION, TERM_LENGTH = -9, 65_536
LOG_RUN = frame(b"entry", session_id=SESSION, stream_id=streams.LOG)


class LogImage(ScriptedImage):
    """Of the leader's log."""

    term_length = 65_536
    is_closed = is_end_of_stream = False
    position = 64
    initial_term_id, mtu_length = 7, 1408

    def gives(self, frames: bytes) -> None:
        self._frames.append(frames)


class Driver:
    """``Aeron``, its conductor, and the driver: what is asked for is there at once, unless it is held."""

    def __init__(self) -> None:
        self.conductor = self
        self.publications: dict[int, ScriptedPublication] = {}
        self.subscriptions: dict[int, SimpleNamespace] = {}
        self.destinations: list[str] = []  # of the log
        self.sent_to: list[str] = []  # destinations of the own log
        self.given_up: list[ScriptedPublication] = []
        self.sockets: set[int] = set()
        self.refused: str = "nothing"
        self.failure: MediaDriverError | None = None
        self.is_connecting = True
        self._last_id = 0
        self._answers: dict[int, Any] = {}

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def ask_for_subscription(self, channel: str, stream_id: int) -> SimpleNamespace:
        id_ = self.next_id()
        images: dict[int, Any] = {}
        found = SimpleNamespace(registration_id=id_, channel=channel, images=images, image_of=images.get)
        self.subscriptions[stream_id] = found
        is_refused = self.refused in channel
        self._answers[id_] = ChannelRefused("no space") if is_refused else OnSubscriptionReady(id_, 1)
        return found

    def ask_for_exclusive_publication(self, channel: str, stream_id: int) -> int:
        if self.refused in channel:
            raise ChannelRefused("the media driver refused: unknown host")
        if len(channel) > COMMAND_MAX:
            raise LocalProtocolError(f"a command of {len(channel)} bytes")
        id_ = self.next_id()
        self.publications[id_] = ScriptedPublication(channel, stream_id)
        self.publications[id_].is_connected = self.is_connecting
        return id_

    def publication_of(self, registration_id: int) -> ScriptedPublication:
        return self.publications[registration_id]

    def add_destination(self, subscription: SimpleNamespace, channel: str) -> int:
        id_ = self.next_id()
        if self.refused in channel:
            self._answers[id_] = ChannelRefused("the media driver refused: Address already in use")
            return id_
        self.destinations.append(channel)
        self.sockets.add(subscription.registration_id)
        self._answers[id_] = OnOperationSuccess(id_)
        return id_

    def add_sent_destination(self, publication: ScriptedPublication, channel: str) -> int:
        assert publication.stream_id == streams.LOG
        id_ = self.next_id()
        is_refused = self.refused in channel
        self._answers[id_] = ChannelRefused("unknown host") if is_refused else OnOperationSuccess(id_)
        if not is_refused:
            self.sent_to.append(channel)
        return id_

    def give_up_publication(self, registration_id: int) -> None:
        self.given_up.append(self.publications[registration_id])

    def remove_destination(self, subscription: SimpleNamespace, channel: str) -> None:
        self.destinations.remove(channel)

    def remove_subscription(self, subscription: SimpleNamespace) -> None:
        assert not self.destinations, "their sockets would be open for as long as its image"

    def forget(self, subscription: SimpleNamespace) -> None:
        """It gets no images."""

    def has_socket_of(self, registration_id: int) -> bool:
        return registration_id in self.sockets

    def answer(self, correlation_id: int) -> Any:
        answer = self._answers.pop(correlation_id, None)
        if isinstance(answer, ChannelRefused):
            raise answer
        return answer

    def do_work(self) -> int:
        if self.failure is not None:
            raise self.failure
        return 0

    def close(self) -> None:
        self.publications.clear()


class Member:
    """Ours, with its links; it takes note of what they tell it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_running: bool = True) -> None:
        self.now_ns = 0
        self.heard: list[Any] = []
        self.errors: list[str] = []
        self.driver = Driver()
        self.is_running = is_running
        monkeypatch.setattr(aeron_links, "Aeron", SimpleNamespace(connect=self._connect))
        self.links = AeronLinks(
            MEMBERS[OURS],
            {0: MEMBERS[0], LEADER: MEMBERS[LEADER]},
            "aeron:udp?term-length=64k",
            "/driver",
            listens_at=lambda endpoint: endpoint.replace("h:", "inside:"),
            incarnation=4,
            clock_ns=lambda: self.now_ns,
            on_error=lambda error: self.errors.append(str(error)),
        )
        self.poll()

    def _connect(self, aeron_dir: str, timeout_s: float) -> Driver:
        assert (aeron_dir, timeout_s) == ("/driver", 0)
        if not self.is_running:
            raise MediaDriverError("no media driver runs")
        return self.driver

    def poll(self, times: int = 1) -> list[Any]:
        """What is heard in so many turns."""
        before = len(self.heard)
        for _ in range(times):
            self.links.poll(self)
        return self.heard[before:]

    def on_link_up(self, member_id: int, incarnation: int) -> None:
        self.heard.append(("up", member_id, incarnation))

    def on_link_down(self, member_id: int) -> None:
        self.heard.append(("down", member_id))

    def on_member_gone(self, member_id: int) -> None:
        raise AssertionError("nobody is known to be gone")

    def on_frames(self, member_id: int, buffer: np.ndarray, start: int, end: int) -> None:
        for stream_id, offset, length in each_frame(buffer, start, end):
            is_log = stream_id == streams.LOG
            told = bytes(buffer[offset : offset + length]) if is_log else decode(buffer, offset, length)
            self.heard.append((member_id, told))

    def sent_to(self, member_id: int) -> list[Any]:
        endpoint = f"endpoint={MEMBERS[member_id].consensus_endpoint}"
        (publication,) = (p for p in self.driver.publications.values() if p.channel.endswith(endpoint))
        return [decode(message) for message in publication.offered]

    def image_from(self, session_id: int) -> ScriptedImage:
        """A publication to the own consensus endpoint."""
        images = self.driver.subscriptions[streams.CONSENSUS].images
        images[session_id] = ScriptedImage(session_id)
        return images[session_id]

    def hears(self, *messages: Any, session_id: int = 11) -> list[Any]:
        image = self.image_from(session_id)
        for message in messages:
            image.sends(message.encode())
        return self.poll()

    def wishes(self, message: Any) -> None:
        assert self.links.send(LEADER, link_frame(message)) > 0

    def log_arrives(self) -> LogImage:
        images = self.driver.subscriptions[streams.LOG].images
        images[SESSION] = LogImage(SESSION)
        return images[SESSION]
