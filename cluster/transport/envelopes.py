"""Envelopes: what members send each other is checked by its receiver, bit for bit.

TCP's checksum has 16 bits, and a middle box that ends a connection makes a new one over whatever it holds. A
byte changed in a log frame would be written and acknowledged, and be different on one member for ever. So
all bytes of a link travel in frames of stream ENVELOPE:

    | frame header: length, stream ENVELOPE, reserved value: two checksums | whole frames ... | header | ...

The first checksum is the CRC-32 of the frames within and of all that came before on this connection: a frame
that is lost, doubled or late shows as well as one that is changed. The second is that of the 28 bytes before
it, checked as soon as the header is there: a receiver must not wait for as many bytes as a changed length
names, deaf to all that comes meanwhile. Whoever finds a mismatch drops the connection; its next one begins
again, from what its log has.

Kernels over the bytes come first, which compiled turns seal and open by, too.
"""

import zlib
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numba import types

from cluster.errors import RemoteProtocolError
from cluster.log.crc import crc_32, extend_crc_32
from cluster.log.frames import DATA_UNFRAGMENTED, put_header
from cluster.log.kernel import kernel
from cluster.log.memory import BYTES, BYTES_OUT, I64, get_i32, get_u32, put_i32
from cluster.log.runs import find_whole_frames, whole_frames
from cluster.protocol import Message, decode
from cluster.protocol.frame import HEADER_LENGTH, RESERVED_VALUE_AT, STREAM_ID_AT, VERSION_AT, header_at
from cluster.protocol.streams import ENVELOPE, LINK
from cluster.transport.message_frames import Received
from cluster.transport.sockets import FRAME_LENGTH_MAX, Buffer

# A receiver waits for the whole of an envelope, so a long batch goes in several.
ENVELOPE_BYTES = 128 * 1024
_CONTENT_MAX = FRAME_LENGTH_MAX - HEADER_LENGTH
_CONTENT_CRC_AT, _HEADER_CRC_AT = RESERVED_VALUE_AT, RESERVED_VALUE_AT + 4
_COMPILED_IN = ["cluster.log.runs", "cluster.transport.sockets"]


@kernel(I64(BYTES_OUT, I64, I64, I64), modules=_COMPILED_IN)
def put_envelope(out, at, content_length, crc):  # type: ignore[no-untyped-def]
    """The header of an envelope; ``crc`` is the connection's after the content. Returns where that begins."""
    put_header(out, at, HEADER_LENGTH + content_length, DATA_UNFRAGMENTED, 0, 0, ENVELOPE, 0)
    put_i32(out, at + _CONTENT_CRC_AT, crc)
    put_i32(out, at + _HEADER_CRC_AT, crc_32(out, at, at + _HEADER_CRC_AT))
    return at + HEADER_LENGTH


@kernel(types.boolean(BYTES, I64), modules=_COMPILED_IN)
def is_envelope(buffer, offset):  # type: ignore[no-untyped-def]
    """Whether the header there is an envelope's, whole; what it holds may still be on its way."""
    return (
        get_i32(buffer, offset + VERSION_AT) == DATA_UNFRAGMENTED
        and get_i32(buffer, offset + STREAM_ID_AT) == ENVELOPE
        and get_u32(buffer, offset + _HEADER_CRC_AT) == crc_32(buffer, offset, offset + _HEADER_CRC_AT)
    )


@kernel(types.UniTuple(I64, 2)(BYTES, I64, I64, I64), modules=_COMPILED_IN)
def open_envelope(buffer, offset, end, crc):  # type: ignore[no-untyped-def]
    """End of the envelope at ``buffer[offset]``, -1 when it is none; the connection's checksum after it."""
    content_end = offset + get_i32(buffer, offset)
    if content_end > end or not is_envelope(buffer, offset):
        return -1, 0
    crc = extend_crc_32(crc, buffer, offset + HEADER_LENGTH, content_end)
    if crc != get_u32(buffer, offset + _CONTENT_CRC_AT):
        return -1, 0
    return content_end, crc


