"""The end of the recording in a busy turn: written, proven and synced as ``archive/recording.py`` does it.

The same steps in the same order, so that a power cut at any of them finds what it would find there. What
is rare is left to Python by its sign: a segment that ends (ROOM), zeros ahead (PREPARE), a fault (FAILED).
"""

from cluster.log.calls import address_of
from cluster.log.checksum import store
from cluster.log.crc import crc_32, extend_crc_32
from cluster.log.frames import align_frame
from cluster.log.kernel import routine
from cluster.log.memory import copy_bytes, get_i32, put_i32, put_i64, zero_bytes
from cluster.member.busy.measuring import measure
from cluster.member.busy.system import (
    START_WRITING,
    WRITE_AND_WAIT,
    read_clock,
    sync_file,
    sync_range,
    write_file,
)
from cluster.member.busy.words import (
    APPEND_POSITION,
    CHECKSUM,
    CHECKSUM_CODE,
    IS_SINGLE_FRAME,
    NO_CHECKSUM,
    POSITION_COUNTER,
    PREPARE,
    PREPARE_AT,
    PROOF,
    PROOF_AT,
    PROOF_CHECKSUM,
    PROOF_CRC,
    PROOF_FROM,
    PROOF_IS_IN_PLACE,
    PROOF_SEQUENCE,
    PROOF_SESSION,
    PROOF_TO,
    REASON,
    SEGMENT,
    SEGMENT_BASE,
    SEGMENT_LENGTH,
    SINGLE_FRAMES,
    SINGLE_FRAMES_MIN,
    SYNC_LEVEL,
    SYNC_TIME,
    SYNCED_POSITION,
    UNPROVEN_CRC,
    WRITTEN_BACK,
)

WRITE_BACK_BYTES = 1024 * 1024
PROOF_MAGIC = 0x3246_5250
PROOF_PAGE = 4096
SLOT_LENGTH, DONE_LENGTH, DONE_OFFSET = 44, 28, 512


@routine
def has_room(t, length):  # type: ignore[no-untyped-def]
    """Whether so many bytes fit the segment, do not fill it, and are not more than a copy has room for."""
    w = t.words
    return w[APPEND_POSITION] - w[SEGMENT_BASE] + length < w[SEGMENT_LENGTH] and length <= t.recorded.size


@routine
def append(t, begin, end):  # type: ignore[no-untyped-def]
    """Write ``log[begin:end]``, whole frames that follow what is recorded; there is room."""
    w = t.words
    length = end - begin
    offset = w[APPEND_POSITION] - w[SEGMENT_BASE]
    w[IS_SINGLE_FRAME] = (
        w[CHECKSUM] != NO_CHECKSUM
        and w[APPEND_POSITION] == w[SYNCED_POSITION]
        and align_frame(get_i32(t.log, begin)) == length
    )
    if w[PROOF] >= 0 and w[PROOF_CHECKSUM] != 0 and not w[IS_SINGLE_FRAME] and not _await_anything(t):
        return False
    address = address_of(t.log, begin)
    if w[CHECKSUM] != NO_CHECKSUM:
        copy_bytes(t.recorded, 0, t.log, begin, length)
        store(t.recorded, 0, length, w[CHECKSUM])
        address = address_of(t.recorded, 0)
    if not write_file(t, w[SEGMENT], address, length, offset):
        return False
    if w[PROOF] >= 0:
        if w[CHECKSUM] != NO_CHECKSUM:
            w[UNPROVEN_CRC] = extend_crc_32(w[UNPROVEN_CRC], t.recorded, 0, length)
        else:
            w[UNPROVEN_CRC] = extend_crc_32(w[UNPROVEN_CRC], t.log, begin, end)
    w[APPEND_POSITION] += length
    if w[APPEND_POSITION] - w[WRITTEN_BACK] >= WRITE_BACK_BYTES:
        from_offset = max(w[WRITTEN_BACK], w[SEGMENT_BASE]) - w[SEGMENT_BASE]
        to_offset = w[APPEND_POSITION] - w[SEGMENT_BASE]
        w[WRITTEN_BACK] = w[APPEND_POSITION]
        if not sync_range(t, w[SEGMENT], from_offset, to_offset - from_offset, START_WRITING):
            return False
    if w[APPEND_POSITION] >= w[PREPARE_AT]:
        w[REASON] |= PREPARE
    if w[SYNC_LEVEL] == 0:
        w[SYNCED_POSITION] = w[APPEND_POSITION]
        t.counters[w[POSITION_COUNTER]] = w[SYNCED_POSITION]
    return True


@routine
def sync(t):  # type: ignore[no-untyped-def]
    """Keep the sync level's promise for all that was appended."""
    w = t.words
    if w[SYNCED_POSITION] == w[APPEND_POSITION]:
        return True
    began_ns = read_clock(t)
    has_proof = w[PROOF] >= 0
    is_slot_written_after = has_proof and w[SINGLE_FRAMES] > w[SINGLE_FRAMES_MIN]
    if has_proof and not is_slot_written_after and not _hand_over(t):
        return False
    if not sync_file(t, w[SEGMENT], w[SYNC_LEVEL] > 1):
        return False
    if is_slot_written_after:
        if not _write_slot_and_mark(t):
            return False
    elif has_proof and not _done(t):
        return False
    measure(t, w[SYNC_TIME], read_clock(t) - began_ns)
    w[SYNCED_POSITION] = w[APPEND_POSITION]
    w[UNPROVEN_CRC] = 0
    t.counters[w[POSITION_COUNTER]] = w[SYNCED_POSITION]
    return True


