"""Data frames and positions: how messages lie in a term, a segment and on a link.

    0         4 5 6     8           12          16         20       24               32
    | length i4 |v|f|type|term offset|session id |stream id |term id | reserved value i8| payload ... pad

``length`` counts header and payload, not the padding to the next multiple of 32. A length <= 0 says that
nothing was written here yet. Of a log the types 0 (padding) and 1 (data) occur.
Sources: DataHeaderFlyweight, FrameDescriptor, LogBufferDescriptor, ExclusivePublication of Aeron.
"""

import struct
from typing import Final, NamedTuple

from cluster.protocol.arrays import np
from cluster.protocol.sbe import Buffer

FRAME_ALIGNMENT: Final = 32
HEADER_LENGTH: Final = 32

FLAG_BEGIN: Final = 0x80
FLAG_END: Final = 0x40
FLAGS_UNFRAGMENTED: Final = FLAG_BEGIN | FLAG_END

TYPE_PAD: Final = 0
TYPE_DATA: Final = 1

TERM_LENGTH_MIN: Final = 64 * 1024
TERM_LENGTH_MAX: Final = 1024 * 1024 * 1024
MTU_MAX: Final = 65_504
MESSAGE_LENGTH_MAX: Final = 16 * 1024 * 1024  # whatever the term length

DATA_FRAME_HEADER = np.dtype(
    [
        ("frame_length", "<i4"),  # stored last by a writer: > 0 says that the frame is whole
        ("version", "u1"),
        ("flags", "u1"),
        ("type", "<u2"),
        ("term_offset", "<i4"),
        ("session_id", "<i4"),  # a recording with checksums keeps the frame's checksum here
        ("stream_id", "<i4"),
        ("term_id", "<i4"),
        ("reserved_value", "<i8"),  # 0 in all that the cluster publishes
    ]
)
assert DATA_FRAME_HEADER.itemsize == HEADER_LENGTH
# For kernels; at VERSION_AT begins an i32 of version, flags and type, too.
VERSION_AT, FLAGS_AT, TYPE_AT, TERM_OFFSET_AT, SESSION_ID_AT, STREAM_ID_AT = 4, 5, 6, 8, 12, 16
TERM_ID_AT, RESERVED_VALUE_AT = 20, 24

_HEADER = struct.Struct("<iBBHiiiiq")
assert _HEADER.size == HEADER_LENGTH


class DataFrameHeader(NamedTuple):
    """``DATA_FRAME_HEADER`` as one value."""

    frame_length: int
    version: int
    flags: int
    type: int
    term_offset: int
    session_id: int
    stream_id: int
    term_id: int
    reserved_value: int

    @property
    def aligned_length(self) -> int:
        """From this frame's start to the next one's."""
        return align(self.frame_length)


assert DataFrameHeader._fields == DATA_FRAME_HEADER.names


def align(n: int, a: int = FRAME_ALIGNMENT) -> int:
    """``n`` rounded up to a multiple of ``a``, a power of two."""
    return (n + a - 1) & -a


def header_at(buffer: Buffer, offset: int = 0) -> DataFrameHeader:
    """The header of the frame at ``offset``; what the buffer lacks of it reads as 0, as if unwritten."""
    if len(buffer) - offset < HEADER_LENGTH:
        buffer, offset = bytes(buffer[offset:]).ljust(HEADER_LENGTH, b"\0"), 0
    return DataFrameHeader._make(_HEADER.unpack_from(buffer, offset))


def frame_header(
    frame_length: int,
    *,
    session_id: int,
    stream_id: int,
    term_id: int = 0,
    term_offset: int = 0,
    flags: int = FLAGS_UNFRAGMENTED,
    frame_type: int = TYPE_DATA,
    reserved_value: int = 0,
) -> bytes:
    """The 32 bytes in front of a payload; kernels write whole runs of them."""
    return _HEADER.pack(
        frame_length, 0, flags, frame_type, term_offset, session_id, stream_id, term_id, reserved_value
    )


def frame(
    payload: bytes | memoryview,
    *,
    session_id: int,
    stream_id: int,
    term_id: int = 0,
    term_offset: int = 0,
    flags: int = FLAGS_UNFRAGMENTED,
    reserved_value: int = 0,
) -> bytes:
    """One data frame with ``payload`` and the zeros up to the next multiple of 32."""
    frame_length = HEADER_LENGTH + len(payload)
    header = frame_header(
        frame_length,
        session_id=session_id,
        stream_id=stream_id,
        term_id=term_id,
        term_offset=term_offset,
        flags=flags,
        reserved_value=reserved_value,
    )
    return b"".join((header, payload, bytes(align(frame_length) - frame_length)))


def is_term_length(length: int) -> bool:
    """Whether a term may have this length: a power of two from 64 KiB to 1 GiB."""
    return TERM_LENGTH_MIN <= length <= TERM_LENGTH_MAX and length & (length - 1) == 0


def is_mtu(length: int) -> bool:
    """Whether a frame may be at most this long: a multiple of 32 above 32, at most 65,504."""
    return HEADER_LENGTH < length <= MTU_MAX and length % FRAME_ALIGNMENT == 0


def position_bits(term_length: int) -> int:
    """Bits to shift a term count by to have a position: log2 of the term length."""
    assert is_term_length(term_length)
    return term_length.bit_length() - 1


def _i32(n: int) -> int:
    """``n`` wrapped as a 32-bit integer: term ids count on through the overflow."""
    return ((n + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000


def compute_position(term_id: int, term_offset: int, bits: int, initial_term_id: int) -> int:
    """Position in the stream of an offset in a term; the difference of term ids wraps at 32 bits."""
    return (_i32(term_id - initial_term_id) << bits) + term_offset


def term_id_at(position: int, bits: int, initial_term_id: int) -> int:
    """Id of the term that holds the byte at ``position``; at a boundary, of the term that begins."""
    return _i32((position >> bits) + initial_term_id)


def term_offset_at(position: int, bits: int) -> int:
    """Offset of ``position`` in its term; 0 at a boundary."""
    return position & ((1 << bits) - 1)


def message_length_max(term_length: int) -> int:
    """Longest message that a log takes, SBE header included; an application's payload is 32 bytes shorter."""
    return min(term_length // 8, MESSAGE_LENGTH_MAX)
