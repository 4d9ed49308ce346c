"""A member's recordings as they are served to backups: snapshots whole, and what the log's is like."""

from collections.abc import Iterator

import numpy as np

from cluster.archive.catalog_checksum import NAMES
from cluster.archive.snapshot_archive import STREAM_IDS
from cluster.archive.stored_recording import StoredRecording
from cluster.errors import DataLoss, NotAClusterDirectory
from cluster.protocol import link
from cluster.protocol.recording_log import TERM
from cluster.reader.directory import DirectoryLog
from cluster.reader.recordings import open_recording


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
        return link.RecordingStatus(
            correlation_id=request.correlation_id,
            recording_id=request.recording_id,
            start_position=start_position,
            stop_position=descriptor.stop_position,
            session_id=descriptor.session_id,
            stream_id=descriptor.stream_id,
            initial_term_id=descriptor.initial_term_id,
            term_length=descriptor.term_buffer_length,
            mtu=descriptor.mtu_length,
            checksum=NAMES[recording.checksum],
            terms=self._terms_from(start_position) if is_log else (),
            first_frame=recording.first_frame() if is_log and start_position > 0 else b"",
        )

    def blocks(self, recording_id: int, *, max_bytes: int) -> Iterator[tuple[int, np.ndarray]]:
        """All frames of a snapshot as stored, each run with its position. Raises DataLoss, LogDamaged."""
        recording = self._open(recording_id)
        if recording.stream_id not in STREAM_IDS:
            return
        try:
            position = recording.start_position
            while position < recording.append_position:
                found = [recording.read(position, max_bytes)]
                length = len(found[0])
                yield position, found.pop()  # whoever takes it has it alone
                position += length
        finally:
            recording.close_readers()

    def _open(self, recording_id: int) -> StoredRecording:
        state = self._log.state
        try:
            return open_recording(state.files, state.member.archive, recording_id)
        except NotAClusterDirectory as error:
            raise DataLoss(str(error)) from None

    def _terms_from(self, position: int) -> tuple[link.TermEntry, ...]:
        """The terms from the one on that holds ``position``."""
        self._log.state.read_terms()
        terms = [
            link.TermEntry(
                entry.leadership_term_id, entry.term_base_log_position, entry.log_position, entry.timestamp
            )
            for entry in self._log.state.log_entries
            if entry.entry_type is TERM
        ]
        first = max((i for i, term in enumerate(terms) if term.term_base_log_position <= position), default=0)
        return tuple(terms[first:])
