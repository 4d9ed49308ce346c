"""What is written to a proof file (``sync_proof.py``): which slot is next, and its bytes, over words.

``proof`` has the newest slot and how many single frames were synced in a row. ``out`` takes the bytes, and
what is returned is where in the file they go. Python writes them there, and so do compiled turns.
"""

from cluster.log.crc import crc_32
from cluster.log.kernel import routine
from cluster.log.memory import put_i32, put_i64, zero_bytes

SEQUENCE, FROM_POSITION, TO_POSITION, SESSION_ID, DATA_CRC, CHECKSUM = range(6)  # CHECKSUM 0: none
SINGLE_FRAMES, SINGLE_FRAMES_MIN = 6, 7
PROOF_WORDS = 8

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
def put_slot(proof, out, at, from_position, to_position, crc, checksum):  # type: ignore[no-untyped-def]
    """The next slot, ahead of its sync; ``checksum`` of the frame where that is a single one, else 0."""
    proof[SINGLE_FRAMES] = 0 if checksum == 0 else proof[SINGLE_FRAMES] + 1
    if proof[SINGLE_FRAMES] < proof[SINGLE_FRAMES_MIN]:
        checksum = 0
    return _put_next(proof, out, at, from_position, to_position, crc, checksum)


@routine
def put_mark(proof, out, at):  # type: ignore[no-untyped-def]
    """The sync that the newest slot is about has returned."""
    put_i32(out, at, MAGIC)
    put_i32(out, at + 4, 0)
    put_i64(out, at + 8, proof[SEQUENCE])
    put_i64(out, at + 16, proof[TO_POSITION])
    put_i32(out, at + 24, proof[CHECKSUM])
    put_i32(out, at + 4, crc_32(out, at, at + MARK_LENGTH))
    return (proof[SEQUENCE] & 1) * PAGE + MARK_OFFSET


@routine
def put_slot_and_mark(proof, out, at, from_position, to_position, crc):  # type: ignore[no-untyped-def]
    """A single frame's sync, which no slot was written for, has returned."""
    zero_bytes(out, at, MARK_OFFSET)
    offset = _put_next(proof, out, at, from_position, to_position, crc, proof[CHECKSUM])
    put_mark(proof, out, at + MARK_OFFSET)
    return offset


@routine
def _put_next(proof, out, at, from_position, to_position, crc, checksum):  # type: ignore[no-untyped-def]
    proof[SEQUENCE] += 1
    proof[FROM_POSITION] = from_position
    proof[TO_POSITION] = to_position
    proof[DATA_CRC] = crc
    proof[CHECKSUM] = checksum
    put_i32(out, at, MAGIC)
    put_i32(out, at + 4, 0)
    put_i64(out, at + 8, proof[SEQUENCE])
    put_i64(out, at + 16, from_position)
    put_i64(out, at + 24, to_position)
    put_i32(out, at + 32, proof[SESSION_ID])
    put_i32(out, at + 36, crc)
    put_i32(out, at + 40, checksum)
    put_i32(out, at + 4, crc_32(out, at, at + SLOT_LENGTH))
    return (proof[SEQUENCE] & 1) * PAGE
