"""Runs of frames: where those of a byte stream end, and their headers one by one.

Unlike a scan of a log, where a length of 0 is the end of what was written, a peer that sends anything
but frames is wrong, and the earlier that is seen the less of it is kept.
"""

from collections.abc import Iterator

from cluster.log.compiler import types
from cluster.log.frames import align_frame
from cluster.log.kernel import kernel
from cluster.log.memory import BYTES, I64, get_i32, get_u8, get_u16
from cluster.protocol.arrays import np
from cluster.protocol.frame import (
    FLAGS_AT,
    FLAGS_UNFRAGMENTED,
    HEADER_LENGTH,
    TYPE_AT,
    TYPE_DATA,
    VERSION_AT,
    DataFrameHeader,
    header_at,
)
from cluster.protocol.sbe import Buffer

NOT_A_FRAME = -1


@kernel(types.UniTuple(I64, 2)(BYTES, I64, I64, I64, types.boolean))
def find_whole_frames(buffer, start, limit, frame_length_max, is_log_allowed):  # type: ignore[no-untyped-def]
    offset = start
    while offset + HEADER_LENGTH <= limit:
        frame_length = get_i32(buffer, offset)
        if frame_length < HEADER_LENGTH or frame_length > frame_length_max:
            return offset, NOT_A_FRAME
        frame_type = get_u16(buffer, offset + TYPE_AT)
        if get_u8(buffer, offset + VERSION_AT) != 0 or frame_type > TYPE_DATA:
            return offset, NOT_A_FRAME
        if not is_log_allowed and (
            frame_type != TYPE_DATA or get_u8(buffer, offset + FLAGS_AT) != FLAGS_UNFRAGMENTED
        ):
            return offset, NOT_A_FRAME
        if offset + align_frame(frame_length) > limit:
            return offset, align_frame(frame_length)
        offset += align_frame(frame_length)
    return offset, 0


def whole_frames(
    buffer: np.ndarray, start: int, limit: int, frame_length_max: int, is_log_allowed: bool
) -> tuple[int, int]:
    """Return where the whole frames of ``buffer[start:limit]`` end, and what follows them.

    What follows is 0 for less than a header, the aligned length of a frame that is not whole yet, or
    ``NOT_A_FRAME``: a length below 32 or above ``frame_length_max``, a version other than 0, an unknown
    type, or, unless ``is_log_allowed``, padding or a fragment.
    """
    assert 0 <= start <= limit <= len(buffer)
    end, follows = find_whole_frames(buffer, start, limit, frame_length_max, is_log_allowed)
    return end, follows


def headers(run: Buffer, start: int = 0, end: int | None = None) -> Iterator[tuple[int, DataFrameHeader]]:
    """Offset and header of each frame of ``run[start:end]``, which holds whole frames."""
    limit = len(run) if end is None else end
    offset = start
    while offset < limit:
        header = header_at(run, offset)
        assert header.frame_length >= HEADER_LENGTH
        yield offset, header
        offset += header.aligned_length


def last_frame(run: Buffer) -> tuple[int, DataFrameHeader]:
    """Offset and header of the last frame of a run, which has at least one."""
    assert len(run) > 0
    for frame in headers(run):
        last = frame
    return last
