"""The log of a leader of Java's, as a follower gets it from the leader's media driver and archive.

FollowedLog     one subscription of the log's session, which gets destinations, as that of Aeron's Election:
                    live       the own log endpoint, to which the leader's publication sends
                    catch-up   the own catch-up endpoint, to which its archive replays; near the end the
                               log endpoint, too, and without the first once the leader says StopCatchup
ReplicatedLog   closed terms, replayed from the leader's archive by a thread
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

import numpy as np

from cluster.errors import RemoteProtocolError, TimedOut
from cluster.media.aeron import Aeron
from cluster.media.aeron_archive import AeronArchive
from cluster.media.client_conductor import ChannelRefused
from cluster.media.image import Image
from cluster.media.subscription import Subscription
from cluster.protocol import streams
from cluster.protocol.link import LogGeometry, LogImage
from cluster.protocol.media import OnSubscriptionReady
from cluster.transport.clock import monotonic_ns, pause
from cluster.transport.recording_fetch import FetchedInThread

RUN_BYTES = 1024 * 1024  # given to the member at once
LIVE_WINDOW_MAX = 32 * 1024 * 1024  # before the end, where the live log is joined (Aeron: ReplayMerge)
RETRY_NS = 1_000_000_000  # of what the driver refused
SILENCE_NS = 10_000_000_000  # of an archive, in a replay
IDLE_S = 0.001


class LogWish(NamedTuple):
    """What a follower has asked its leader for."""

    leader_member_id: int
    correlation_id: int
    leadership_term_id: int
    log_session_id: int
    position: int

    def image_at(self, join_position: int) -> LogImage:
        """The answer that its log comes, from there on."""
        return LogImage(self.correlation_id, self.leadership_term_id, join_position, self.log_session_id)


class FollowedLog:
    """That of one session, live or by a catch-up.

    ``do_work``, then ``read`` once ``join_position`` is known; ``close`` at the end.
    """

    def __init__(
        self, aeron: Aeron, wish: LogWish, log_endpoint: str, catchup_endpoint: str, closing_id: int | None
    ) -> None:
        """``catchup_endpoint`` is empty for the live log; ``closing_id`` is what ``close`` said before."""
        self.wish = wish
        self._aeron = aeron
        self._live = f"aeron:udp?endpoint={log_endpoint}"
        self._catchup = f"aeron:udp?endpoint={catchup_endpoint}" if catchup_endpoint else ""
        self._is_live = not self._catchup
        self._closing_id = closing_id
        self._expected: dict[int, str] = {}  # channels of commands that the driver has not answered
        self._refused: dict[str, int] = {}  # when to try again, by channel
        self._destinations: set[str] = set()
        self._subscription: Subscription | None = None
        self._subscribe_ns = 0  # not before
        self._image: Image | None = None
        self._run = np.zeros(RUN_BYTES, np.uint8)

    @property
    def join_position(self) -> int | None:
        """Where what comes begins; None while it is not there."""
        if self._image is None and self._subscription is not None:
            self._image = self._subscription.image_of(self.wish.log_session_id)
        return None if self._image is None else self._image.position

    @property
    def geometry(self) -> LogGeometry:
        """What the leader's log is like, once the join position is known."""
        image = self._image
        assert image is not None
        return LogGeometry(image.initial_term_id, image.term_length, image.mtu_length)

    @property
    def is_over(self) -> bool:
        """Whether all was read that will come."""
        return self._image is not None and (self._image.is_closed or self._image.is_end_of_stream)

    @property
    def is_end_of_stream(self) -> bool:
        """Whether it is over because the leader has closed its log."""
        return self._image is not None and self._image.is_end_of_stream

    def do_work(self, now_ns: int, leader_position: int) -> None:
        """``leader_position``: where its log ends, as far as that is known.

        Raises ChannelRefused where the driver does not listen, which is tried again; MediaDriverError.
        """
        if self._subscription is None:
            is_closing = self._closing_id is not None and self._aeron.has_socket_of(self._closing_id)
            if not is_closing and now_ns >= self._subscribe_ns:
                self._subscribe()
            return
        for channel, due_ns in list(self._refused.items()):
            if now_ns >= due_ns:
                del self._refused[channel]
                self._listen(self._subscription, channel)
        for command_id in list(self._expected):
            self._look_for_answer(self._subscription, command_id, now_ns)
        image = self._image
        if image is not None and not self._is_live:
            window = min(image.term_length // 4, LIVE_WINDOW_MAX)
            if image.position >= leader_position - window:
                self._listen_live(self._subscription)

    def _look_for_answer(self, subscription: Subscription, command_id: int, now_ns: int) -> None:
        try:
            answer = self._aeron.conductor.answer(command_id)
        except ChannelRefused:  # a client that was killed may listen there until the driver misses it
            channel = self._expected.pop(command_id)
            if command_id == subscription.registration_id:
                self._aeron.conductor.forget(subscription)
                self._subscription, self._subscribe_ns = None, now_ns + RETRY_NS
            else:
                self._destinations.discard(channel)
                self._refused[channel] = now_ns + RETRY_NS
            raise
        if answer is not None:
            del self._expected[command_id]
        if isinstance(answer, OnSubscriptionReady):
            self._listen(subscription, self._catchup or self._live)

    def _subscribe(self) -> None:
        session = f"session-id={self.wish.log_session_id}"
        channel = f"aeron:udp?control-mode=manual|{session}|group=true|rejoin=false|alias=log"
        self._subscription = self._aeron.ask_for_subscription(channel, streams.LOG)
        self._expected[self._subscription.registration_id] = channel

    def _listen(self, subscription: Subscription, channel: str) -> None:
        self._destinations.add(channel)
        self._expected[self._aeron.add_destination(subscription, channel)] = channel

    def _listen_live(self, subscription: Subscription) -> None:
        self._is_live = True
        self._listen(subscription, self._live)

    def read(self) -> np.ndarray:
        """The next whole frames, valid until the next call, or none. Raises ClusterError."""
        assert self._image is not None
        length = self._image.poll(self._run)
        if self._image.needed:  # as padding may be
            self._run = np.zeros(self._image.needed, np.uint8)
            length = self._image.poll(self._run)
        return self._run[:length]

    def stop_catchup(self) -> None:
        """The leader's archive sends nothing more."""
        if self._subscription is None or not self._catchup:
            return
        if not self._is_live:
            self._listen_live(self._subscription)
        self._aeron.remove_destination(self._subscription, self._catchup)
        self._destinations.discard(self._catchup)
        self._catchup = ""

    def close(self) -> int | None:
        """Give it back; returns the subscription whose sockets are to close before others open."""
        if self._subscription is None:
            return self._closing_id
        for channel in self._destinations:  # whose sockets would close with the image, which lingers
            self._aeron.remove_destination(self._subscription, channel)
        self._aeron.remove_subscription(self._subscription)
        return self._subscription.registration_id


class ReplicatedLog:
    """That of closed terms, used as ``FollowedLog``."""

    is_over = is_end_of_stream = False

    def __init__(
        self,
        aeron_dir: str,
        wish: LogWish,
        archive_endpoint: str,
        recording_id: int,
        stop_position: int,
        closing_id: int | None,
    ) -> None:
        self.wish = wish
        self._geometry: LogGeometry | None = None
        self._closing_id = closing_id
        self._fetched = FetchedInThread(
            _replay(aeron_dir, archive_endpoint, recording_id, wish.position, stop_position)
        )

    @property
    def join_position(self) -> int | None:
        return None if self._geometry is None else self.wish.position

    @property
    def geometry(self) -> LogGeometry:
        assert self._geometry is not None
        return self._geometry

    def do_work(self, now_ns: int, leader_position: int) -> None:
        if self._geometry is None:
            found = self._fetched.poll()
            assert not isinstance(found, np.ndarray)
            self._geometry = found

    def read(self) -> np.ndarray:
        found = self._fetched.poll()
        return found if isinstance(found, np.ndarray) else np.empty(0, np.uint8)

    def stop_catchup(self) -> None:
        """It is none."""

    def close(self) -> int | None:
        self._fetched.close()
        return self._closing_id


LeaderLog = FollowedLog | ReplicatedLog


def _replay(
    aeron_dir: str, archive_endpoint: str, recording_id: int, position: int, stop_position: int
) -> Generator[LogGeometry | np.ndarray]:
    """What the log is like, then runs of its frames.

    Raises MediaDriverError, TimedOut, ArchiveRefusal, RemoteProtocolError.
    """
    run, last_ns = np.zeros(RUN_BYTES, np.uint8), monotonic_ns()
    with Aeron.connect(aeron_dir) as aeron, AeronArchive.connect(aeron, archive_endpoint) as archive:
        log = archive.recording(recording_id)
        yield LogGeometry(log.initial_term_id, log.term_buffer_length, log.mtu_length)
        replay = archive.replay(recording_id, position, stop_position - position)
        while replay.position < stop_position:
            length = replay.poll(run)
            if length:
                yield run[:length].copy()
                last_ns = monotonic_ns()
            elif replay.needed:
                run = np.zeros(replay.needed, np.uint8)
            elif replay.is_over:
                where = f"{replay.position}, asked for up to {stop_position}"
                raise RemoteProtocolError(f"archive {archive_endpoint} has ended a replay at {where}")
            elif monotonic_ns() - last_ns > SILENCE_NS:
                raise TimedOut(f"archive {archive_endpoint} sends no more of a replay at {replay.position}")
            else:
                pause(IDLE_S)
