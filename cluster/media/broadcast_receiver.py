"""What a media driver sends to all of its clients (Agrona: BroadcastReceiver, CopyBroadcastReceiver).

    | record | record | ... capacity, a power of two | trailer: tail intent, tail, latest
    record: i32 length with these 8 bytes | i32 type | message | pad to 8

The driver waits for nobody: what was not read when it comes round is lost, and with it what is known of the
driver. A message is copied out first, and believed when the driver has not come round by then.
"""

from __future__ import annotations

import numpy as np

from cluster.errors import MediaDriverError
from cluster.log.kernel import kernel
from cluster.log.memory import BYTES, BYTES_OUT, I64, WORDS_OUT, copy_bytes, get_i32
from cluster.log.ordered import load_i64
from cluster.protocol.cnc import BROADCAST_TRAILER_LENGTH, Region
from cluster.protocol.media import PADDING_RECORD

_HEADER_LENGTH = 8
_TAIL_INTENT, _TAIL, _LATEST = 0, 8, 16  # from the capacity on
_NOTHING, _MESSAGE, _LAPPED, _DAMAGED = range(4)
_NEXT, _TYPE, _LENGTH = range(3)  # in the state
_MODULES = ("cluster.protocol.media",)


@kernel(I64(BYTES, I64, I64, WORDS_OUT, BYTES_OUT), modules=_MODULES)
def _receive(buffer, begin, capacity, state, out):  # type: ignore[no-untyped-def]
    trailer = begin + capacity
    cursor = state[_NEXT]
    tail = load_i64(buffer, trailer + _TAIL)
    if tail <= cursor:
        return _NOTHING
    if cursor + capacity <= load_i64(buffer, trailer + _TAIL_INTENT):
        return _LAPPED
    offset = cursor & (capacity - 1)
    length = get_i32(buffer, begin + offset)
    type_id = get_i32(buffer, begin + offset + 4)
    if type_id == PADDING_RECORD:
        cursor += capacity - offset
        offset = 0
        length = get_i32(buffer, begin)
        type_id = get_i32(buffer, begin + 4)
    is_fit = _HEADER_LENGTH <= length <= capacity - offset and length - _HEADER_LENGTH <= out.size
    if is_fit:
        copy_bytes(out, 0, buffer, begin + offset + _HEADER_LENGTH, length - _HEADER_LENGTH)
    if state[_NEXT] + capacity <= load_i64(buffer, trailer + _TAIL_INTENT):
        return _LAPPED
    if not is_fit:
        return _DAMAGED
    state[_NEXT] = cursor + ((length + 7) & ~7)
    state[_TYPE] = type_id
    state[_LENGTH] = length - _HEADER_LENGTH
    return _MESSAGE


class BroadcastReceiver:
    """Reads the buffer in ``region`` of a mapped cnc.dat, from its latest record on."""

    def __init__(self, buffer: np.ndarray, region: Region) -> None:
        self._buffer = buffer
        self._begin = region.offset
        self._capacity = region.length - BROADCAST_TRAILER_LENGTH
        assert self._capacity & (self._capacity - 1) == 0
        assert region.offset % 8 == 0
        assert region.end <= buffer.size
        self._out = np.zeros(self._capacity // 8, np.uint8)  # no message is longer
        self._state = np.zeros(3, np.int64)
        latest = region.offset + self._capacity + _LATEST
        self._state[_NEXT] = buffer[latest : latest + 8].view(np.int64)[0]
        if self._state[_NEXT] < 0 or self._state[_NEXT] % 8:
            raise MediaDriverError(f"the media driver's latest record is at {self._state[_NEXT]}")

    def receive(self) -> tuple[int, bytes] | None:
        """Type and body of the next record, or None. Raises MediaDriverError where it is overtaken."""
        result = _receive(self._buffer, self._begin, self._capacity, self._state, self._out)
        if result == _NOTHING:
            return None
        if result == _LAPPED:
            raise MediaDriverError("the media driver has said more than this client has kept up with")
        if result == _DAMAGED:
            raise MediaDriverError("the media driver's answers hold what is no record")
        return int(self._state[_TYPE]), self._out[: self._state[_LENGTH]].tobytes()
