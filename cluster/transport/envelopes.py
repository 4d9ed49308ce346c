"""Envelopes: what members send each other is checked by its receiver, bit for bit.

TCP's checksum has 16 bits, and a middle box that ends a connection makes a new one over whatever it holds. A
byte changed in a log frame would be written and acknowledged, and be different on one member for ever. So
all bytes of a link travel in frames of stream ENVELOPE:

    | frame header: length, stream ENVELOPE, reserved value: two checksums | whole frames ... | header | ...

The first checksum is the CRC-32 of the frames within and of all that came before on this connection: a frame
that is lost, doubled or late shows as well as one that is changed. The second is that of the 28 bytes before
it, checked as soon as the header is there: a receiver must not wait for as many bytes as a changed length
names, deaf to all that comes meanwhile. Whoever finds a mismatch drops the connection; its next one begins
anew, from what its log holds.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import numpy as np

from cluster.errors import RemoteProtocolError
from cluster.log.runs import NOT_A_FRAME, whole_frames
from cluster.protocol import Message, decode, streams
from cluster.protocol.frame import HEADER_LENGTH, frame_header, header_at
from cluster.transport.message_frames import Received
from cluster.transport.sockets import FRAME_LENGTH_MAX, Buffer

# A receiver waits for the whole of an envelope, so a long batch goes in several.
ENVELOPE_BYTES = 128 * 1024
_CONTENT_MAX = FRAME_LENGTH_MAX - HEADER_LENGTH
_HEADER = struct.Struct("<i12xi4xII")  # length, stream id, checksum of the content, of all before itself
_CONTENT_CHECKSUM_OFFSET = 24
_HEADER_CHECKSUM_OFFSET = 28
assert _HEADER.size == HEADER_LENGTH


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


def _header(length: int, crc: int) -> bytes:
    header = frame_header(HEADER_LENGTH + length, session_id=0, stream_id=streams.ENVELOPE)
    checked = header[:_CONTENT_CHECKSUM_OFFSET] + crc.to_bytes(4, "little")
    return checked + zlib.crc32(checked).to_bytes(4, "little")


def _pieces(buffer: Buffer) -> list[np.ndarray]:
    """Runs of whole frames, each as long as an envelope may be, or a frame that is longer."""
    data = np.frombuffer(buffer, np.uint8)
    pieces: list[np.ndarray] = []
    start = 0
    while start < len(data):
        limit = min(start + ENVELOPE_BYTES, len(data))
        end, follows = whole_frames(data, start, limit, _CONTENT_MAX, True)
        assert follows != NOT_A_FRAME, "only frames are sent"
        if end == start:
            end = start + follows
        pieces.append(data[start:end])
        start = end
    return pieces


def check_header(buffer: np.ndarray, start: int) -> None:
    """``RemoteProtocolError`` unless an envelope's header is at ``start``, as it was sent."""
    _, stream_id, _, sent = _HEADER.unpack_from(buffer.data, start)
    if stream_id != streams.ENVELOPE:
        raise RemoteProtocolError(f"a frame of stream {stream_id} outside of an envelope")
    crc = zlib.crc32(buffer[start : start + _HEADER_CHECKSUM_OFFSET].data)
    if crc != sent:
        raise RemoteProtocolError(f"an envelope's header came with checksum {crc:#x}, sent was {sent:#x}")


def unseal(buffer: np.ndarray, start: int, crc: int) -> Opened:
    """Open the envelope at ``start``; ``crc`` is the connection's. Raises RemoteProtocolError."""
    check_header(buffer, start)
    length, _, sent, _ = _HEADER.unpack_from(buffer.data, start)
    begin, end = start + HEADER_LENGTH, start + length
    crc = zlib.crc32(buffer[begin:end].data, crc)
    if crc != sent:
        raise RemoteProtocolError(f"{end - begin} bytes came with checksum {crc:#x}, sent was {sent:#x}")
    if whole_frames(buffer, begin, end, _CONTENT_MAX, True) != (end, 0):
        raise RemoteProtocolError(f"{end - begin} bytes in an envelope are not whole frames")
    return Opened(begin, end, crc)


def decode_first_envelope(connection: Received) -> tuple[Message | None, int]:
    """The message of a first envelope (None: unknown), and its crc. Raises RemoteProtocolError."""
    buffer = connection.buffer
    opened = unseal(buffer, connection.start, 0)
    header = header_at(buffer, opened.start)
    if header.stream_id != streams.LINK:
        raise RemoteProtocolError(f"the first frame is of stream {header.stream_id}")
    message = decode(buffer, opened.start + HEADER_LENGTH, header.frame_length - HEADER_LENGTH)
    connection.release(opened.end)
    return message, opened.crc
