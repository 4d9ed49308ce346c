"""What an operator may do to an archive that does not run: throw away, check-sum, mark.

Sources: ArchiveTool's compact, delete-orphaned-segments, checksum, mark-valid and mark-invalid.
"""

from contextlib import closing
from dataclasses import dataclass

from cluster.archive.archive import Archive
from cluster.archive.catalog_checksum import descriptor_checksum
from cluster.archive.catalog_file import CatalogFile
from cluster.archive.files import Files, replace
from cluster.archive.frame_walk import FrameWalk, log_params
from cluster.archive.recording_log import RecordingLog
from cluster.archive.segments import Segments
from cluster.errors import ClusterError
from cluster.log.checksum import Checksum, store_checksums
from cluster.protocol.catalog import CATALOG_FILE_NAME, NULL_POSITION, CatalogEntry, parse_segment_file_name
from cluster.protocol.enums import RecordingState


@dataclass(frozen=True, slots=True)
class Compacted:
    """Entries that were dropped, bytes of the catalog that they took, and their files."""

    recording_ids: list[int]
    catalog_bytes: int
    files: list[str]


def compact(files: Files, directory: str, catalog: CatalogFile) -> Compacted:
    """Drop the entries that are not VALID, with their segments; the catalog is replaced in one step."""
    dropped = [entry for entry in catalog.entries if not entry.is_valid]
    kept = [entry for entry in catalog.entries if entry.is_valid]
    ids = {entry.descriptor.recording_id for entry in dropped}
    path = f"{directory}/{CATALOG_FILE_NAME}"
    data = catalog.header.encode_body()
    if catalog.header.alignment == 0:
        data = data.ljust(1024, b"\0")
    for entry in kept:
        body = catalog.descriptor_bytes(entry)
        data += entry.header.encode_body() + body
    replace(files, path, data, length=catalog.capacity)
    removed = [
        name
        for name in files.list_directory(directory)
        if (parsed := parse_segment_file_name(name)) is not None and parsed[0] in ids
    ]
    for name in removed:
        files.unlink(f"{directory}/{name}")
    files.sync_directory(directory)
    return Compacted(sorted(ids), sum(entry.end - entry.offset for entry in dropped), removed)


def orphaned_segments(
    files: Files, directory: str, catalog: CatalogFile, recording_id: int | None = None
) -> list[str]:
    """Names of segment files that belong to no recording, or lie outside its start and stop."""
    orphans = []
    for name in files.list_directory(directory):
        if not name.endswith((".rec", ".rec.del")):
            continue
        parsed = parse_segment_file_name(name)
        if parsed is None:
            if recording_id is None or name.startswith(f"{recording_id}-"):
                orphans.append(name)
            continue
        if recording_id is not None and parsed[0] != recording_id:
            continue
        entry = catalog.entry(parsed[0])
        if entry is None or not _is_within(entry, parsed[1]):
            orphans.append(name)
    return orphans


def _is_within(entry: CatalogEntry, base: int) -> bool:
    descriptor = entry.descriptor
    first = descriptor.start_position - descriptor.start_position % descriptor.term_buffer_length
    offset = base - first
    if offset < 0 or offset % descriptor.segment_file_length:
        return False
    return descriptor.stop_position == NULL_POSITION or base <= descriptor.stop_position


def purge_log(
    archive: Archive, recording_log: RecordingLog, position: int, snapshot_position: int | None
) -> tuple[int, int]:
    """Drop segments before ``position``, one's start, which a whole snapshot replaces; the log's start
    before and now. Raises ClusterError.
    """
    term = recording_log.find_last_term()
    if term is None or not archive.has_recording(term.recording_id):
        raise ClusterError(f"{recording_log.path}: there is no log")
    recording = archive.recording(term.recording_id)
    start = recording.start_position
    if snapshot_position is None:
        raise ClusterError(f"the log from {start} on is needed: there is no snapshot to start from")
    limit = recording.base_of(min(snapshot_position, recording.append_position))
    base = recording.base_of(max(min(position, limit), start))
    if position < 0 or position > limit or (position != base and position != start):
        raise ClusterError(
            f"cannot purge to {position}: the log begins at {start}, its last snapshot is at "
            f"{snapshot_position}, segments are of {recording.segment_length} bytes; the nearest is {base}"
        )
    return start, recording.purge_to(position)


def delete_files(files: Files, directory: str, names: list[str]) -> None:
    """Remove files of the archive directory, durably."""
    for name in names:
        files.unlink(f"{directory}/{name}")
    files.sync_directory(directory)


def add_checksums(
    files: Files,
    directory: str,
    catalog: CatalogFile,
    entry: CatalogEntry,
    checksum: Checksum,
    *,
    all_segments: bool,
) -> int:
    """Write the checksums of the frames over their session ids; the bytes covered. Raises LogDamaged."""
    descriptor = entry.descriptor
    covered = 0
    with closing(Segments(files, directory, descriptor)) as segments:
        bases = segments.bases()
        if bases:
            end = descriptor.stop_position
            if end == NULL_POSITION:
                raise ClusterError(f"recording {descriptor.recording_id} has no end yet: verify it first")
            begin = descriptor.start_position
            if not all_segments and end > begin:
                begin = max(begin, segments.base_of(end - 1))
            walk = FrameWalk(segments, log_params(descriptor), begin, end)
            for position, run in walk:
                store_checksums(checksum, run, 0, len(run))
                base = segments.base_of(position)
                with closing(files.open(segments.path(base), write=True)) as file:
                    file.pwrite(run, position - base)
                    file.datasync()
                covered += len(run)
            if walk.position < end:
                raise walk.damage()
    value = descriptor_checksum(checksum, catalog.descriptor_bytes(entry))
    catalog.set_checksum(descriptor.recording_id, value)
    return covered


def mark(catalog: CatalogFile, recording_id: int, state: RecordingState) -> None:
    """Switch an entry between VALID and INVALID. Raises ClusterError for any other change."""
    wanted_before = {
        RecordingState.VALID: RecordingState.INVALID,
        RecordingState.INVALID: RecordingState.VALID,
    }
    entry = catalog.entry(recording_id)
    if entry is None:
        raise ClusterError(f"{catalog.path}: no recording {recording_id}")
    if entry.header.state is not wanted_before[state]:
        raise ClusterError(
            f"recording {recording_id} is {entry.header.state.name}, "
            f"only a {wanted_before[state].name} one can be marked {state.name}"
        )
    catalog.set_state(recording_id, state)
