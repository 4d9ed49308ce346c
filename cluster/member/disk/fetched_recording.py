"""Recordings fetched from another archive: begun as described, filled with frames that were checked."""

import numpy as np

from cluster.archive.archive import Archive
from cluster.archive.catalog_checksum import checksum_named
from cluster.archive.frame_walk import log_params
from cluster.archive.recording import Recording
from cluster.errors import RemoteProtocolError
from cluster.log.checksum import restore_session_ids, verify_checksums
from cluster.log.scan import check_run, fault_at
from cluster.protocol.link import RecordingStatus


def create_snapshot_of(archive: Archive, status: RecordingStatus) -> Recording:
    """A recording for a snapshot that another archive has. Raises StorageError."""
    return archive.create_recording(
        stream_id=status.stream_id,
        session_id=status.session_id,
        initial_term_id=status.initial_term_id,
        term_length=status.term_length,
        mtu=status.mtu,
        channel=f"aeron:ipc?session-id={status.session_id}|alias=snapshot",
        is_sparse=True,
    )


def append_checked(name: str, recording: Recording, status: RecordingStatus, frames: np.ndarray) -> None:
    """Append frames once checksums and places are verified. Raises RemoteProtocolError, StorageError."""
    _check(name, recording, status, frames)
    recording.append(recording.append_position, frames)


def append_snapshot(name: str, recording: Recording, status: RecordingStatus, frames: np.ndarray) -> None:
    """The same of a snapshot, into an archive that keeps checksums of its own, or none."""
    _check(name, recording, status, frames)
    if checksum_named(status.checksum) is not None:
        frames = frames.copy()
        restore_session_ids(frames, 0, len(frames), recording.session_id)
    recording.append(recording.append_position, frames)


def _check(name: str, recording: Recording, status: RecordingStatus, frames: np.ndarray) -> None:
    position = recording.append_position
    checksum = checksum_named(status.checksum)
    good = len(frames) if checksum is None else verify_checksums(checksum, frames, 0, len(frames))
    if good < len(frames):
        raise RemoteProtocolError(f"{name}: checksum mismatch in the frame at position {position + good}")
    params = log_params(recording.descriptor)
    good = check_run(frames, 0, len(frames), position, params, is_recording=True)
    if good < len(frames):
        fault = fault_at(frames, good, len(frames), position + good, params, is_recording=True)
        raise RemoteProtocolError(f"{name}: frames do not join on at position {position + good}: {fault}")
