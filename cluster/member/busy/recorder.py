"""The end of the recording in a busy turn: written, proven and synced as ``archive/recording.py`` does it.

The same steps in the same order, so that a power cut at any of them finds what it would find there. What
is rare is left to Python by its sign: a segment that ends (ROOM), zeros ahead (PREPARE), a fault (FAILED).
"""

from cluster.archive.proof_slots import (
    DATA_CRC,
    FROM_POSITION,
    MARK_LENGTH,
    MARK_OFFSET,
    SLOT_LENGTH,
    TO_POSITION,
    awaits_single_frames,
    put_mark,
    put_slot,
    put_slot_and_mark,
    says_single_frames,
)
from cluster.archive.recording_words import (
    APPEND_POSITION,
    IS_SINGLE_FRAME,
    SEGMENT_BASE,
    SYNCED_POSITION,
    UNPROVEN_CRC,
    WRITE_BACK_BYTES,
    WRITTEN_BACK,
)
from cluster.log.calls import address_of
from cluster.log.checksum import store
from cluster.log.crc import extend_crc_32
from cluster.log.frames import align_frame
from cluster.log.kernel import routine
from cluster.log.memory import copy_bytes, get_i32
from cluster.member.busy import words as at
from cluster.member.busy.measuring import measure
from cluster.member.busy.system import (
    START_WRITING,
    WRITE_AND_WAIT,
    read_clock,
    sync_file,
    sync_range,
    write_file,
)


@routine
def has_room(t, length):  # type: ignore[no-untyped-def]
    """Whether so many bytes fit the segment, do not fill it, and are not more than a copy has room for."""
    w, r = t.words, t.recording
    return r[APPEND_POSITION] - r[SEGMENT_BASE] + length < w[at.SEGMENT_LENGTH] and length <= t.recorded.size


@routine
def append(t, begin, end):  # type: ignore[no-untyped-def]
    """Write ``log[begin:end]``, whole frames that follow what is recorded; there is room."""
    w, r = t.words, t.recording
    length = end - begin
    offset = r[APPEND_POSITION] - r[SEGMENT_BASE]
    r[IS_SINGLE_FRAME] = (
        w[at.CHECKSUM] != at.NO_CHECKSUM
        and r[APPEND_POSITION] == r[SYNCED_POSITION]
        and align_frame(get_i32(t.log, begin)) == length
    )
    is_awaited = w[at.PROOF] >= 0 and says_single_frames(t.proof) and not r[IS_SINGLE_FRAME]
    if is_awaited and not _await_anything(t):
        return False
    address = address_of(t.log, begin)
    if w[at.CHECKSUM] != at.NO_CHECKSUM:
        copy_bytes(t.recorded, 0, t.log, begin, length)
        store(t.recorded, 0, length, w[at.CHECKSUM])
        address = address_of(t.recorded, 0)
    if not write_file(t, w[at.SEGMENT], address, length, offset):
        return False
    if w[at.PROOF] >= 0:
        if w[at.CHECKSUM] != at.NO_CHECKSUM:
            r[UNPROVEN_CRC] = extend_crc_32(r[UNPROVEN_CRC], t.recorded, 0, length)
        else:
            r[UNPROVEN_CRC] = extend_crc_32(r[UNPROVEN_CRC], t.log, begin, end)
    r[APPEND_POSITION] += length
    if r[APPEND_POSITION] - r[WRITTEN_BACK] >= WRITE_BACK_BYTES:
        from_offset = max(r[WRITTEN_BACK], r[SEGMENT_BASE]) - r[SEGMENT_BASE]
        to_offset = r[APPEND_POSITION] - r[SEGMENT_BASE]
        r[WRITTEN_BACK] = r[APPEND_POSITION]
        if not sync_range(t, w[at.SEGMENT], from_offset, to_offset - from_offset, START_WRITING):
            return False
    if r[APPEND_POSITION] >= w[at.PREPARE_AT]:
        w[at.REASON] |= at.PREPARE
    if w[at.SYNC_LEVEL] == 0:
        r[SYNCED_POSITION] = r[APPEND_POSITION]
        t.counters[w[at.POSITION_COUNTER]] = r[SYNCED_POSITION]
    return True