@kernel(I64(BYTES, I64, I64), modules=_COMPILED_IN)
def piece_end(source, begin, end):  # type: ignore[no-untyped-def]
    """End of the whole frames of ``source[begin:end]`` that one envelope takes; a longer one goes alone."""
    if end - begin <= ENVELOPE_BYTES:
        return end
    whole_end, follows = find_whole_frames(source, begin, begin + ENVELOPE_BYTES, _CONTENT_MAX, True)
    return whole_end if whole_end > begin else begin + follows


class Opened(NamedTuple):
    """The frames of an envelope are ``buffer[start:end]``; ``crc`` is of the connection up to there."""

    start: int
    end: int
    crc: int


def seal(buffers: tuple[Buffer, ...], crc: int) -> tuple[list[Buffer], int]:
    """Return what to send for ``buffers`` of whole frames, and the connection's ``crc`` after it."""
    if sum(map(len, buffers)) <= ENVELOPE_BYTES:
        for buffer in buffers:
            crc = zlib.crc32(memoryview(buffer), crc)  # type: ignore[arg-type]
        return [_header(sum(map(len, buffers)), crc), *buffers], crc
    sealed: list[Buffer] = []
    for buffer in buffers:
        for piece in _pieces(buffer):
            crc = zlib.crc32(piece.data, crc)
            sealed += (_header(len(piece), crc), piece)
    return sealed, crc


def _header(length: int, crc: int) -> np.ndarray:
    header = np.empty(HEADER_LENGTH, np.uint8)
    put_envelope(header, 0, length, crc)
    return header


def _pieces(buffer: Buffer) -> list[np.ndarray]:
    """Runs of whole frames, each as long as an envelope may be, or a frame that is longer."""
    data = np.frombuffer(buffer, np.uint8)
    ends = [0]
    while (start := ends[-1]) < len(data):
        ends.append(int(piece_end(data, start, len(data))))
        assert ends[-1] > start, "only frames are sent"
    return [data[start:end] for start, end in pairwise(ends)]


def check_header(buffer: np.ndarray, start: int) -> None:
    """``RemoteProtocolError`` unless an envelope's header is at ``start``, as it was sent."""
    if not is_envelope(buffer, start):
        stream_id = header_at(buffer, start).stream_id
        if stream_id != ENVELOPE:
            raise RemoteProtocolError(f"a frame of stream {stream_id} outside of an envelope")
        raise RemoteProtocolError("an envelope's header does not come with the checksum that was sent")


def unseal(buffer: np.ndarray, start: int, crc: int) -> Opened:
    """Open the envelope at ``start``; ``crc`` is the connection's. Raises RemoteProtocolError."""
    check_header(buffer, start)
    begin = start + HEADER_LENGTH
    end, crc = open_envelope(buffer, start, len(buffer), crc)
    if end < 0:
        raise RemoteProtocolError("what an envelope holds does not come with the checksum that was sent")
    if whole_frames(buffer, begin, end, _CONTENT_MAX, True) != (end, 0):
        raise RemoteProtocolError(f"{end - begin} bytes in an envelope are not whole frames")
    return Opened(begin, end, crc)


def decode_first_envelope(connection: Received) -> tuple[Message | None, int]:
    """The message of a first envelope (None: unknown), and its crc. Raises RemoteProtocolError."""
    buffer = connection.buffer
    opened = unseal(buffer, connection.start, 0)
    header = header_at(buffer, opened.start)
    if header.stream_id != LINK:
        raise RemoteProtocolError(f"the first frame is of stream {header.stream_id}")
    message = decode(buffer, opened.start + HEADER_LENGTH, header.frame_length - HEADER_LENGTH)
    connection.release(opened.end)
    return message, opened.crc
