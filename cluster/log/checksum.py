"""CRC-32 and CRC-32C of frames, kept where Aeron's archive keeps them: in the frame's session id.

    checksum = crc(payload and the bytes up to the next multiple of 32), header excluded

A padding frame keeps its session id. So a recording with checksums has lost the session ids of its frames;
who replays it puts in that of the replay (``restore_session_ids``). Sources: Aeron's RecordingWriter,
ReplaySession and io.aeron.archive.checksum.
"""

from enum import IntEnum

import numpy as np

from cluster.log.crc import POLYNOMIAL_CRC_32, POLYNOMIAL_CRC_32C, crc_32, crc_32c
from cluster.log.frames import align_frame
from cluster.log.kernel import kernel, routine
from cluster.log.memory import BYTES, BYTES_OUT, I64, get_i32, get_u16, get_u32, put_i32
from cluster.protocol.frame import FRAME_ALIGNMENT, HEADER_LENGTH, TYPE_AT, TYPE_DATA

SESSION_ID_OFFSET = 12
FRAME_LENGTH_MAX = 65_504  # of data: the largest MTU


class Checksum(IntEnum):
    """What an archive may be configured with; the value is the reflected polynomial."""

    CRC_32 = POLYNOMIAL_CRC_32
    CRC_32C = POLYNOMIAL_CRC_32C


# What kernels call them.
CODES = {Checksum.CRC_32: 0, Checksum.CRC_32C: 1}


@routine
def _crc_of(buffer, offset, end, is_castagnoli):  # type: ignore[no-untyped-def]
    return crc_32c(buffer, offset, end) if is_castagnoli else crc_32(buffer, offset, end)


@kernel(I64(BYTES, I64, I64, I64))
def _crc(buffer, offset, end, is_castagnoli):  # type: ignore[no-untyped-def]
    return _crc_of(buffer, offset, end, is_castagnoli)


def compute(checksum: Checksum, buffer: np.ndarray, offset: int, length: int) -> int:
    """The checksum of ``buffer[offset:offset + length]`` as the i32 that stands in frames and descriptors."""
    assert 0 <= offset <= offset + length <= buffer.size
    value = int(_crc(buffer, offset, offset + length, CODES[checksum]))
    return value - ((value >> 31) << 32)


@routine
def _frame_end(buffer, offset, end):  # type: ignore[no-untyped-def]
    """End of the whole frame at ``offset``, or ``offset`` if there is none."""
    if end - offset < HEADER_LENGTH:
        return offset
    frame_length = get_i32(buffer, offset)
    if frame_length < HEADER_LENGTH or align_frame(frame_length) > end - offset:
        return offset
    return offset + align_frame(frame_length)


@routine
def store(run, offset, end, is_castagnoli):  # type: ignore[no-untyped-def]
    """``store_checksums``, within a kernel; ``CODES`` has what it takes."""
    while True:
        frame_end = _frame_end(run, offset, end)
        if frame_end == offset:
            return offset
        if get_u16(run, offset + TYPE_AT) == TYPE_DATA:
            put_i32(
                run,
                offset + SESSION_ID_OFFSET,
                _crc_of(run, offset + HEADER_LENGTH, frame_end, is_castagnoli),
            )
        offset = frame_end


@kernel(I64(BYTES_OUT, I64, I64, I64))
def _store(run, offset, end, is_castagnoli):  # type: ignore[no-untyped-def]
    return store(run, offset, end, is_castagnoli)


def store_checksums(checksum: Checksum, run: np.ndarray, start: int, end: int) -> int:
    """Put each data frame's checksum in place of its session id; return the end of the last whole frame.

    ``run`` is a copy of the log made for the archive: what goes to followers keeps the session id.
    """
    assert start % FRAME_ALIGNMENT == 0
    assert 0 <= start <= end <= run.size
    return _store(run, start, end, CODES[checksum])


@kernel(I64(BYTES, I64, I64, I64))
def _verify(run, offset, end, is_castagnoli):  # type: ignore[no-untyped-def]
    while True:
        frame_end = _frame_end(run, offset, end)
        if frame_end == offset:
            return offset
        is_data = get_u16(run, offset + TYPE_AT) == TYPE_DATA
        if is_data or HEADER_LENGTH < frame_end - offset <= FRAME_LENGTH_MAX:
            checksum = _crc_of(run, offset + HEADER_LENGTH, frame_end, is_castagnoli)
            # Padding holds a session id; one that holds a checksum was data before its type was changed.
            if (checksum == get_u32(run, offset + SESSION_ID_OFFSET)) != is_data:
                return offset
        offset = frame_end


def verify_checksums(checksum: Checksum, run: np.ndarray, start: int, end: int) -> int:
    """Offset of the first frame whose checksum is wrong, or that is not whole; ``end`` when all are right."""
    assert start % FRAME_ALIGNMENT == 0
    assert 0 <= start <= end <= run.size
    return _verify(run, start, end, CODES[checksum])


@kernel(I64(BYTES_OUT, I64, I64, I64))
def _restore(run, offset, end, session_id):  # type: ignore[no-untyped-def]
    while True:
        frame_end = _frame_end(run, offset, end)
        if frame_end == offset:
            return offset
        if get_u16(run, offset + TYPE_AT) == TYPE_DATA:
            put_i32(run, offset + SESSION_ID_OFFSET, session_id)
        offset = frame_end


def restore_session_ids(run: np.ndarray, start: int, end: int, session_id: int) -> int:
    """Put a session id into each data frame, checksums gone; return the end of the last whole frame."""
    assert start % FRAME_ALIGNMENT == 0
    assert 0 <= start <= end <= run.size
    return _restore(run, start, end, session_id)
