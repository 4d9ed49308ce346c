"""One flipped bit is put back by the CRC over what it is in, as a memory with ECC does it.

Within ``LENGTH_MAX`` bytes any two runs of bytes that have the right CRC-32 or CRC-32C differ in five bits
or more, those of the checksum included (Koopman, 32-Bit Cyclic Redundancy Codes for Internet Applications).
So where one bit has changed there is one way back, and where two or three have there is none: nothing is
taken for what it never was.
"""

from collections.abc import Callable, Iterable

LENGTH_MAX = 2974 // 8  # bytes, with the checksum


def without_flip(data: bytes, bits: Iterable[int], is_right: Callable[[bytes], bool]) -> bytes | None:
    """``data`` with the one of its ``bits`` turned that makes it right; None where none does."""
    turned = bytearray(data)
    for bit in bits:
        turned[bit // 8] ^= 1 << bit % 8
        if is_right(bytes(turned)):
            return bytes(turned)
        turned[bit // 8] ^= 1 << bit % 8
    return None
