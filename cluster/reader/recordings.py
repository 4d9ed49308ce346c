"""Any recording of an archive directory: snapshots, and what tools look at."""

from contextlib import closing
from typing import Any

from cluster.archive.catalog_file import CatalogFile
from cluster.archive.files import Files
from cluster.archive.frame_checksum import checksum_kinds
from cluster.archive.segments import Segments, segment_bases
from cluster.archive.stored_recording import StoredRecording
from cluster.errors import NotAClusterDirectory
from cluster.protocol.catalog import RecordingDescriptor
from cluster.protocol.link import RecordingStatus


def find_recording(files: Files, archive_dir: str, recording_id: int) -> RecordingDescriptor:
    """The catalog's entry of a VALID recording. Raises NotAClusterDirectory when there is none."""
    catalog = CatalogFile.open(files, archive_dir, readable_part=True)
    catalog.close()
    entry = catalog.entry(recording_id)
    if entry is not None and entry.is_valid:
        catalog.check_entry(entry, segment_bases(files, archive_dir, recording_id))
        return entry.descriptor
    raise NotAClusterDirectory(f"{archive_dir}: recording {recording_id} is not in the catalog")


def open_recording(files: Files, archive_dir: str, recording_id: int) -> StoredRecording:
    """A recording that is not written any more. Raises NotAClusterDirectory, LogDamaged."""
    descriptor = find_recording(files, archive_dir, recording_id)
    with closing(Segments(files, archive_dir, descriptor)) as segments:
        kinds = checksum_kinds(segments, descriptor)
    return StoredRecording(files, archive_dir, descriptor, kinds.pop() if len(kinds) == 1 else None)


def status_of(recording: RecordingDescriptor, *, correlation_id: int = 0, **more: Any) -> RecordingStatus:
    """What a recording is like, as it is said of one that is served, with ``more`` than the catalog says."""
    return RecordingStatus(
        correlation_id=correlation_id,
        recording_id=recording.recording_id,
        start_position=recording.start_position,
        stop_position=recording.stop_position,
        session_id=recording.session_id,
        stream_id=recording.stream_id,
        initial_term_id=recording.initial_term_id,
        term_length=recording.term_buffer_length,
        mtu=recording.mtu_length,
        **more,
    )