@routine
def _hand_over(t):  # type: ignore[no-untyped-def]
    """Have the device write what was appended, and the slot about it, before both are synced."""
    w = t.words
    begin = max(w[SYNCED_POSITION] - w[SEGMENT_BASE], 0)
    length = w[APPEND_POSITION] - w[SEGMENT_BASE] - begin
    if not sync_range(t, w[SEGMENT], begin, length, START_WRITING):
        return False
    w[WRITTEN_BACK] = w[APPEND_POSITION]
    checksum = w[CHECKSUM_CODE] if w[IS_SINGLE_FRAME] else 0
    return _write_slot(t, w[SYNCED_POSITION], w[APPEND_POSITION], w[UNPROVEN_CRC], checksum)


@routine
def _await_anything(t):  # type: ignore[no-untyped-def]
    """Say durably how far the recording is whole, before anything but a single frame is written."""
    w = t.words
    return (
        _write_slot(t, w[PROOF_FROM], w[PROOF_TO], w[PROOF_CRC], 0)
        and sync_file(t, w[PROOF], False)
        and _done(t)
    )


@routine
def _write_slot(t, from_position, to_position, crc, checksum):  # type: ignore[no-untyped-def]
    """Hand the next slot of the proof file to the device; the sync of the segment makes it durable."""
    w = t.words
    w[SINGLE_FRAMES] = 0 if checksum == 0 else w[SINGLE_FRAMES] + 1
    if w[SINGLE_FRAMES] < w[SINGLE_FRAMES_MIN]:
        checksum = 0
    _take_turn(t, from_position, to_position, crc, checksum)
    _put_slot(t)
    offset = (w[PROOF_SEQUENCE] & 1) * PROOF_PAGE
    if not write_file(t, w[PROOF], address_of(t.scratch, PROOF_AT), SLOT_LENGTH, offset):
        return False
    if w[PROOF_IS_IN_PLACE]:
        return sync_range(t, w[PROOF], offset, SLOT_LENGTH, WRITE_AND_WAIT)
    return sync_file(t, w[PROOF], False)


@routine
def _take_turn(t, from_position, to_position, crc, checksum):  # type: ignore[no-untyped-def]
    w = t.words
    w[PROOF_SEQUENCE] += 1
    w[PROOF_FROM] = from_position
    w[PROOF_TO] = to_position
    w[PROOF_CRC] = crc
    w[PROOF_CHECKSUM] = checksum


@routine
def _put_slot(t):  # type: ignore[no-untyped-def]
    w, out = t.words, t.scratch
    put_i32(out, PROOF_AT, PROOF_MAGIC)
    put_i32(out, PROOF_AT + 4, 0)
    put_i64(out, PROOF_AT + 8, w[PROOF_SEQUENCE])
    put_i64(out, PROOF_AT + 16, w[PROOF_FROM])
    put_i64(out, PROOF_AT + 24, w[PROOF_TO])
    put_i32(out, PROOF_AT + 32, w[PROOF_SESSION])
    put_i32(out, PROOF_AT + 36, w[PROOF_CRC])
    put_i32(out, PROOF_AT + 40, w[PROOF_CHECKSUM])
    put_i32(out, PROOF_AT + 4, crc_32(out, PROOF_AT, PROOF_AT + SLOT_LENGTH))


@routine
def _put_done(t, at):  # type: ignore[no-untyped-def]
    w, out = t.words, t.scratch
    put_i32(out, at, PROOF_MAGIC)
    put_i32(out, at + 4, 0)
    put_i64(out, at + 8, w[PROOF_SEQUENCE])
    put_i64(out, at + 16, w[PROOF_TO])
    put_i32(out, at + 24, w[PROOF_CHECKSUM])
    put_i32(out, at + 4, crc_32(out, at, at + DONE_LENGTH))


@routine
def _done(t):  # type: ignore[no-untyped-def]
    """The sync that the last slot was about has returned."""
    _put_done(t, PROOF_AT)
    offset = (t.words[PROOF_SEQUENCE] & 1) * PROOF_PAGE + DONE_OFFSET
    return write_file(t, t.words[PROOF], address_of(t.scratch, PROOF_AT), DONE_LENGTH, offset)


@routine
def _write_slot_and_mark(t):  # type: ignore[no-untyped-def]
    """A single frame's sync, which no slot was written for, has returned."""
    w = t.words
    _take_turn(t, w[SYNCED_POSITION], w[APPEND_POSITION], w[UNPROVEN_CRC], w[PROOF_CHECKSUM])
    zero_bytes(t.scratch, PROOF_AT, DONE_OFFSET)
    _put_slot(t)
    _put_done(t, PROOF_AT + DONE_OFFSET)
    offset = (w[PROOF_SEQUENCE] & 1) * PROOF_PAGE
    return write_file(t, w[PROOF], address_of(t.scratch, PROOF_AT), DONE_OFFSET + DONE_LENGTH, offset)