@routine
def sync(t):  # type: ignore[no-untyped-def]
    """Keep the sync level's promise for all that was appended."""
    w, r = t.words, t.recording
    if r[SYNCED_POSITION] == r[APPEND_POSITION]:
        return True
    began_ns = read_clock(t)
    has_proof = w[at.PROOF] >= 0
    is_slot_written_after = has_proof and awaits_single_frames(t.proof)
    if has_proof and not is_slot_written_after and not _hand_over(t):
        return False
    if not sync_file(t, w[at.SEGMENT], w[at.SYNC_LEVEL] > 1):
        return False
    if is_slot_written_after:
        if not _write_slot_and_mark(t):
            return False
    elif has_proof and not _done(t):
        return False
    measure(t, w[at.SYNC_TIME], read_clock(t) - began_ns)
    r[SYNCED_POSITION] = r[APPEND_POSITION]
    r[UNPROVEN_CRC] = 0
    t.counters[w[at.POSITION_COUNTER]] = r[SYNCED_POSITION]
    return True


@routine
def _hand_over(t):  # type: ignore[no-untyped-def]
    """Have the device write what was appended, and the slot about it, before both are synced."""
    w, r = t.words, t.recording
    begin = max(r[SYNCED_POSITION] - r[SEGMENT_BASE], 0)
    length = r[APPEND_POSITION] - r[SEGMENT_BASE] - begin
    if not sync_range(t, w[at.SEGMENT], begin, length, START_WRITING):
        return False
    r[WRITTEN_BACK] = r[APPEND_POSITION]
    checksum = w[at.CHECKSUM_CODE] if r[IS_SINGLE_FRAME] else 0
    return _write_slot(t, r[SYNCED_POSITION], r[APPEND_POSITION], r[UNPROVEN_CRC], checksum)


@routine
def _await_anything(t):  # type: ignore[no-untyped-def]
    """Say durably how far the recording is whole, before anything but a single frame is written."""
    p = t.proof
    return (
        _write_slot(t, p[FROM_POSITION], p[TO_POSITION], p[DATA_CRC], 0)
        and sync_file(t, t.words[at.PROOF], False)
        and _done(t)
    )


@routine
def _write_slot(t, from_position, to_position, crc, checksum):  # type: ignore[no-untyped-def]
    """Hand the next slot of the proof file to the device; the sync of the segment makes it durable."""
    w = t.words
    offset = put_slot(t.proof, t.scratch, at.PROOF_AT, from_position, to_position, crc, checksum)
    if not write_file(t, w[at.PROOF], address_of(t.scratch, at.PROOF_AT), SLOT_LENGTH, offset):
        return False
    if w[at.PROOF_IS_IN_PLACE]:
        return sync_range(t, w[at.PROOF], offset, SLOT_LENGTH, WRITE_AND_WAIT)
    return sync_file(t, w[at.PROOF], False)


@routine
def _done(t):  # type: ignore[no-untyped-def]
    """The sync that the last slot was about has returned."""
    offset = put_mark(t.proof, t.scratch, at.PROOF_AT)
    return write_file(t, t.words[at.PROOF], address_of(t.scratch, at.PROOF_AT), MARK_LENGTH, offset)


@routine
def _write_slot_and_mark(t):  # type: ignore[no-untyped-def]
    """A single frame's sync, which no slot was written for, has returned."""
    r = t.recording
    offset = put_slot_and_mark(
        t.proof, t.scratch, at.PROOF_AT, r[SYNCED_POSITION], r[APPEND_POSITION], r[UNPROVEN_CRC]
    )
    length = MARK_OFFSET + MARK_LENGTH
    return write_file(t, t.words[at.PROOF], address_of(t.scratch, at.PROOF_AT), length, offset)
