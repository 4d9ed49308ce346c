"""Where a recording ends after an unclean stop, found from its files: there its torn tail is cut.

There are three kinds of evidence. The strongest that is there decides:

    sync proof       of our own recordings: the end of the last sync that holds, and of the frames with
                     checksums after it (sync_proof.py)
    checksums        the end of the last frame whose checksum is right
    frame headers    the end of the last frame that joins on; if it spans pages, none of them may be empty,
                     for a page that was lost reads as zeros (Catalog.recoverStopPosition). Up to where all
                     is known to be whole they may hold zeros

A torn tail has nothing valid after it (``Recording.cut_tail`` cuts it). Where a frame is bad and whole frames
follow, the recording is not torn but damaged, and is not cut. Unlike the reference, a padding frame may lie
bare at the end (its body is never written), and a frame that misses a page is cut off rather than left to an
operator to confirm.
"""

import zlib
from dataclasses import dataclass

import numpy as np

from cluster.archive.frame_walk import CHUNK, FrameWalk, log_params, next_frame_after
from cluster.archive.segments import PAGE, Segments
from cluster.archive.sync_proof import SyncProof
from cluster.errors import LogDamaged
from cluster.log.checksum import Checksum, verify_checksums
from cluster.log.runs import last_frame
from cluster.protocol.catalog import RecordingDescriptor
from cluster.protocol.frame import FRAME_ALIGNMENT, TYPE_PAD


@dataclass(frozen=True, slots=True)
class RecordingEnd:
    """The end that was found, by which evidence, and the ``fault`` of what follows in the files, "" for none.

    Bytes from ``unsynced_from`` on can be read, but may be in the cache alone: a sync of them failed, or
    never happened, before the process died. -1: there are none.
    """

    recording_id: int
    stop_position: int
    evidence: str
    fault: str = ""
    unsynced_from: int = -1

    def __str__(self) -> str:
        end = f"recording {self.recording_id} ends at {self.stop_position} by its {self.evidence}"
        return f"{end}: {self.fault}" if self.fault else end


def find_end(
    segments: Segments,
    descriptor: RecordingDescriptor,
    proof: SyncProof | None,
    checksum: Checksum | None,
    *,
    file_sync_level: int,
    whole_to: int = 0,
) -> RecordingEnd:
    """The end of a recording whose catalog entry has none. Changes nothing.

    Frames that end at ``whole_to``, or before, are known to have all their pages.
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
        return RecordingEnd(recording_id, start, "no segment")
    for expected in range(first, bases[-1], segments.segment_length):
        if expected not in bases:
            raise LogDamaged(segments.path(expected), None, "the segment file is missing")
    if proof is not None and start <= proof.from_position <= proof.to_position <= end:
        return _proven_end(segments, descriptor, proof)
    return _walked_end(
        segments,
        descriptor,
        checksum,
        max(start, bases[-1]),
        end,
        file_sync_level=file_sync_level,
        whole_to=whole_to,
    )


def acknowledged_end(
    segments: Segments, descriptor: RecordingDescriptor, proof: SyncProof | None
) -> int | None:
    """The highest position of a recording without an end that may have been acknowledged; None: not known.

    Only what is synced is acknowledged. Before a sync the newest slot says what it is to cover; only bytes
    that can be read, and are not those, show that the sync never returned. Frames with checksums may follow.
    """
    if proof is None or proof.from_position > proof.to_position:
        return None
    follows = _frame_after(segments, descriptor, proof)
    if follows is not None:
        return _last_frame_end(segments, descriptor, follows)
    try:
        is_unfinished = not proof.is_done and has_changed(segments, proof)
    except (LogDamaged, OSError):
        is_unfinished = False
    return proof.from_position if is_unfinished else proof.to_position


def _frame_after(segments: Segments, descriptor: RecordingDescriptor, proof: SyncProof) -> int | None:
    """Where the first frame is after what the newest slot, whose sync returned, is about; or None."""
    if proof.checksum is None:
        return None
    begin = proof.to_position - FRAME_ALIGNMENT
    try:
        return next_frame_after(segments, log_params(descriptor), begin, _end_of_files(segments, proof))
    except OSError:
        return proof.to_position  # maybe


def _last_frame_end(segments: Segments, descriptor: RecordingDescriptor, position: int) -> int:
    """End of the last frame from ``position`` on, whatever is between."""
    params, end = log_params(descriptor), segments.bases()[-1] + segments.segment_length
    found: int | None = position
    while found is not None:
        walk = FrameWalk(segments, params, found, end)
        try:
            for run_position, run in walk:
                position = run_position + len(run)
            found = next_frame_after(segments, params, walk.position, end)
        except OSError:
            return end
    return position


def _end_of_files(segments: Segments, proof: SyncProof) -> int:
    bases = segments.bases()
    return bases[-1] + segments.segment_length if bases else proof.to_position


def has_changed(segments: Segments, proof: SyncProof) -> bool:
    """Whether the bytes that the proof is about are others now. Raises what reading raises."""
    return _crc_of(segments, proof) != proof.data_crc


def _crc_of(segments: Segments, proof: SyncProof) -> int:
    """CRC-32 of the bytes that the proof is about, as they are now."""
    crc, position = 0, proof.from_position
    while position < proof.to_position:
        data = np.zeros(min(CHUNK, proof.to_position - position), np.uint8)
        segments.read_into(position, data)
        crc = zlib.crc32(data.data, crc)
        position += len(data)
    return crc


def _proven_end(segments: Segments, descriptor: RecordingDescriptor, proof: SyncProof) -> RecordingEnd:
    recording_id = descriptor.recording_id
    unfinished = RecordingEnd(recording_id, proof.from_position, "sync proof", "the last sync did not finish")
    has_returned = proof.is_done or _frame_after(segments, descriptor, proof) is not None
    try:
        crc = _crc_of(segments, proof)
    except LogDamaged:  # the segment that the sync rolled over into is not there
        if has_returned:
            raise
        return unfinished
    if crc == proof.data_crc:
        stop, fault = proof.to_position, ""
        if proof.checksum is not None:
            end = _end_of_files(segments, proof)
            walked = _walked_end(segments, descriptor, proof.checksum, stop, end, file_sync_level=1)
            stop, fault = walked.stop_position, walked.fault
        return RecordingEnd(recording_id, stop, "sync proof", fault, unsynced_from=proof.from_position)
    if has_returned:
        raise segments.damage_at(
            proof.from_position,
            f"log positions {proof.from_position} to {proof.to_position} were synced and have changed since: "
            f"expected CRC-32 {proof.data_crc:#010x}, found {crc:#010x}",
        )
    return unfinished


def _walked_end(
    segments: Segments,
    descriptor: RecordingDescriptor,
    checksum: Checksum | None,
    begin: int,
    end: int,
    *,
    file_sync_level: int,
    whole_to: int = 0,
) -> RecordingEnd:
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
    if checksum is None and last_run is not None and why == "" and stop > whole_to:
        lost = _misses_a_page(*last_run)
        if lost is not None:
            stop, why = lost, "a page of the last frame is empty"
    if (why or file_sync_level > 0) and next_frame_after(segments, params, stop, end) is not None:
        why = why or "nothing was written here"
        raise segments.damage_at(stop, f"{why} at log position {stop}, but frames follow: not a torn end")
    evidence = "checksums" if checksum is not None else "frame headers"
    return RecordingEnd(descriptor.recording_id, stop, evidence, why, unsynced_from=begin)


def _misses_a_page(position: int, data: np.ndarray) -> int | None:
    """Position of the run's last frame when a page that it continues into holds only zeros."""
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
