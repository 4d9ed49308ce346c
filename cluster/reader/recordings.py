"""Any recording of an archive directory: snapshots, and what tools look at."""

from contextlib import closing

from cluster.archive.catalog_file import CatalogFile
from cluster.archive.files import Files
from cluster.archive.frame_checksum import checksum_kinds
from cluster.archive.segments import Segments, segment_bases
from cluster.archive.stored_recording import StoredRecording
from cluster.errors import NotAClusterDirectory
from cluster.protocol.catalog import RecordingDescriptor


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
