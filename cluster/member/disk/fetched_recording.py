"""Recordings fetched from another archive: begun as described, filled with frames that were checked.

RecordingStatus ──▶ frames, frames, … ──▶ EndOfStream, of each recording of a snapshot in turn
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from cluster.archive.archive import Archive
from cluster.archive.catalog_checksum import checksum_named
from cluster.archive.frame_walk import log_params
from cluster.archive.recording import Recording
from cluster.errors import ClusterError, DataLoss, RemoteProtocolError
from cluster.log.checksum import Checksum, restore_session_ids, verify_checksums
from cluster.log.scan import check_run, fault_at
from cluster.member.disk.recovery import create_log_like
from cluster.protocol import streams
from cluster.protocol.link import EndOfStream, LinkErrorCode, RecordingStatus
from cluster.protocol.recording_log import SNAPSHOT, RecordingLogEntry
from cluster.transport.log_client import RecordingAnswer

SYNC_BYTES = 32 * 1024 * 1024  # fetched bytes that a sync may have to move


def _create_snapshot(archive: Archive, like: RecordingStatus) -> Recording:
    return archive.create_recording(
        stream_id=like.stream_id,
        session_id=like.session_id,
        initial_term_id=like.initial_term_id,
        term_length=like.term_length,
        mtu=like.mtu,
        channel=f"aeron:ipc?session-id={like.session_id}|alias=snapshot",
        is_sparse=True,
    )


def append_checked(name: str, recording: Recording, checksum: Checksum | None, frames: np.ndarray) -> None:
    """Append frames once checksums and places are verified. Raises RemoteProtocolError, StorageError."""
    _check(name, recording, checksum, frames)
    recording.append(recording.append_position, frames)


def append_fetched(name: str, recording: Recording, checksum: Checksum | None, frames: np.ndarray) -> None:
    """As ``append_checked``, with session ids in place of checksums, and a sync every so often.

    The archive here keeps checksums of its own, or none.
    """
    _check(name, recording, checksum, frames)
    if checksum is not None:
        frames = frames.copy()
        restore_session_ids(frames, 0, len(frames), recording.session_id)
    recording.append(recording.append_position, frames)
    if recording.append_position - recording.synced_position >= SYNC_BYTES:
        recording.sync()


def _check(name: str, recording: Recording, checksum: Checksum | None, frames: np.ndarray) -> None:
    position = recording.append_position
    good = len(frames) if checksum is None else verify_checksums(checksum, frames, 0, len(frames))
    if good < len(frames):
        raise RemoteProtocolError(f"{name}: checksum mismatch in the frame at position {position + good}")
    params = log_params(recording.descriptor)
    good = check_run(frames, 0, len(frames), position, params, is_recording=True)
    if good < len(frames):
        fault = fault_at(frames, good, len(frames), position + good, params, is_recording=True)
        raise RemoteProtocolError(f"{name}: frames do not join on at position {position + good}: {fault}")


class FetchedSnapshot:
    """A snapshot on its way, fed with answers of who has it. Raises ClusterError when it cannot be had.

    A log may come after it; it begins where it begins there.
    """

    def __init__(
        self, name: str, recording_ids: Sequence[int], archive: Archive, stream_ids: Sequence[int] = ()
    ) -> None:
        """``name`` is whose it is, ``recording_ids`` are its there; each is of the stream that is given."""
        self.recordings: list[Recording] = []
        self._name = name
        self._recording_ids = recording_ids
        self._archive = archive
        self._stream_ids = stream_ids
        self._statuses: list[RecordingStatus] = []  # of the recordings that are begun
        self._ended = 0
        self._answers: Iterator[RecordingAnswer] | None = None  # about it

    @property
    def is_complete(self) -> bool:
        return self._ended == len(self._recording_ids)

    @property
    def _status(self) -> RecordingStatus | None:
        """Of the first recording that is not ended."""
        return self._statuses[self._ended] if self._ended < len(self._statuses) else None

    @property
    def position(self) -> int:
        """To here that recording has come."""
        return self.recordings[self._ended].append_position

    def entries(self, described: Iterable[Any]) -> tuple[RecordingLogEntry, ...]:
        """What recording.log is to say of it, the module's first; ``described`` is said of it there."""
        entries = (
            RecordingLogEntry.of(theirs, SNAPSHOT)._replace(recording_id=ours.recording_id)
            for theirs, ours in zip(described, self.recordings, strict=False)
        )
        return tuple(sorted(entries, key=lambda entry: entry.service_id))

    def go_on(self, read: Callable[[int], Iterator[RecordingAnswer]]) -> None:
        """Take the next answer of a member whose recordings are ``read`` by their ids."""
        if self._answers is None:
            self._answers = read(self._recording_ids[self._ended])
        answer = next(self._answers, None)
        if answer is None:
            raise RemoteProtocolError(f"{self._name}: the stream ended without its end")
        self.take(answer)
        if self._status is None:
            self._answers = None

    def take(self, answer: RecordingAnswer) -> None:
        """Take what is said next. Raises DataLoss for a recording that is not there, StorageError."""
        match answer:
            case RecordingStatus() if self._status is None:
                self.begin(answer)
            case np.ndarray() if self._status is not None:
                self._append(answer, self._status)
            case EndOfStream(code=LinkErrorCode.OK) if self._status is not None:
                self._end(self._status)
            case EndOfStream():
                check_end(self._name, answer)
                raise RemoteProtocolError(f"{self._name}: a recording ended before its description")
            case _:
                raise RemoteProtocolError(f"{self._name}: unexpected {type(answer).__name__}")

    def begin(self, status: RecordingStatus) -> None:
        """Begin the next recording. Raises StorageError."""
        number = len(self.recordings)
        expected = self._stream_ids[number] if self._stream_ids else status.stream_id
        is_log = status.stream_id == streams.LOG
        begin = 0 if is_log else status.start_position
        if (status.stream_id, begin) != (expected, 0) or status.stop_position < 0:
            raise RemoteProtocolError(
                f"{self._name}: recording {self._recording_ids[number]} is of stream {status.stream_id} from "
                f"{status.start_position} to {status.stop_position}, expected {expected} from 0 to its end"
            )
        create = create_log_like if is_log else _create_snapshot
        self.recordings.append(create(self._archive, status))
        self._statuses.append(status)

    def _append(self, frames: np.ndarray, status: RecordingStatus) -> None:
        recording = self.recordings[self._ended]
        if recording.append_position + len(frames) > status.stop_position:
            raise RemoteProtocolError(
                f"{self._name}: frames after the end of a recording, {status.stop_position}"
            )
        append_fetched(self._name, recording, checksum_named(status.checksum), frames)

    def _end(self, status: RecordingStatus) -> None:
        if self.position != status.stop_position:
            raise RemoteProtocolError(
                f"{self._name}: a recording ended at {self.position}, expected {status.stop_position}"
            )
        self._archive.stop_recording(self.recordings[self._ended].recording_id)
        self._ended += 1

    def discard(self) -> None:
        """Remove what is here. Raises StorageError."""
        for recording in self.recordings:
            self._archive.purge_recording(recording.recording_id)


def check_end(name: str, end: EndOfStream) -> None:
    """Raise what a stream ended with."""
    if end.code is LinkErrorCode.NOT_AVAILABLE:
        raise DataLoss(f"{name}: {end.text}")
    if end.code is not LinkErrorCode.OK:
        raise ClusterError(f"{name}: {end.text}")
