"""The end of a recording as it is written, proven and synced: what is frequent, over its tables.

Compiled turns call it, and ``RecordingWriter`` does for Python. What is rare is its caller's: a segment that
ends, zeros ahead, pages to let go of, and what becomes of an error. What writes returns 0, or the number of
the error; then nothing more is to be written.
"""

from cluster.archive.file_calls import START_WRITING, sync_file, sync_range, write_file
from cluster.archive.proof_slots import (
    FILE,
    PAGE,
    PROOF_MODULES,
    await_anything,
    awaits_single_frames,
    says_single_frames,
    write_mark,
    write_slot,
    write_slot_and_mark,
)
from cluster.archive.recording_words import (
    APPEND_POSITION,
    CHECKSUM,
    IS_SINGLE_FRAME,
    SEGMENT,
    SEGMENT_BASE,
    SEGMENT_LENGTH,
    SYNC_LEVEL,
    SYNC_NS,
    SYNCED_POSITION,
    UNPROVEN_CRC,
    WRITTEN_BACK,
)
from cluster.log.calls import CLOCK, address_of, read_monotonic
from cluster.log.checksum import store
from cluster.log.crc import POLYNOMIAL_CRC_32C, extend_crc_32
from cluster.log.frames import align_frame
from cluster.log.kernel import routine
from cluster.log.memory import copy_bytes, get_i32

# What is compiled into a kernel that calls these, beside the modules that all kernels share.
RECORDING_MODULES = (
    "cluster.archive.append_and_sync",
    "cluster.archive.recording_words",
    "cluster.log.checksum",
    *PROOF_MODULES,
)
WRITE_BACK_BYTES = 1024 * 1024  # appended without a sync: let the device begin


@routine
def append_to_segment(t, log, begin, end):  # type: ignore[no-untyped-def]
    """Write ``log[begin:end]``, whole frames that follow what is recorded, as far as the segment goes.

    With checksums they fit ``scratch``: what goes to followers keeps its session ids.
    """
    r = t.words
    r[IS_SINGLE_FRAME] = (
        r[CHECKSUM] != 0
        and r[APPEND_POSITION] == r[SYNCED_POSITION]
        and align_frame(get_i32(log, begin)) == end - begin
    )
    has_proof = t.proof[FILE] >= 0
    if has_proof and says_single_frames(t.proof) and not r[IS_SINGLE_FRAME]:
        error = await_anything(t.proof, t.calls, t.scratch)
        if error != 0:
            return error
    length = min(end - begin, r[SEGMENT_BASE] + r[SEGMENT_LENGTH] - r[APPEND_POSITION])
    if r[CHECKSUM] != 0:
        copy_bytes(t.scratch, 0, log, begin, length)
        store(t.scratch, 0, length, r[CHECKSUM] == POLYNOMIAL_CRC_32C)
        error = _write(t, t.scratch, 0, length)
    else:
        error = _write(t, log, begin, begin + length)
    if error != 0:
        return error
    r[APPEND_POSITION] += length
    if r[APPEND_POSITION] - r[WRITTEN_BACK] >= WRITE_BACK_BYTES:
        error = _write_back(t, max(r[WRITTEN_BACK], r[SEGMENT_BASE]))
    if error == 0 and r[SYNC_LEVEL] == 0:
        r[SYNCED_POSITION] = r[APPEND_POSITION]
    return error


@routine
def sync_segment(t):  # type: ignore[no-untyped-def]
    """Keep the sync level's promise (1 fdatasync, 2 fsync) for all that was appended."""
    r, began_ns = t.words, _clock_ns(t)
    has_proof = t.proof[FILE] >= 0
    is_reported_after = has_proof and awaits_single_frames(t.proof)
    error = 0
    if has_proof and not is_reported_after:
        error = _hand_over(t)
    if error == 0:
        error = sync_file(t.calls, r[SEGMENT], r[SYNC_LEVEL] != 1)
    if error == 0 and is_reported_after:
        error = write_slot_and_mark(
            t.proof, t.calls, t.scratch, r[SYNCED_POSITION], r[APPEND_POSITION], r[UNPROVEN_CRC]
        )
    elif error == 0 and has_proof:
        error = write_mark(t.proof, t.calls, t.scratch)
    if error == 0:
        r[SYNCED_POSITION] = r[APPEND_POSITION]
        r[UNPROVEN_CRC] = 0
        r[SYNC_NS] = _clock_ns(t) - began_ns
    return error


@routine
def _clock_ns(t):  # type: ignore[no-untyped-def]
    return read_monotonic(t.calls, t.scratch, 0) if t.calls[CLOCK] != 0 else 0


@routine
def _write(t, frames, begin, end):  # type: ignore[no-untyped-def]
    """Write the bytes as the file has them.

    A signal may end the process between two pages of a write. What neither checksum nor sync proof shows is
    whole then by the order: the page that what came before ends in is written last.
    """
    r = t.words
    offset = r[APPEND_POSITION] - r[SEGMENT_BASE]
    first, error = end, 0
    if r[SYNC_LEVEL] == 0 and r[CHECKSUM] == 0:
        first = min(begin + PAGE - offset % PAGE, end)
        error = write_file(
            t.calls, r[SEGMENT], address_of(frames, first), end - first, offset + first - begin
        )
    if error == 0:
        error = write_file(t.calls, r[SEGMENT], address_of(frames, begin), first - begin, offset)
    if error == 0 and t.proof[FILE] >= 0:
        r[UNPROVEN_CRC] = extend_crc_32(r[UNPROVEN_CRC], frames, begin, end)
    return error


@routine
def _write_back(t, begin):  # type: ignore[no-untyped-def]
    """Have the device begin to write what was appended from a position of this segment on."""
    r = t.words
    r[WRITTEN_BACK] = r[APPEND_POSITION]
    length = r[APPEND_POSITION] - begin
    return sync_range(t.calls, r[SEGMENT], begin - r[SEGMENT_BASE], length, START_WRITING)


@routine
def _hand_over(t):  # type: ignore[no-untyped-def]
    """Have the device write what was appended, and the slot about it, before both are synced."""
    r = t.words
    error = _write_back(t, max(r[SYNCED_POSITION], r[SEGMENT_BASE]))
    if error != 0:
        return error
    checksum = r[CHECKSUM] if r[IS_SINGLE_FRAME] else 0
    return write_slot(
        t.proof, t.calls, t.scratch, r[SYNCED_POSITION], r[APPEND_POSITION], r[UNPROVEN_CRC], checksum
    )
