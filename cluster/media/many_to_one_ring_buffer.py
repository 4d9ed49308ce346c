"""The ring through which all clients of a media driver send it commands (Agrona: ManyToOneRingBuffer).

    | record | record | ... capacity, a power of two | trailer: tail, head, correlation id, heartbeat
    record: i32 length with these 8 bytes | i32 type | message | pad to 8

A length is negative while its record is written. The driver goes on after a writer that dies in between.
"""

from __future__ import annotations

import numpy as np

from cluster.errors import LocalProtocolError, MediaDriverError
from cluster.log.kernel import kernel
from cluster.log.memory import BYTES, BYTES_OUT, I64, copy_bytes, put_i32
from cluster.log.ordered import exchange_i64, get_and_add_i64, load_i64, store_i32
from cluster.protocol.cnc import RING_TRAILER_LENGTH, Region

_HEADER_LENGTH = 8
_TAIL, _HEAD, _CORRELATION = 128, 384, 512  # from the capacity on
_FULL = -1


@kernel(I64(BYTES_OUT, I64, I64, I64, BYTES, I64))
def _write(buffer, begin, capacity, type_id, message, length):  # type: ignore[no-untyped-def]
    trailer = begin + capacity
    record = length + _HEADER_LENGTH
    required = (record + 7) & ~7
    while True:
        head = load_i64(buffer, trailer + _HEAD)
        tail = load_i64(buffer, trailer + _TAIL)
        index = tail & (capacity - 1) & ~7
        to_end = capacity - index
        padding = to_end if required > to_end else 0
        if tail - head < 0 or required + padding > capacity - (tail - head):
            return _FULL
        if exchange_i64(buffer, trailer + _TAIL, tail, tail + required + padding):
            break
    if padding:
        store_i32(buffer, begin + index, -padding)
        put_i32(buffer, begin + index + 4, -1)
        store_i32(buffer, begin + index, padding)
        index = 0
    at = begin + index
    store_i32(buffer, at, -record)
    copy_bytes(buffer, at + _HEADER_LENGTH, message, 0, length)
    put_i32(buffer, at + 4, type_id)
    store_i32(buffer, at, record)
    return index


@kernel(I64(BYTES_OUT, I64))
def _next_id(buffer, at):  # type: ignore[no-untyped-def]
    return get_and_add_i64(buffer, at, 1)


class ManyToOneRingBuffer:
    """One writer of the ring in ``region`` of a mapped cnc.dat."""

    def __init__(self, buffer: np.ndarray, region: Region) -> None:
        self._buffer = buffer
        self._begin = region.offset
        self.capacity = region.length - RING_TRAILER_LENGTH
        assert self.capacity & (self.capacity - 1) == 0
        assert region.offset % 8 == 0
        assert region.end <= buffer.size
        self.message_length_max = self.capacity // 8

    def next_correlation_id(self) -> int:
        """A number that no other client of the driver gets."""
        return int(_next_id(self._buffer, self._begin + self.capacity + _CORRELATION))

    def write(self, type_id: int, message: bytes) -> None:
        """Append a record. Raises MediaDriverError where the ring is full, as that of a driver that hangs."""
        if len(message) > self.message_length_max:
            raise LocalProtocolError(
                f"a command of {len(message)} bytes, the driver takes at most {self.message_length_max}"
            )
        body = np.frombuffer(message, np.uint8)
        written = _write(self._buffer, self._begin, self.capacity, type_id, body, len(message))
        if written == _FULL:
            raise MediaDriverError("the media driver takes no commands: its ring is full")
