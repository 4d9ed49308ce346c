"""The leader's log to each follower: recorded bytes from where it asked, then the live log without a gap.

    asked from ──recorded bytes, a chunk at a time──▶ own append position: merged ──every batch──▶ live

A follower whose link does not take a batch falls back to recorded bytes by itself, and merges again: nobody
waits for a slow one. In Aeron these are archive replays, replications and a multi-destination publication.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from cluster.consensus.context import NULL_POSITION
from cluster.log.words import Word
from cluster.member.log.log_words import FOLLOWER_WORDS, IS_LIVE, OUT, STREAM_POSITION
from cluster.member.ports import Links
from cluster.transport.published_log import PublishedLog

CHUNK_BYTES = 512 * 1024
CHUNKS_PER_TURN = 4


class LogStream:
    """What one follower gets; ``position`` is the end of what its link has taken, in a word of its row."""

    position = Word(STREAM_POSITION)

    def __init__(
        self,
        words: memoryview,
        member_id: int,
        correlation_id: int,
        position: int,
        stop_position: int,
        is_catchup: bool,
    ) -> None:
        self._words = words
        self.member_id = member_id
        self.correlation_id = correlation_id
        self.position = position
        self.stop_position = stop_position  # NULL_POSITION: whatever is appended
        self.is_catchup = is_catchup
        self.has_canvassed = False  # since it asked: its next request is a new one
        self.is_suspended = False  # until the follower shows that it still follows
        self.merge_position = NULL_POSITION  # where it first had all that there was

    @property
    def is_done(self) -> bool:
        return self.stop_position != NULL_POSITION and self.position >= self.stop_position


class LogStreams:
    """At most one stream a follower, in ascending member id.

    ``words`` has a row a member for compiled turns, which send the live log, too.
    """

    def __init__(self, links: Links, member_ids: Iterable[int]) -> None:
        self._links = links
        ids = list(member_ids)
        self.words = np.zeros(len(ids) * FOLLOWER_WORDS, np.int64)
        memory = self.words.data
        begins = range(0, len(self.words), FOLLOWER_WORDS)
        self._rows = {id_: memory[at : at + FOLLOWER_WORDS] for id_, at in zip(ids, begins, strict=True)}
        self._recording: PublishedLog | None = None
        self._streams: dict[int, LogStream] = {}
        self._live: list[LogStream] = []  # those that follow, for the hot path
        self._chunk = np.empty(0, np.uint8)
        self.has_laggards = False
        self.has_suspended = False

    def open(self, recording: PublishedLog) -> None:
        """The log that is sent from now on."""
        self._recording = recording
        self._links.publish(recording)

    @property
    def least_position(self) -> int | None:
        """From where on the log is still to be sent; None while nobody is sent any."""
        return min((stream.position for stream in self._streams.values()), default=None)

    def clear(self) -> None:
        """Nothing is sent any more."""
        self._links.publish(None)
        self._streams.clear()
        self._changed()

    def get(self, member_id: int) -> LogStream | None:
        return self._streams.get(member_id)

    def start(
        self,
        member_id: int,
        correlation_id: int,
        position: int,
        stop_position: int = NULL_POSITION,
        *,
        is_catchup: bool = False,
    ) -> None:
        """Serve a follower from ``position`` on; replaces what it got before."""
        row = self._rows[member_id]
        self._streams[member_id] = LogStream(
            row, member_id, correlation_id, position, stop_position, is_catchup
        )
        self._streams = dict(sorted(self._streams.items()))
        self._changed()

    def stop(self, member_id: int) -> None:
        if self._streams.pop(member_id, None) is not None:
            self._changed()

    def suspend(self, member_id: int) -> None:
        """The follower canvasses: send nothing until it asks again, or reports in this term anyway."""
        stream = self._streams.get(member_id)
        if stream is not None:
            stream.is_suspended = stream.has_canvassed = True
            self._changed()

    def resume(self, member_id: int) -> None:
        """The follower has reported in this term."""
        stream = self._streams.get(member_id)
        if stream is not None and stream.is_suspended:
            stream.is_suspended = False
            self._changed()

    def _changed(self) -> None:
        streams = self._streams.values()
        self._live = [
            stream for stream in streams if stream.stop_position == NULL_POSITION and not stream.is_suspended
        ]
        for row in self._rows.values():
            row[IS_LIVE] = 0
        for stream in self._live:
            self._rows[stream.member_id][IS_LIVE] = 1
        self.has_laggards = bool(streams)
        self.has_suspended = any(stream.is_suspended for stream in streams)

    def serve(self, descriptors: Mapping[int, int]) -> None:
        """Compiled turns send over these, by member."""
        for member_id, row in self._rows.items():
            row[OUT] = descriptors.get(member_id, -1)

    def on_batch(self, position: int, end_position: int, batch: np.ndarray) -> None:
        """Send what was just written to those who have all before it."""
        for stream in self._live:
            if stream.position == position and self._links.send(stream.member_id, batch) > 0:
                stream.position = end_position
            else:
                self.has_laggards = True

    def do_work(self) -> int:
        """Send recorded bytes to those who lack some; returns the chunks sent."""
        if not self.has_laggards:
            return 0
        assert self._recording is not None
        self.has_laggards = False
        work_count = 0
        for stream in list(self._streams.values()):
            if stream.is_suspended:
                continue
            work_count += self._send_recorded(stream, self._recording)
            if stream.is_done:
                self.stop(stream.member_id)
        return work_count

    def _send_recorded(self, stream: LogStream, recording: PublishedLog) -> int:
        append_position = recording.append_position
        limit = (
            append_position
            if stream.stop_position == NULL_POSITION
            else min(stream.stop_position, append_position)
        )
        count = 0
        while stream.position < limit:
            if count == CHUNKS_PER_TURN or self._links.is_full(stream.member_id):
                break
            if not len(self._chunk):
                self._chunk = np.zeros(CHUNK_BYTES, np.uint8)
            wanted = min(limit - stream.position, CHUNK_BYTES)
            data = recording.read_published(stream.position, wanted, self._chunk)
            if self._links.send(stream.member_id, data) <= 0:
                break
            stream.position += len(data)
            count += 1
        if stream.position < limit:
            self.has_laggards = True
        elif stream.merge_position == NULL_POSITION and stream.stop_position == NULL_POSITION:
            stream.merge_position = stream.position
        return count
