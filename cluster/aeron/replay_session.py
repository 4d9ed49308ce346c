"""One replay of a recording to a client of Aeron's (Aeron: ReplaySession).

    asked ──▶ publication at the recording's term and offset ──▶ connected ──▶ frames ──▶ end of stream

A log is followed as it is committed; by members of Java's, while this one leads them, as it is recorded. Who
takes nothing is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from cluster.aeron.asked_publication import AskedPublication, channel_at
from cluster.aeron.control_session import ControlSession
from cluster.errors import DataLoss, LocalProtocolError
from cluster.media.aeron import Aeron
from cluster.media.publication import Publication
from cluster.protocol.archive_control import BoundedReplayRequest, ReplayRequest
from cluster.protocol.catalog import RecordingDescriptor
from cluster.protocol.response_channel import parameter, with_parameter

BLOCK_BYTES = 256 * 1024
LOOK_INTERVAL_NS = 10_000_000  # between two looks at how far a log is committed
_KEPT = (
    "endpoint",
    "interface",
    "session-id",
    "ttl",
    "alias",
    "eos",
    "fc",
    "gtag",
    "cc",
)  # of a client's channel


class ReplayedArchive(Protocol):
    """The recordings of a member (``cluster.reader.served_archive``)."""

    def recordings(self) -> list[RecordingDescriptor]: ...

    def committed(self, recording_id: int) -> int | None: ...

    def recorded(self, recording_id: int) -> int | None: ...

    @property
    def led_session_id(self) -> int | None: ...

    def is_bounded_by(self, counter_id: int) -> bool: ...

    def blocks(
        self, recording: RecordingDescriptor, position: int, end: int, max_bytes: int
    ) -> Iterator[np.ndarray]: ...

    def recorded_blocks(
        self, recording: RecordingDescriptor, position: int, end: int, max_bytes: int
    ) -> Iterator[np.ndarray]: ...

    def close(self) -> None: ...


class ReplayedEnd:
    """How far the log may be replayed that a recording holds, looked up for all its replays together."""

    def __init__(self, of_recording: Callable[[int], int | None]) -> None:
        """``of_recording`` says how far; None of a recording that is not the log's."""
        self._of_recording = of_recording
        self._recording_id = -1
        self._end: int | None = None
        self._look_at_ns = 0

    def look(self, recording_id: int, now_ns: int) -> int | None:
        """As it is now; None for a recording that is not the log's."""
        self._recording_id, self._look_at_ns = recording_id, now_ns + LOOK_INTERVAL_NS
        self._end = self._of_recording(recording_id)
        return self._end

    def at(self, recording_id: int, now_ns: int) -> int:
        """As it was a moment ago. Raises DataLoss where it is not the log's any more."""
        if now_ns >= self._look_at_ns or recording_id != self._recording_id:
            self.look(recording_id, now_ns)
        if self._end is None:
            raise DataLoss("the log is in another recording now")
        return self._end


class ReplayRange:
    """What is to be replayed: ``[position, limit)`` of a recording; of the log as far as ``log_end`` says."""

    def __init__(
        self,
        archive: ReplayedArchive,
        recording: RecordingDescriptor,
        position: int,
        limit: int,
        log_end: ReplayedEnd | None,
        max_bytes: int,
        led_session_id: int | None,
    ) -> None:
        """``log_end`` is None for recordings that are not written.

        With ``led_session_id`` it is the log that this member leads, beyond what is committed, too, for as
        long as it leads: nothing of it is cut then.
        """
        self.recording = recording
        self.position = position  # up to where it was taken
        self.limit = limit
        self._archive = archive
        self._log_end = log_end
        self._max_bytes = max_bytes
        self._led_session_id = led_session_id
        self._read = archive.blocks if led_session_id is None else archive.recorded_blocks
        self._blocks: Iterator[np.ndarray] = iter(())
        self._block = np.empty(0, np.uint8)
        self._at = 0

    @property
    def is_log(self) -> bool:
        return self._log_end is not None

    @property
    def is_over(self) -> bool:
        return self.position >= self.limit

    @property
    def has_read(self) -> bool:
        """Whether frames were read that are not taken."""
        return self._at < self._block.size

    def has_frames(self, now_ns: int) -> bool:
        """Whether there is something to send now. Raises ClusterError where the files do not have it."""
        if self.has_read:
            return True
        block = next(self._blocks, None)
        if block is None:
            log_end, recording = self._log_end, self.recording
            end = self.limit if log_end is None else log_end.at(recording.recording_id, now_ns)
            if self.position < min(end, self.limit):
                self._blocks = self._read(recording, self.position, end, self._max_bytes)
                block = next(self._blocks, None)
        if self._led_session_id is not None and self._archive.led_session_id != self._led_session_id:
            raise DataLoss("this member leads no more, and what it has recorded may be cut")
        if block is None:
            return False
        self._block, self._at = block, 0
        return True

    def send(self, publication: Publication) -> int:
        """Offer frames; returns how many bytes were taken. Raises LocalProtocolError for one out of place."""
        end = min(self._block.size, self._at + self.limit - self.position)
        taken = publication.offer_recorded(self._block, self._at, end) - self._at
        self._at += taken
        self.position += taken
        return taken


