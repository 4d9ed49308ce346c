"""A publication that one writer has alone (Aeron: ExclusivePublication).

Of the tail only its owner writes, so nothing is claimed: frames are written, then their lengths, then they
are seen. Where a message does not fit into what is left of a term, that is filled with padding, and the
message begins the next term.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cluster.errors import LocalProtocolError, MediaDriverError
from cluster.log.kernel import kernel, routine
from cluster.log.memory import (
    BYTES,
    BYTES_OUT,
    I64,
    WORDS_OUT,
    copy_bytes,
    get_i32,
    get_i64,
    put_i32,
    put_i64,
    put_u8,
)
from cluster.log.ordered import load_i32, load_i64, store_i32, store_i64
from cluster.media.cnc_file import CncFile
from cluster.media.log_buffers import LogBuffers
from cluster.protocol.frame import (
    FLAG_BEGIN,
    FLAG_END,
    FRAME_ALIGNMENT,
    HEADER_LENGTH,
    MESSAGE_LENGTH_MAX,
    TYPE_PAD,
)
from cluster.protocol.media import DEFAULT_HEADER_OFFSET

NOT_CONNECTED, BACK_PRESSURED, MAX_POSITION_EXCEEDED = -1, -2, -5  # Publication of Aeron
_NEXT_TERM = -3  # ADMIN_ACTION of Aeron, whose callers offer again then
_ACTIVE_TERM_COUNT, _IS_CONNECTED = 24, 136  # in the metadata
_TERM_ID, _TERM_OFFSET, _TERM_BEGIN = range(3)  # in the state
_MODULES = ("cluster.protocol.media",)


@routine
def _rotate(log, metadata, term_length, count, state):  # type: ignore[no-untyped-def]
    """Begin the next term."""
    if count == 0x7FFFFFFF:
        return MAX_POSITION_EXCEEDED
    next_term_id = (((state[_TERM_ID] + 1) & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
    next_count = count + 1
    store_i64(log, metadata + next_count % 3 * 8, next_term_id << 32)
    store_i32(log, metadata + _ACTIVE_TERM_COUNT, next_count)
    state[_TERM_ID], state[_TERM_OFFSET] = next_term_id, 0
    state[_TERM_BEGIN] += term_length
    return _NEXT_TERM


@routine
def _append(log, metadata, term_length, initial_term_id, mtu, state, limit, buffer, message, length):  # type: ignore[no-untyped-def]
    """Append a message in frames of up to ``mtu`` bytes; returns the position after it, or what is wrong."""
    term_id, offset, begin = state[_TERM_ID], state[_TERM_OFFSET], state[_TERM_BEGIN]
    if begin + offset >= limit:
        return BACK_PRESSURED if load_i32(log, metadata + _IS_CONNECTED) == 1 else NOT_CONNECTED
    header = metadata + DEFAULT_HEADER_OFFSET
    payload_max = mtu - HEADER_LENGTH
    whole = length // payload_max
    rest = length - whole * payload_max
    needed = whole * mtu
    if rest > 0 or whole == 0:
        needed += (rest + HEADER_LENGTH + FRAME_ALIGNMENT - 1) // FRAME_ALIGNMENT * FRAME_ALIGNMENT
    count = (term_id - initial_term_id) & 0x7FFFFFFF
    term = count % 3 * term_length
    is_end = offset + needed > term_length
    end = min(offset + needed, term_length)
    store_i64(log, metadata + count % 3 * 8, (term_id << 32) | end)
    done = 0
    while offset < end:
        frame_length = end - offset
        if not is_end:
            frame_length = min(length - done + HEADER_LENGTH, mtu)
        at = term + offset
        put_i32(log, at + 4, get_i32(log, header + 4))  # version, flags and type
        put_i32(log, at + 8, offset)
        put_i32(log, at + 12, get_i32(log, header + 12))  # session id
        put_i32(log, at + 16, get_i32(log, header + 16))  # stream id
        put_i32(log, at + 20, term_id)
        put_i64(log, at + 24, 0)
        if is_end:
            put_u8(log, at + 6, 0)  # padding
        else:
            payload = frame_length - HEADER_LENGTH
            copy_bytes(log, at + HEADER_LENGTH, buffer, message + done, payload)
            flags = FLAG_BEGIN if done == 0 else 0
            done += payload
            put_u8(log, at + 5, flags | (FLAG_END if done == length else 0))
        store_i32(log, at, frame_length)
        offset += (frame_length + FRAME_ALIGNMENT - 1) // FRAME_ALIGNMENT * FRAME_ALIGNMENT
    if not is_end:
        state[_TERM_OFFSET] = offset
        return begin + offset
    return _rotate(log, metadata, term_length, count, state)


@kernel(I64(BYTES_OUT, I64, I64, I64, I64, WORDS_OUT, I64, BYTES, I64), modules=_MODULES)
def _offer(log, metadata, term_length, initial_term_id, mtu, state, limit, message, length):  # type: ignore[no-untyped-def]
    while True:
        result = _append(log, metadata, term_length, initial_term_id, mtu, state, limit, message, 0, length)
        if result != _NEXT_TERM:
            return result


@kernel(I64(BYTES_OUT, I64, I64, I64, I64, WORDS_OUT, I64, BYTES, I64, I64, I64), modules=_MODULES)
def _offer_frames(log, metadata, term_length, initial_term_id, mtu, state, limit, run, at, end, longest):  # type: ignore[no-untyped-def]
    """Append the message of each frame of ``run[at:end]``; returns where the first untaken frame begins."""
    while at < end:
        length = get_i32(run, at) - HEADER_LENGTH
        if length > longest:
            break
        message = at + HEADER_LENGTH
        result = _append(log, metadata, term_length, initial_term_id, mtu, state, limit, run, message, length)
        if result >= 0:
            at = message + (length + FRAME_ALIGNMENT - 1) // FRAME_ALIGNMENT * FRAME_ALIGNMENT
        elif result != _NEXT_TERM:
            break
    return at


@kernel(I64(BYTES_OUT, I64, I64, I64, I64, WORDS_OUT, I64, BYTES, I64, I64), modules=_MODULES, nogil=True)
def _offer_recorded(log, metadata, term_length, initial_term_id, mtu, state, limit, run, at, end):  # type: ignore[no-untyped-def]
    """Append the frames that begin in ``run[at:end]``, under this session; returns where it stopped."""
    header = metadata + DEFAULT_HEADER_OFFSET
    while at < end:
        count = (state[_TERM_ID] - initial_term_id) & 0x7FFFFFFF
        if state[_TERM_OFFSET] == term_length and (
            _rotate(log, metadata, term_length, count, state) == MAX_POSITION_EXCEEDED
        ):
            break
        term_id, offset = state[_TERM_ID], state[_TERM_OFFSET]
        if state[_TERM_BEGIN] + offset >= limit or at + HEADER_LENGTH > run.size:
            break
        length = get_i32(run, at)
        if length < HEADER_LENGTH or at + length > run.size:
            break
        is_padding = (get_i32(run, at + 4) >> 16) & 0xFFFF == TYPE_PAD
        frame_end = offset + (length + FRAME_ALIGNMENT - 1) // FRAME_ALIGNMENT * FRAME_ALIGNMENT
        is_in_place = get_i32(run, at + 8) == offset and get_i32(run, at + 20) == term_id
        if not is_in_place or frame_end > term_length or (length > mtu and not is_padding):
            break
        count = (term_id - initial_term_id) & 0x7FFFFFFF
        store_i64(log, metadata + count % 3 * 8, (term_id << 32) | frame_end)
        to = count % 3 * term_length + offset
        put_i32(log, to + 4, get_i32(run, at + 4))  # version, flags and type
        put_i32(log, to + 8, offset)
        put_i32(log, to + 12, get_i32(log, header + 12))  # session id
        put_i32(log, to + 16, get_i32(log, header + 16))  # stream id
        put_i32(log, to + 20, term_id)
        put_i64(log, to + 24, get_i64(run, at + 24))
        if not is_padding:
            copy_bytes(log, to + HEADER_LENGTH, run, at + HEADER_LENGTH, length - HEADER_LENGTH)
        store_i32(log, to, length)
        at += frame_end - offset
        state[_TERM_OFFSET] = frame_end
    return at


@kernel(I64(BYTES, I64), modules=_MODULES)
def _load(buffer, at):  # type: ignore[no-untyped-def]
    return load_i64(buffer, at)


class Publication:
    """Appends messages; what the driver sends of them is the driver's."""

    def __init__(
        self, cnc: CncFile, registration_id: int, session_id: int, limit_counter_id: int, log: LogBuffers
    ) -> None:
        """Raises MediaDriverError for a tail that is none."""
        self.registration_id = registration_id
        self.session_id = session_id
        self._counters = cnc.buffer
        self._limit_at = cnc.value_offset(limit_counter_id)
        self._log = log
        self._state = np.zeros(3, np.int64)
        count = log.metadata.active_term_count
        tail_at = log.metadata_offset + count % 3 * 8
        tail = int(log.buffer[tail_at : tail_at + 8].view(np.int64)[0])
        term_id, offset = tail >> 32, tail & 0xFFFFFFFF
        if (term_id - log.initial_term_id) & 0xFFFFFFFF != count or not 0 <= offset <= log.term_length:
            raise MediaDriverError(f"a publication has tail {tail:#x} in term {count}")
        if offset % FRAME_ALIGNMENT:
            raise MediaDriverError(f"a publication goes on at offset {offset}, expected a multiple of 32")
        self._state[:] = term_id, offset, count * log.term_length
        self.message_length_max = min(log.term_length // 8, MESSAGE_LENGTH_MAX)

    @property
    def is_connected(self) -> bool:
        """Whether a subscriber is there, as the driver last heard."""
        return self._log.metadata.is_connected == 1

    @property
    def position(self) -> int:
        """After what was offered last."""
        return int(self._state[_TERM_BEGIN] + self._state[_TERM_OFFSET])

    def offer(self, message: bytes) -> int:
        """Append one message; returns the position after it.

        Below 0 nothing was appended: NOT_CONNECTED, BACK_PRESSURED, MAX_POSITION_EXCEEDED. Raises
        LocalProtocolError for a message that is too long.
        """
        if len(message) > self.message_length_max:
            raise LocalProtocolError(
                f"a message of {len(message)} bytes, expected at most {self.message_length_max}"
            )
        return int(_offer(*self._place(), np.frombuffer(message, np.uint8), len(message)))

    def offer_frames(self, run: np.ndarray, start: int, end: int) -> int:
        """Append the message of each frame of ``run[start:end]``, whole frames of one message each.

        Returns where the first frame begins that was not taken; ``offer`` of its message says why.
        """
        assert run.dtype == np.uint8
        assert 0 <= start <= end <= run.size
        return int(_offer_frames(*self._place(), run, start, end, self.message_length_max))

    def offer_recorded(self, run: np.ndarray, start: int, end: int) -> int:
        """Append frames as they are recorded, under this session and stream; ``run`` ends with a whole one.

        Those that begin in ``run[start:end]``, as many as there is room for; returns where the first begins
        that was not taken. Raises LocalProtocolError for one that does not belong where this publication is.
        """
        assert run.dtype == np.uint8
        assert 0 <= start <= end <= run.size
        place = self._place()
        at = int(_offer_recorded(*place, run, start, end))
        if at < end and self.position < place[-1]:
            raise LocalProtocolError(f"no frame of position {self.position} is at {at} of a run to replay")
        return at

    def is_at(self, position: int, term_length: int, initial_term_id: int, mtu_length: int) -> bool:
        """Whether what is offered next is at this position, in a log of this shape."""
        log = self._log
        shape = log.term_length, log.initial_term_id, log.mtu_length
        return self.position == position and shape == (term_length, initial_term_id, mtu_length)

    def _place(self) -> tuple[Any, ...]:
        """What kernels take to append, with how far they may go now."""
        log = self._log
        return (
            log.buffer,
            log.metadata_offset,
            log.term_length,
            log.initial_term_id,
            log.mtu_length,
            self._state,
            _load(self._counters, self._limit_at),
        )
