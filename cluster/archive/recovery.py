"""Where a recording ends after an unclean stop, found from its files.

Three witnesses, the strongest that is there decides:

    proof file       of our own recordings: the end of the last sync that holds (proof.py)
    checksums        the end of the last frame whose checksum is right
    frame headers    the end of the last frame that joins on; if it spans pages, none of them may be empty,
                     for a page that was lost reads as zeros (Catalog.recoverStopPosition)

A torn tail has nothing valid behind it. Where a frame is bad and whole frames follow, the recording is not
torn but damaged, and is not cut. Unlike the reference, a padding frame may lie bare at the end (its body is
never written), and a frame that misses a page is cut off rather than left to an operator to confirm.
"""

import zlib
from dataclasses import dataclass

import numpy as np

from cluster.archive.proof import Proof
from cluster.archive.segments import Segments
from cluster.archive.walk import CHUNK, FrameWalk, log_params, next_frame_after
from cluster.errors import LogDamaged
from cluster.log.checksum import Checksum, verify_checksums
from cluster.log.runs import last_frame
from cluster.protocol.catalog import RecordingDescriptor
from cluster.protocol.frame import TYPE_PAD

PAGE = 4096


@dataclass(frozen=True, slots=True)
class Recovered:
    """The end that was found, by which witness, and what of the files behind it was given up.

    From ``unsure_from`` on the bytes were read well, and may be in the cache alone: a sync of them failed, or
    never happened, before the process died.
    """

    recording_id: int
    stop_position: int
    witness: str
    cut_at: str = ""
    unsure_from: int = -1


def find_stop(
    segments: Segments,
    descriptor: RecordingDescriptor,
    proof: Proof | None,
    checksum: Checksum | None,
    *,
    file_sync_level: int,
) -> Recovered:
    """The end of a recording whose catalog entry has none. Changes nothing.

    Raises LogDamaged when a segment is missing, and when valid frames follow a bad one, unless it
    is one that was never written and nothing was ever synced (level 0: a power cut may lose any page).
    """
    recording_id, start = descriptor.recording_id, descriptor.start_position
    first = segments.base_of(start)
    bases = [base for base in segments.bases() if base >= first]
    end = bases[-1] + segments.segment_length if bases else start
    if proof is not None and (proof.from_position > end or (proof.is_done and proof.to_position > end)):
        lost = segments.path(segments.base_of(max(end, start)))
        raise LogDamaged(lost, None, f"the segment file is missing, {proof.to_position} was synced")
    if not bases:
        return Recovered(recording_id, start, "no segment")
    for expected in range(first, bases[-1], segments.segment_length):
        if expected not in bases:
            raise LogDamaged(segments.path(expected), None, "the segment file is missing")
    if proof is not None and start <= proof.from_position <= proof.to_position <= end:
        return _proven_stop(segments, recording_id, proof)
    return _walked_stop(segments, descriptor, checksum, max(start, bases[-1]), end, file_sync_level)


def held_position(segments: Segments, proof: Proof | None) -> int | None:
    """Up to where a recording that never stopped was synced, or beyond, however damaged; None: nobody knows.

    Before a sync the newest slot says what that is to cover; only bytes that can be read, and are not those,
    show that it never returned.
    """
    if proof is None or proof.from_position > proof.to_position:
        return None
    try:
        is_unfinished = not proof.is_done and _crc_of(segments, proof) != proof.data_crc
    except (LogDamaged, OSError):
        is_unfinished = False
    return proof.from_position if is_unfinished else proof.to_position


def _crc_of(segments: Segments, proof: Proof) -> int:
    """CRC-32 of the bytes that the proof is about, as they are now."""
    crc, position = 0, proof.from_position
    while position < proof.to_position:
        data = np.zeros(min(CHUNK, proof.to_position - position), np.uint8)
        segments.read_into(position, data)
        crc = zlib.crc32(data.data, crc)
        position += len(data)
    return crc


def _proven_stop(segments: Segments, recording_id: int, proof: Proof) -> Recovered:
    try:
        crc = _crc_of(segments, proof)
    except LogDamaged:  # the segment that the sync rolled over into is not there
        if proof.is_done:
            raise
        return Recovered(recording_id, proof.from_position, "proof file", "the last sync did not finish")
    if crc == proof.data_crc:
        return Recovered(recording_id, proof.to_position, "proof file", unsure_from=proof.from_position)
    if proof.is_done:
        base = segments.base_of(proof.from_position)
        raise LogDamaged(
            segments.path(base),
            proof.from_position - base,
            f"log positions {proof.from_position} to {proof.to_position} were synced and have changed since: "
            f"expected CRC-32 {proof.data_crc:#010x}, found {crc:#010x}",
        )
    return Recovered(recording_id, proof.from_position, "proof file", "the last sync did not finish")


def _walked_stop(
    segments: Segments,
    descriptor: RecordingDescriptor,
    checksum: Checksum | None,
    begin: int,
    end: int,
    file_sync_level: int,
) -> Recovered:
    params = log_params(descriptor)
    walk = FrameWalk(segments, params, begin, end)
    last_run: tuple[int, np.ndarray] | None = None
    stop, why = begin, ""
    for position, data in walk:
        bad = len(data) if checksum is None else verify_checksums(checksum, data, 0, len(data))
        if bad < len(data):
            stop, why = position + bad, "checksum mismatch"
            break
        last_run = position, data
        stop = position + len(data)
    else:
        why = walk.fault
    if checksum is None and last_run is not None and why == "":
        lost = _misses_a_page(*last_run)
        if lost is not None:
            stop, why = lost, "a page of the last frame is empty"
    if (why or file_sync_level > 0) and next_frame_after(segments, params, stop, end) is not None:
        base = segments.base_of(stop)
        why = why or "nothing was written here"
        raise LogDamaged(
            segments.path(base),
            stop - base,
            f"{why} at log position {stop}, but frames follow: not a torn end",
        )
    witness = "checksums" if checksum is not None else "frame headers"
    return Recovered(descriptor.recording_id, stop, witness, why, unsure_from=begin)


def _misses_a_page(position: int, data: np.ndarray) -> int | None:
    """Position of the last frame of the run when a page that it continues into holds only zeros.

    Segment bases are multiples of the page size, so pages of the file are pages of positions.
    """
    last, header = last_frame(data)
    if header.type == TYPE_PAD:
        return None
    page = (position + last) // PAGE * PAGE + PAGE
    while page < position + len(data):
        begin = page - position
        if not data[begin : begin + PAGE].any():
            return position + last
        page += PAGE
    return None
