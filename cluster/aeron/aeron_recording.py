"""Any single recording of an Aeron Archive, over its own medium, as far as it is recorded.

Where it holds a cluster's log its entries are read, else its frames. What an archive has recorded of a log
need not be committed: a cluster is read by ``aeron_log.py``.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from cluster.aeron.aeron_log import AeronLog
from cluster.aeron.aeron_member import ArchiveAccess, RecordingSource
from cluster.aeron.consensus_endpoints import parse_archive_endpoint
from cluster.errors import ConfigurationError, RemoteProtocolError
from cluster.log.runs import headers
from cluster.log.term_event import time_unit_by
from cluster.media.aeron import Aeron
from cluster.media.aeron_archive import AeronArchive, ArchiveRefusal, BoundedReplay
from cluster.protocol import Message, decode
from cluster.protocol.catalog import NULL_POSITION, RecordingDescriptor
from cluster.protocol.enums import ClusterTimeUnit
from cluster.protocol.frame import HEADER_LENGTH, TYPE_DATA
from cluster.protocol.log import (
    ClusterActionRequest,
    MembershipChangeEvent,
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
)
from cluster.protocol.session import SessionMessageHeader
from cluster.protocol.token import LogIdentity

ENTRIES = (
    SessionMessageHeader,
    TimerEvent,
    SessionOpenEvent,
    SessionCloseEvent,
    ClusterActionRequest,
    NewLeadershipTermEvent,
    MembershipChangeEvent,
)


class ArchivedRecording(RecordingSource):
    """The recording ``recording_id`` of the archive at ``endpoint``. Raises ConfigurationError for none."""

    member_id = 0
    is_leader = False

    def __init__(self, aeron: Aeron, endpoint: str, access: ArchiveAccess, recording_id: int | None) -> None:
        super().__init__(aeron, endpoint, access)
        self._recording_id = recording_id

    def begin_query(self) -> None:
        """There is nothing to ask before."""

    def poll_response(self) -> bool:
        return True

    def query(self) -> None:
        self.recorded_end()

    def _located(self) -> tuple[AeronArchive, int]:
        archive = self._archive_at(self.endpoint)
        if self._recording_id is None:
            raise _refused(archive, "no recording is named")
        return archive, self._recording_id

    def recording(self) -> RecordingDescriptor:
        try:
            return super().recording()
        except ArchiveRefusal:
            archive, recording_id = self._located()
            raise _refused(archive, f"recording {recording_id} is not there") from None

    def _replay(self, position: int, length: int) -> BoundedReplay:
        archive, recording_id = self._located()
        return archive.replay(recording_id, position, length, self._access.file_io_max_length)


def _refused(archive: AeronArchive, what: str) -> ConfigurationError:
    found = "; ".join(
        f"{each.recording_id}: stream {each.stream_id} of {each.stripped_channel}"
        for each in archive.list_recordings()
    )
    return ConfigurationError(f"{what}; archive {archive.endpoint} has {found or 'no recordings'}")


class AeronRecording(AeronLog):
    """The recording ``recording_id`` of the archive at ``aeron_archive``, ``host:port``."""

    EXPECTED = ""

    def __init__(
        self,
        aeron_archive: str,
        recording_id: int | None = None,
        **options: Any,
    ) -> None:
        """``options`` are those of ``AeronLog``.

        Without a ``recording_id`` that is there ConfigurationError lists those that are.
        """
        self._recording_id = recording_id
        self._first: Message | None = None  # of its messages, if they are a log's entries
        self._is_known = False  # what it begins with
        super().__init__(parse_archive_endpoint(aeron_archive), **options)

    def _source(self, aeron: Aeron, endpoint: str) -> RecordingSource:
        return ArchivedRecording(aeron, endpoint, self._access, self._recording_id)

    def _others(self, answered: dict[str, RecordingSource], asked: dict[str, RecordingSource]) -> list[str]:
        return []

    @property
    def has_messages(self) -> bool:
        """Whether it holds the entries of a cluster's log: they are read whole then."""
        if not self._is_known:
            self._is_known = True  # while frames are read for it
            frames = self._frame_at(self.start_position)
            self._is_known = frames is not None
            self._first = None if frames is None else _entry_in(frames)
        return self._first is not None

    @property
    def identity(self) -> LogIdentity | None:
        """Of a cluster's log as everywhere; else the recording's id, start timestamp and initial term id."""
        if self.has_messages:
            return super().identity
        recording = self.recording
        began = recording.start_timestamp, recording.initial_term_id
        return LogIdentity(recording.recording_id, *began) if self._is_known else None

    @cached_property
    def time_unit(self) -> ClusterTimeUnit:
        if not self.has_messages:
            return ClusterTimeUnit.MILLIS
        if isinstance(self._first, NewLeadershipTermEvent):
            return self._first.time_unit or ClusterTimeUnit.MILLIS
        assert isinstance(self._first, ENTRIES)
        return time_unit_by(self._first.timestamp)

    @property
    def is_live(self) -> bool:
        """Whether it was written when it was last asked for."""
        return self.recording.stop_position == NULL_POSITION

    def commit_position(self) -> int:
        """End of what is recorded: of a cluster's log the end of a message."""
        return super().commit_position() if self.has_messages else self.end_position()

    def end_position(self) -> int:
        if self.has_messages:
            return super().end_position()
        return self._with_a_source(lambda source: source.recorded_end())

    def _follow(self, source: RecordingSource) -> int:
        self.recording = source.recording()
        if not self.is_live and self.recording.stop_position <= self._commit_position:
            return self._commit_position  # there is nothing to replay
        return super()._follow(source)


def _entry_in(frames: bytes) -> Message | None:
    """The message that the first data frame holds, if it is an entry of a cluster's log."""
    for offset, header in headers(frames):
        if header.type == TYPE_DATA:
            try:
                message = decode(frames, offset + HEADER_LENGTH, header.frame_length - HEADER_LENGTH)
            except RemoteProtocolError:
                return None
            return message if isinstance(message, ENTRIES) else None
    return None
