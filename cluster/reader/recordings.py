"""Any recording of an archive directory, message by message: snapshots, and what tools look at."""

from collections.abc import Iterator
from contextlib import closing

from cluster.archive.catalog_file import CatalogFile
from cluster.archive.files import Files
from cluster.archive.frame_checksum import checksum_kinds
from cluster.archive.frame_walk import FrameWalk, log_params
from cluster.archive.segments import Segments, segment_bases
from cluster.archive.stored_recording import StoredRecording
from cluster.errors import NotAClusterDirectory
from cluster.log.deliver import read_message
from cluster.protocol.catalog import NULL_POSITION, RecordingDescriptor


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


def recorded_messages(
    files: Files, archive_dir: str, descriptor: RecordingDescriptor
) -> Iterator[tuple[int, bytes]]:
    """End and bytes of each message of a stopped recording, such as a snapshot. Raises LogDamaged."""
    with closing(Segments(files, archive_dir, descriptor)) as segments:
        end = descriptor.stop_position
        if end == NULL_POSITION:
            end = segments.bases()[-1] + descriptor.segment_file_length
        position = descriptor.start_position
        length = 1024 * 1024
        while position < end:
            walk = FrameWalk(segments, log_params(descriptor), position, end, chunk_length=length)
            run = next(iter(walk), None)
            if run is None:
                if walk.is_unwritten and descriptor.stop_position == NULL_POSITION:
                    return
                raise walk.damage()
            data = run[1]
            offset = 0
            while offset < len(data):
                message, after = read_message(data, offset, len(data))
                if after == offset:
                    break
                if message is not None:
                    yield position + after, message
                offset = after
            if offset == 0 and len(data) < length:
                return  # the rest of a message that was never written
            length = length if offset else 2 * length
            position += offset
