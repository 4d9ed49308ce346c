"""Whether the recordings of an archive are what their catalog says, by the rules of Aeron's verify tool.

A recording fails for positions that cannot be, a missing segment, a frame that is not in its place, a
checksum that is wrong, or an end that its frames do not reach. An end that a crash left open is found as a
start would find it. Source: ArchiveTool.verify.
"""

from dataclasses import dataclass

from cluster.archive.catalog_checksum import descriptor_checksum
from cluster.archive.catalog_file import CatalogFile
from cluster.archive.files import Files
from cluster.archive.frame_checksum import frame_checksum
from cluster.archive.recording_damage import first_damage
from cluster.archive.recording_end import find_end
from cluster.archive.segments import Segments, segment_bases
from cluster.archive.sync_proof import read_sync_proof
from cluster.errors import LogDamaged
from cluster.log.checksum import Checksum
from cluster.protocol.catalog import CHECKSUM_OFFSET, NULL_POSITION, CatalogEntry, RecordingDescriptor
from cluster.protocol.enums import RecordingState


@dataclass(frozen=True, slots=True)
class Verified:
    """Outcome for one recording: ``damage`` is None when all is well; ``stop_position`` as found."""

    recording_id: int
    state: RecordingState
    stop_position: int
    damage: LogDamaged | None


def verify_recording(
    files: Files,
    directory: str,
    catalog: CatalogFile,
    entry: CatalogEntry,
    *,
    all_segments: bool = False,
    checksum: Checksum | None = None,
    end_position: int | None = None,
) -> Verified:
    """Look at a recording, to ``end_position`` if it is written; ``checksum`` is one that it must have."""
    descriptor = entry.descriptor
    stop = descriptor.stop_position
    damage: LogDamaged | None = None
    try:
        catalog.check_entry(entry, segment_bases(files, directory, descriptor.recording_id))
    except LogDamaged as found:
        return Verified(descriptor.recording_id, entry.header.state, stop, found)
    segments = Segments(files, directory, descriptor)
    try:
        verified_by = checksum or frame_checksum(segments, catalog, entry)
        if checksum is not None:
            expected = descriptor_checksum(checksum, catalog.descriptor_bytes(entry))
            if entry.header.checksum != expected:
                what = (
                    f"descriptor checksum mismatch: expected {expected & 0xFFFF_FFFF:#010x}, "
                    f"found {entry.header.checksum & 0xFFFF_FFFF:#010x}"
                )
                raise LogDamaged(catalog.path, entry.offset + CHECKSUM_OFFSET, what)
        if stop == NULL_POSITION:
            stop = (
                end_position
                if end_position is not None
                else _find_end(files, directory, segments, entry, verified_by)
            )
        _check_segments(segments, descriptor, stop)
        _check_frames(segments, descriptor, stop, all_segments, verified_by)
    except LogDamaged as found:
        damage = found
    except OSError as error:
        damage = LogDamaged(error.filename or directory, None, f"reading failed: {error.strerror}")
    finally:
        segments.close()
    return Verified(descriptor.recording_id, entry.header.state, stop, damage)


def settle(catalog: CatalogFile, verified: Verified, now_ms: int) -> None:
    """Write an outcome down: INVALID what failed, VALID what passed, and an end that was open."""
    entry = catalog.entry(verified.recording_id)
    assert entry is not None
    if verified.damage is not None:
        if entry.header.state is RecordingState.VALID:
            catalog.set_state(verified.recording_id, RecordingState.INVALID)
        return
    if entry.descriptor.stop_position != verified.stop_position:
        catalog.stop(verified.recording_id, verified.stop_position, now_ms)
    if entry.header.state is RecordingState.INVALID:
        catalog.set_state(verified.recording_id, RecordingState.VALID)


def _find_end(
    files: Files, directory: str, segments: Segments, entry: CatalogEntry, checksum: Checksum | None
) -> int:
    descriptor = entry.descriptor
    proof = read_sync_proof(files, directory, descriptor.recording_id, descriptor.session_id)
    return find_end(segments, descriptor, proof, checksum, file_sync_level=1).stop_position


def _check_segments(segments: Segments, descriptor: RecordingDescriptor, stop: int) -> None:
    """Every segment from start to stop is there, and when there is any, the one that holds the stop."""
    start = descriptor.start_position
    bases = set(segments.bases())
    if not bases and start == stop:
        return
    for base in range(segments.base_of(start), segments.base_of(stop) + 1, segments.segment_length):
        if base not in bases:
            raise LogDamaged(segments.path(base), None, "the segment file is missing")


def _check_frames(
    segments: Segments,
    descriptor: RecordingDescriptor,
    stop: int,
    all_segments: bool,
    checksum: Checksum | None,
) -> None:
    begin = descriptor.start_position
    if not all_segments and stop > begin:
        begin = max(begin, segments.base_of(stop - 1))
    found = first_damage(segments, descriptor, begin, stop, checksum)
    if found is not None:
        raise found.error
