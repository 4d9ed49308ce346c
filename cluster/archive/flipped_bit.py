"""One flipped bit is put back by the CRC over what it is in, as a memory with ECC does it.

Within ``LENGTH_MAX`` bytes any two runs of bytes that have the right CRC-32 or CRC-32C differ in five bits
or more, those of the checksum included (Koopman, 32-Bit Cyclic Redundancy Codes for Internet Applications).
So where one bit has changed there is one way back, and where two or three have there is none: nothing is
taken for what it never was.

A CRC is linear: by what a flipped bit changes it depends on the number of bits that follow, and on nothing
else. So the place of a flip is looked up, and what no flip explains costs no more than what one does.
"""

from functools import cache

import numpy as np

from cluster.log.checksum import Checksum, compute

LENGTH_MAX = 2974 // 8  # bytes, with the checksum


def flipped_bit(kind: Checksum, data: bytes, checksum: int) -> int | None:
    """The bit of ``data``, from 0, that turned gives it this ``checksum``, an i32; None where none does."""
    assert len(data) <= LENGTH_MAX
    difference = compute(kind, np.frombuffer(data, np.uint8), 0, len(data)) ^ checksum
    bits_after = _bits_after(kind).get(difference, 8 * len(data))
    return 8 * len(data) - 1 - bits_after if bits_after < 8 * len(data) else None


@cache
def _bits_after(kind: Checksum) -> dict[int, int]:
    """How many bits follow the one that changes a checksum by the key when it flips."""
    zeros = np.zeros(LENGTH_MAX, np.uint8)
    unchanged = compute(kind, zeros, 0, LENGTH_MAX)
    found = {}
    for bit in range(8 * LENGTH_MAX):
        zeros[bit // 8] = 1 << bit % 8
        found[compute(kind, zeros, 0, LENGTH_MAX) ^ unchanged] = 8 * LENGTH_MAX - 1 - bit
        zeros[bit // 8] = 0
    return found
