"""A member's recordings as they are served to backups: snapshots whole, and what the log's is like."""

from collections.abc import Iterator

import numpy as np

from cluster.archive.catalog_checksum import NAMES
from cluster.archive.snapshot_archive import STREAM_IDS
from cluster.archive.stored_recording import StoredRecording
from cluster.errors import DataLoss, NotAClusterDirectory
from cluster.protocol import link
from cluster.reader.directory import DirectoryLog
from cluster.reader.recordings import open_recording, status_of


class ServedRecordings:
    """Those in the archive of a log that is open."""

    def __init__(self, log: DirectoryLog) -> None:
        self._log = log

    def status(self, request: link.RecordingRequest) -> link.RecordingStatus:
        """What the recording is like. Raises DataLoss for one that is not here, or none of a cluster's."""
        recording = self._open(request.recording_id)
        descriptor = recording.descriptor
        start_position = descriptor.start_position
        is_log = request.recording_id == self._log.recording.recording_id
        if not is_log and descriptor.stream_id not in STREAM_IDS:
            raise DataLoss(f"recording {request.recording_id} is neither the log's nor a snapshot's")
        return status_of(
            descriptor,
            correlation_id=request.correlation_id,
            checksum=NAMES[recording.checksum],
            terms=self._terms_from(start_position) if is_log else (),
            first_frame=recording.first_frame() if is_log and start_position > 0 else b"",
        )

    def blocks(self, recording_id: int, *, max_bytes: int) -> Iterator[tuple[int, np.ndarray]]:
        """All frames of a snapshot as stored, each run with its position. Raises DataLoss, LogDamaged."""
        recording = self._open(recording_id)
        if recording.stream_id in STREAM_IDS:
            yield from recording.blocks(recording.start_position, recording.append_position, max_bytes)

    def _open(self, recording_id: int) -> StoredRecording:
        state = self._log.state
        try:
            return open_recording(state.files, state.member.archive, recording_id)
        except NotAClusterDirectory as error:
            raise DataLoss(str(error)) from None

    def _terms_from(self, position: int) -> tuple[link.TermEntry, ...]:
        self._log.state.read_terms()
        return link.terms_from(position, self._log.state.log_entries)
