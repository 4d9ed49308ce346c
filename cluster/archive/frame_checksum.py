"""What the data frames of a recording hold: checksums, of which kind, or session ids.

A recording keeps what it began with, whoever wrote it and however the archive is configured now. So what it
is verified by, and extended with, is found from its frames: the first ones, and the last ones where it is
known where it ends. A frame holds a checksum if it is the right one, by chance once in 2**32. Frames hold
session ids if one is that of the recording's last writer, or if none is right and two hold the same: what
damaged frames hold is neither.
"""

import numpy as np

from cluster.archive.catalog_file import CatalogFile
from cluster.archive.frame_walk import FrameWalk, log_params, next_frame_after
from cluster.archive.segments import Segments
from cluster.errors import LogDamaged
from cluster.log.checksum import Checksum, verify_checksums
from cluster.log.runs import headers
from cluster.protocol.catalog import NULL_POSITION, CatalogEntry, RecordingDescriptor
from cluster.protocol.frame import HEADER_LENGTH, TYPE_DATA, header_at

_SAMPLE_FRAMES = 8  # at either end of what is sampled
_SAMPLE_BYTES = 16 * 1024


def frame_checksum(segments: Segments, catalog: CatalogFile, entry: CatalogEntry) -> Checksum | None:
    """By what the frames of a recording are to be verified; its catalog entry says it where they do not.

    None where only some hold checksums, as after a change of the setting by who let recordings follow it:
    nothing says of a damaged frame which it was to hold.
    """
    kinds = checksum_kinds(segments, entry.descriptor)
    if not kinds:
        return catalog.checksum_of(entry)
    return kinds.pop() if len(kinds) == 1 else None


def checksum_kinds(segments: Segments, descriptor: RecordingDescriptor) -> set[Checksum | None]:
    """What is found in the frames; None for session ids, empty where no frame shows it."""
    start, stop = descriptor.start_position, descriptor.stop_position
    kinds = _kinds_at(segments, descriptor, start)
    if stop - start > _SAMPLE_BYTES:
        try:
            last = next_frame_after(segments, log_params(descriptor), stop - _SAMPLE_BYTES, stop)
        except OSError:
            last = None
        if last is not None:
            kinds |= _kinds_at(segments, descriptor, last)
    for base in segments.bases() if not kinds else []:
        if kinds := _kinds_at(segments, descriptor, max(base, start)):
            break
    return kinds


def _kinds_at(segments: Segments, descriptor: RecordingDescriptor, position: int) -> set[Checksum | None]:
    stop = descriptor.stop_position
    end = position + _SAMPLE_BYTES if stop == NULL_POSITION else min(position + _SAMPLE_BYTES, stop)
    walk = FrameWalk(segments, log_params(descriptor), position, end, chunk_length=_SAMPLE_BYTES)
    try:
        for _, run in walk:
            return checksum_kinds_in(run, descriptor.session_id)
    except (LogDamaged, OSError):
        pass  # reported when it is read
    return set()


def checksum_kinds_in(run: np.ndarray, session_id: int) -> set[Checksum | None]:
    """What the first and the last frames of a run hold; ``session_id``: of the recording's last writer."""
    frames = _data_frames(run)
    first, last = frames[:_SAMPLE_FRAMES], frames[_SAMPLE_FRAMES:][-_SAMPLE_FRAMES:]
    return _kinds_in(run, first, session_id) | _kinds_in(run, last, session_id)


def _kinds_in(run: np.ndarray, frames: list[tuple[int, int]], session_id: int) -> set[Checksum | None]:
    kinds: set[Checksum | None] = set()
    unknown = []
    for begin, end in frames:
        right = [kind for kind in Checksum if verify_checksums(kind, run, begin, end) == end]
        kinds.update(right)
        if not right:
            unknown.append(header_at(run, begin).session_id)
    if session_id in unknown or (not kinds and len(set(unknown)) < len(unknown)):
        kinds.add(None)
    return kinds


def _data_frames(run: np.ndarray) -> list[tuple[int, int]]:
    """Begin and end of each data frame with a payload, in a run of whole frames."""
    return [
        (offset, offset + header.aligned_length)
        for offset, header in headers(run)
        if header.type == TYPE_DATA and header.frame_length > HEADER_LENGTH
    ]
