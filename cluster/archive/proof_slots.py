"""How a proof file (``sync_proof.py``) is written: which slot is next, and its bytes, over words.

``proof`` has the file, its newest slot, and how many single frames were synced in a row. ``calls`` has
addresses (``log/calls.py``), ``scratch`` room for a slot with its mark. What writes returns 0, or the number
of the error that it met.
"""

from cluster.archive.file_calls import WRITE_AND_WAIT, sync_file, sync_range, write_file
from cluster.log.calls import address_of
from cluster.log.crc import crc_32
from cluster.log.kernel import routine
from cluster.log.memory import put_i32, put_i64, zero_bytes

SEQUENCE, FROM_POSITION, TO_POSITION, SESSION_ID, DATA_CRC, CHECKSUM = range(6)  # CHECKSUM 0: none
SINGLE_FRAMES, SINGLE_FRAMES_MIN = 6, 7
FILE, IS_IN_PLACE = 8, 9  # descriptor, -1: there is none; its pages can be pushed
PROOF_WORDS = 10

# What is compiled into a kernel that calls these, beside the modules that all kernels share.
PROOF_MODULES = ("cluster.archive.proof_slots", "cluster.archive.file_calls")

MAGIC = 0x3246_5250  # "PRF2"
PAGE = 4096  # from one slot to the other
SLOT_LENGTH, MARK_LENGTH = 44, 28
MARK_OFFSET = 512  # in the page of its slot, and a sector of its own


@routine
def says_single_frames(proof):  # type: ignore[no-untyped-def]
    """Whether the newest slot says that nothing but single frames follows."""
    return proof[CHECKSUM] != 0


@routine
def awaits_single_frames(proof):  # type: ignore[no-untyped-def]
    """Whether both slots say so, durably: then their syncs need wait for none."""
    return proof[SINGLE_FRAMES] > proof[SINGLE_FRAMES_MIN]


@routine
def write_slot(proof, calls, scratch, from_position, to_position, crc, checksum):  # type: ignore[no-untyped-def]
    """Hand the next slot to the device; the next sync of any file makes it durable."""
    offset = put_slot(proof, scratch, from_position, to_position, crc, checksum)
    error = write_file(calls, proof[FILE], address_of(scratch, 0), SLOT_LENGTH, offset)
    if error != 0:
        return error
    if proof[IS_IN_PLACE]:
        return sync_range(calls, proof[FILE], offset, SLOT_LENGTH, WRITE_AND_WAIT)
    return sync_file(calls, proof[FILE], False)


@routine
def write_mark(proof, calls, scratch):  # type: ignore[no-untyped-def]
    """The sync that the newest slot is about has returned. To be written before that is acknowledged."""
    offset = _put_mark(proof, scratch, 0)
    return write_file(calls, proof[FILE], address_of(scratch, 0), MARK_LENGTH, offset)


@routine
def write_slot_and_mark(proof, calls, scratch, from_position, to_position, crc):  # type: ignore[no-untyped-def]
    """A single frame's sync, which no slot was written for, has returned. As ``write_mark``."""
    zero_bytes(scratch, 0, MARK_OFFSET)
    offset = _put_next(proof, scratch, from_position, to_position, crc, proof[CHECKSUM])
    _put_mark(proof, scratch, MARK_OFFSET)
    return write_file(calls, proof[FILE], address_of(scratch, 0), MARK_OFFSET + MARK_LENGTH, offset)


@routine
def await_anything(proof, calls, scratch):  # type: ignore[no-untyped-def]
    """Say durably, as the newest slot did, how far the recording is whole, before anything is written."""
    error = write_slot(proof, calls, scratch, proof[FROM_POSITION], proof[TO_POSITION], proof[DATA_CRC], 0)
    if error == 0:
        error = sync_file(calls, proof[FILE], False)
    if error == 0:
        error = write_mark(proof, calls, scratch)
    return error


@routine
def put_slot(proof, out, from_position, to_position, crc, checksum):  # type: ignore[no-untyped-def]
    """The next slot, and where in the file it goes; ``checksum`` of the frame where that is a single one."""
    proof[SINGLE_FRAMES] = 0 if checksum == 0 else proof[SINGLE_FRAMES] + 1
    if proof[SINGLE_FRAMES] < proof[SINGLE_FRAMES_MIN]:
        checksum = 0
    return _put_next(proof, out, from_position, to_position, crc, checksum)


@routine
def _put_mark(proof, out, at):  # type: ignore[no-untyped-def]
    put_i32(out, at, MAGIC)
    put_i32(out, at + 4, 0)
    put_i64(out, at + 8, proof[SEQUENCE])
    put_i64(out, at + 16, proof[TO_POSITION])
    put_i32(out, at + 24, proof[CHECKSUM])
    put_i32(out, at + 4, crc_32(out, at, at + MARK_LENGTH))
    return (proof[SEQUENCE] & 1) * PAGE + MARK_OFFSET


@routine
def _put_next(proof, out, from_position, to_position, crc, checksum):  # type: ignore[no-untyped-def]
    proof[SEQUENCE] += 1
    proof[FROM_POSITION] = from_position
    proof[TO_POSITION] = to_position
    proof[DATA_CRC] = crc
    proof[CHECKSUM] = checksum
    put_i32(out, 0, MAGIC)
    put_i32(out, 4, 0)
    put_i64(out, 8, proof[SEQUENCE])
    put_i64(out, 16, from_position)
    put_i64(out, 24, to_position)
    put_i32(out, 32, proof[SESSION_ID])
    put_i32(out, 36, crc)
    put_i32(out, 40, checksum)
    put_i32(out, 4, crc_32(out, 0, SLOT_LENGTH))
    return (proof[SEQUENCE] & 1) * PAGE