class ReplaySession:
    """``do_work`` until ``is_over``, then ``close``."""

    def __init__(
        self,
        aeron: Aeron,
        session: ControlSession,
        request: ReplayRequest | BoundedReplayRequest,
        replayed: ReplayRange,
        *,
        number: int,
        idle_timeout_ns: int,
        now_ns: int,
    ) -> None:
        """``session`` has asked for it. Raises LocalProtocolError for a channel that leads nowhere."""
        self.session = session
        self.correlation_id = request.correlation_id
        self.replayed = replayed
        self.session_id: int | None = None  # once the driver has a publication
        self._number = number
        self._idle_timeout_ns = idle_timeout_ns
        self._taken_ns = now_ns  # when something was last taken, or there was nothing to take
        self._is_connected = False
        self.is_over = False
        channel = replay_channel(request.replay_channel, replayed.recording, replayed.position)
        self._asked = AskedPublication(aeron, channel, request.replay_stream_id, now_ns)

    def do_work(self, now_ns: int) -> int:
        """Send what there is; returns how many bytes. Raises ClusterError where that is over, with why."""
        publication = self._asked.publication
        if publication is None or not self._is_connected:
            self._is_connected = self._asked.is_connected(now_ns)
            publication = self._asked.publication
            if self.session_id is None and publication is not None:
                self._begin(publication)
            self._taken_ns = now_ns
            return 0
        if not publication.is_connected:
            self.is_over = True
            return 0
        taken = 0
        if self.replayed.has_frames(now_ns):
            taken = self.replayed.send(publication)
            if not taken and now_ns - self._taken_ns > self._idle_timeout_ns:
                raise LocalProtocolError("the client takes nothing (reader_timeout)")
        if taken or not self.replayed.has_read:
            self._taken_ns = now_ns
        self.is_over = self.replayed.is_over
        return taken

    def _begin(self, publication: Publication) -> None:
        found = self.replayed.recording
        shape = found.term_buffer_length, found.initial_term_id, found.mtu_length
        if not publication.is_at(self.replayed.position, *shape):
            raise LocalProtocolError(f"the media driver's publication is not at {self.replayed.position}")
        self.session_id = self._number << 32 | publication.session_id & 0xFFFFFFFF
        self.session.answer(self.correlation_id, self.session_id)

    def close(self) -> None:
        """Give the publication back; what was offered is sent."""
        self._asked.close()


def replay_channel(asked: str, recording: RecordingDescriptor, position: int) -> str:
    """What a client wants to be replayed to, as a publication that begins at ``position``.

    Raises LocalProtocolError.
    """
    if not asked.startswith("aeron:udp?") or not parameter(asked, "endpoint"):
        raise LocalProtocolError(f"{asked[:128]!r}: expected aeron:udp?endpoint=host:port")
    channel = "aeron:udp"
    for key in _KEPT:
        if value := parameter(asked, key):
            channel = with_parameter(channel, key, value)
    shape = recording.initial_term_id, recording.term_buffer_length, recording.mtu_length
    return channel_at(channel, position, *shape)
