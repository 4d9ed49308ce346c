"""Where a recording is damaged, and how what lies after the damage is set aside.

    start                 damage                                stop
      |------- whole --------|xx|---- may be whole, or not ------|
      |---- kept, in place --|------- set aside: damaged/ -------|

Damage is a missing or short segment file, a sector that cannot be read, a frame that is not in its place, or
a checksum that is wrong. A torn end is none: that is what a crash leaves, and recording_end.py cuts it off.
"""

from contextlib import closing
from dataclasses import dataclass

import numpy as np

from cluster.archive.files import Files
from cluster.archive.frame_walk import FrameWalk, log_params
from cluster.archive.recording_end import acknowledged_end, has_changed
from cluster.archive.segments import Segments
from cluster.archive.sync_proof import SyncProof
from cluster.errors import LogDamaged
from cluster.log.checksum import Checksum, compute, verify_checksums
from cluster.log.runs import last_frame
from cluster.protocol.catalog import RecordingDescriptor
from cluster.protocol.frame import HEADER_LENGTH, header_at

SET_ASIDE_FOLDER = "damaged"
_FINE_CHUNK = 4096  # with which the frame before an unreadable sector is found


@dataclass(frozen=True, slots=True)
class Damage:
    """From ``position``, a frame's start, on a recording is not trusted; ``error`` says file, offset, why.

    The member has acknowledged nothing from ``acknowledged_end`` on; None where that is not known.
    """

    recording_id: int
    position: int
    error: LogDamaged
    acknowledged_end: int | None = None


def first_damage(
    segments: Segments, descriptor: RecordingDescriptor, begin: int, end: int, checksum: Checksum | None
) -> Damage | None:
    """The first damage of a recording up to ``end``, its frames read from ``begin`` on; or None."""
    start = descriptor.start_position
    bases = set(segments.bases())
    missing = None
    for base in range(segments.base_of(start), end, segments.segment_length):
        if base not in bases:
            missing = LogDamaged(segments.path(base), None, "the segment file is missing")
            end = max(base, start)
            break
        if segments.file(base).size() < min(end - base, segments.segment_length):
            begin = min(begin, max(base, start))  # what it still has is walked like all the rest
    if begin < end and (found := bad_frame(segments, descriptor, begin, end, checksum)) is not None:
        return found
    return None if missing is None else Damage(descriptor.recording_id, end, missing)


def damage_of_open_recording(
    segments: Segments,
    descriptor: RecordingDescriptor,
    proof: SyncProof | None,
    error: LogDamaged | OSError,
    checksum: Checksum | None,
) -> Damage:
    """The damage for which ``find_end`` raised ``error`` instead of giving a recording its end.

    Of bytes that were synced and have changed only the proof may know, and it does not know which. Raises
    ``error`` when everything can be read after all.
    """
    bases, start = segments.bases(), descriptor.start_position
    end = max(bases[-1] + segments.segment_length, start) if bases else start
    if proof is not None and isinstance(error, LogDamaged):
        end = min(end, _known_end(segments, descriptor, proof, end))
    found = first_damage(segments, descriptor, start, end, checksum)
    if found is not None:
        return found
    if isinstance(error, LogDamaged):
        return Damage(descriptor.recording_id, end, error)  # what is there is whole, and not all
    raise error


def _known_end(segments: Segments, descriptor: RecordingDescriptor, proof: SyncProof, end: int) -> int:
    """Up to where frames show by themselves that they are damaged; ``end`` where the proof says nothing."""
    try:
        is_changed = has_changed(segments, proof)
    except (LogDamaged, OSError):
        is_changed = False
    acknowledged = acknowledged_end(segments, descriptor, proof)
    if is_changed and (proof.is_done or acknowledged != proof.from_position):
        return proof.from_position
    return end if proof.checksum is None or acknowledged is None else acknowledged


def bad_frame(
    segments: Segments, descriptor: RecordingDescriptor, begin: int, end: int, checksum: Checksum | None
) -> Damage | None:
    """The first frame in [begin, end) that is not what its place calls for, or cannot be read.

    Without checksums that is the frame before a place where there is none: no hole begins where a frame does.
    """
    damage: LogDamaged
    walk = FrameWalk(segments, log_params(descriptor), begin, end)
    last_run: tuple[int, np.ndarray] | None = None
    while True:
        try:
            for position, run in walk:
                good = len(run) if checksum is None else verify_checksums(checksum, run, 0, len(run))
                if good < len(run):
                    damage = checksum_mismatch(segments, position + good, run[good:], checksum)
                    return Damage(descriptor.recording_id, position + good, damage)
                last_run = position, run
        except OSError as error:
            if walk.chunk_length > _FINE_CHUNK:  # once more from here, to come close to the bad sector
                walk = FrameWalk(
                    segments, log_params(descriptor), walk.position, end, chunk_length=_FINE_CHUNK
                )
                continue
            damage = unreadable(segments, walk.position, error)
            return Damage(descriptor.recording_id, walk.position, damage)
        if walk.position >= end:
            return None
        position = walk.position
        if checksum is None and last_run is not None:
            position = last_run[0] + last_frame(last_run[1])[0]
        return Damage(descriptor.recording_id, position, walk.damage())


def unreadable(segments: Segments, position: int, error: OSError) -> LogDamaged:
    """What a failed read of the bytes at ``position`` says of them."""
    return segments.damage_at(position, f"reading failed at log position {position}: {error.strerror}")


def checksum_mismatch(
    segments: Segments, position: int, run: np.ndarray, checksum: Checksum | None
) -> LogDamaged:
    """The frame at ``position``, with which ``run`` begins, does not have the checksum of its bytes."""
    assert checksum is not None
    header = header_at(run)
    expected = compute(checksum, run, HEADER_LENGTH, header.aligned_length - HEADER_LENGTH)
    found = header.session_id
    return segments.damage_at(
        position,
        f"checksum mismatch at log position {position}: expected {expected & 0xFFFF_FFFF:#010x}, "
        f"found {found & 0xFFFF_FFFF:#010x}",
    )


def set_aside_segments(files: Files, directory: str, descriptor: RecordingDescriptor) -> None:
    """Move segments with anything after a recording's end, which the catalog has, into a folder."""
    folder = f"{directory}/{SET_ASIDE_FOLDER}"
    with closing(Segments(files, directory, descriptor)) as segments:
        files.make_directory(folder)
        end = descriptor.stop_position
        last = segments.base_of(end)
        for base in reversed([base for base in segments.bases() if base > last]):
            set_aside(files, segments.path(base), folder)
        segments.renew(last, end, old_to=folder)
        files.sync_directory(folder)


def set_aside(files: Files, path: str, folder: str) -> None:
    """Move one file into a folder, over what an earlier, interrupted attempt has left there."""
    files.rename(path, f"{folder}/{path.rpartition('/')[2]}")


def drop_set_aside(files: Files, directory: str) -> None:
    """Remove what was set aside in a directory."""
    folder = f"{directory}/{SET_ASIDE_FOLDER}"
    if files.is_directory(folder):
        for name in files.list_directory(folder):
            files.unlink(f"{folder}/{name}")
        files.sync_directory(folder)
