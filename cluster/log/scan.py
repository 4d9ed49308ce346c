"""Where frames and messages end, and whether they are what they should be.

Frames can only be walked forwards, from where one is known to begin: the start of a term, of a segment, or
any position that a log, a commit or a snapshot has named. A walk reads only the length of each frame.
"""

from collections.abc import Sequence

import numpy as np
from numba import types

from cluster.log.frames import (
    FRAGMENTED,
    INITIAL_TERM_ID,
    MTU,
    POSITION_BITS,
    SBE_HEADER_LENGTH,
    SCHEMA_ID,
    SESSION_ID,
    SKIP,
    STREAM_ID,
    TERM_LENGTH,
    WHOLE,
    LogParams,
    align_frame,
    framed_length,
    next_message,
    wrap_i32,
)
from cluster.log.kernel import kernel, routine
from cluster.log.memory import BYTES, I64, WORDS, WORDS_OUT, get_i32, get_i64, get_u8, get_u16
from cluster.protocol import streams
from cluster.protocol.frame import (
    DATA_FRAME_HEADER,
    FLAG_BEGIN,
    FLAG_END,
    FLAGS_AT,
    FLAGS_UNFRAGMENTED,
    FRAME_ALIGNMENT,
    HEADER_LENGTH,
    RESERVED_VALUE_AT,
    SESSION_ID_AT,
    STREAM_ID_AT,
    TERM_ID_AT,
    TERM_OFFSET_AT,
    TYPE_AT,
    TYPE_DATA,
    TYPE_PAD,
    VERSION_AT,
    header_at,
)
from cluster.protocol.sbe import SCHEMA_ID_AT, TEMPLATE_ID_AT


def frame_starts(run: np.ndarray) -> np.ndarray:
    """Offset of each frame of a run that holds whole frames."""
    lengths = run.view(DATA_FRAME_HEADER)["frame_length"].astype(np.int64)
    counts = (-(-lengths // FRAME_ALIGNMENT)).tolist()
    starts, at = [], 0
    while at < len(counts):
        assert counts[at] > 0
        starts.append(at)
        at += counts[at]
    return np.array(starts, np.int64) * FRAME_ALIGNMENT


@kernel(I64(BYTES, I64, I64))
def _last_message_end(buffer, offset, limit):  # type: ignore[no-untyped-def]
    while True:
        kind, end = next_message(buffer, offset, limit)
        if kind != WHOLE and kind != FRAGMENTED and kind != SKIP:
            return offset
        offset = end


def last_message_end(buffer: np.ndarray, offset: int, limit: int) -> int:
    """End of the last whole message (or padding) in ``buffer[offset:limit]``: no message is cut there."""
    assert offset % FRAME_ALIGNMENT == 0
    assert 0 <= offset <= limit <= buffer.size
    return _last_message_end(buffer, offset, limit)


@kernel(I64(BYTES, I64, I64, WORDS, WORDS_OUT))
def _split(buffer, offset, limit, cuts, out):  # type: ignore[no-untyped-def]
    for i in range(cuts.size):
        while offset < cuts[i]:
            kind, end = next_message(buffer, offset, limit)
            if kind != WHOLE and kind != FRAGMENTED and kind != SKIP:
                break
            offset = end
        out[i] = offset
    return offset


def split(buffer: np.ndarray, start: int, limit: int, cuts: Sequence[int] | np.ndarray) -> np.ndarray:
    """For each of the ascending offsets ``cuts``, the first message boundary at or after it.

    ``start`` is a boundary. What lies between two results is a run that no message crosses; a result below
    its cut says that the run ends there.
    """
    assert start % FRAME_ALIGNMENT == 0
    assert 0 <= start <= limit <= buffer.size
    wanted = np.ascontiguousarray(cuts, np.int64)
    assert (np.diff(wanted) >= 0).all()
    boundaries = np.empty(wanted.size, np.int64)
    _split(buffer, start, limit, wanted, boundaries)
    return boundaries


# What check_run found wrong with a frame, in the order in which it looks.
FINE, FRAME_LENGTH, FRAME_TYPE, TERM_OFFSET, TERM_ID, STREAM, RESERVED = range(7)
SESSION, TERM_END, PADDING, FRAGMENT = range(7, 11)
FAULTS = {
    FRAME_LENGTH: "frame length {frame_length}",
    FRAME_TYPE: "version, flags and type {flags_and_type:#010x}",
    TERM_OFFSET: "term offset {term_offset}",
    TERM_ID: "term id {term_id}",
    STREAM: "stream id {stream_id}",
    RESERVED: "reserved value {reserved_value:#x}",
    SESSION: "session id {session_id}",
    TERM_END: "frame length {frame_length} crosses the end of the term",
    PADDING: "bytes of the padding are not zero",
    FRAGMENT: "version, flags and type {flags_and_type:#010x} that no whole message has here",
}

NEW_LEADERSHIP_TERM_EVENT = 24
TERM_EVENT_LENGTH = 56
# Of the message that the frame before belongs to.
UNKNOWN, ENDED, OPEN = range(3)


@routine
def _is_zero(buffer, offset, end):  # type: ignore[no-untyped-def]
    while end - offset >= 8:
        if get_i64(buffer, offset) != 0:
            return False
        offset += 8
    while offset < end:
        if get_u8(buffer, offset) != 0:
            return False
        offset += 1
    return True


@routine
def _fault(buffer, offset, position, params, is_recording):  # type: ignore[no-untyped-def]
    """What is wrong with the frame, known to be whole, that should be the one at ``position``."""
    frame_length = get_i32(buffer, offset)
    frame_type = get_u16(buffer, offset + TYPE_AT)
    flags = get_u8(buffer, offset + FLAGS_AT)
    if get_u8(buffer, offset + VERSION_AT) != 0 or frame_type > TYPE_DATA or flags & ~FLAGS_UNFRAGMENTED != 0:
        return FRAME_TYPE
    if frame_type == TYPE_PAD and flags != FLAGS_UNFRAGMENTED:
        return FRAME_TYPE
    term_offset = position & (params[TERM_LENGTH] - 1)
    if get_i32(buffer, offset + TERM_OFFSET_AT) != term_offset:
        return TERM_OFFSET
    if get_i32(buffer, offset + TERM_ID_AT) != wrap_i32(
        (position >> params[POSITION_BITS]) + params[INITIAL_TERM_ID]
    ):
        return TERM_ID
    if get_i32(buffer, offset + STREAM_ID_AT) != params[STREAM_ID]:
        return STREAM
    if get_i64(buffer, offset + RESERVED_VALUE_AT) != 0:
        return RESERVED
    if not is_recording and get_i32(buffer, offset + SESSION_ID_AT) != params[SESSION_ID]:
        return SESSION
    if term_offset + align_frame(frame_length) > params[TERM_LENGTH]:
        return TERM_END
    if frame_type == TYPE_DATA and frame_length > params[MTU]:
        return FRAME_LENGTH
    is_log = params[STREAM_ID] == streams.LOG
    if frame_type == TYPE_PAD and is_log and term_offset + align_frame(frame_length) < params[TERM_LENGTH]:
        return FRAME_TYPE
    if is_recording:
        return FINE
    body = offset + HEADER_LENGTH if frame_type == TYPE_PAD else offset + frame_length
    return FINE if _is_zero(buffer, body, offset + align_frame(frame_length)) else PADDING


@routine
def _begins_term(buffer, offset):  # type: ignore[no-untyped-def]
    message = offset + HEADER_LENGTH
    return (
        get_i32(buffer, offset) >= HEADER_LENGTH + SBE_HEADER_LENGTH
        and get_u16(buffer, message + TEMPLATE_ID_AT) == NEW_LEADERSHIP_TERM_EVENT
        and get_u16(buffer, message + SCHEMA_ID_AT) == SCHEMA_ID
    )


@routine
def _is_misplaced(buffer, offset, message, mtu):  # type: ignore[no-untyped-def]
    """Whether the frame cannot follow one of a ``message`` that has ended, or is still open.

    A leader may leave a message unfinished: a new term begins after it, and after the padding for that.
    """
    flags = get_u8(buffer, offset + FLAGS_AT)
    if get_u16(buffer, offset + TYPE_AT) == TYPE_PAD:
        return message == OPEN and get_i32(buffer, offset) >= framed_length(TERM_EVENT_LENGTH, mtu)
    if flags & FLAG_BEGIN == 0:
        return message == ENDED
    return message == OPEN and not _begins_term(buffer, offset)


@kernel(types.UniTuple(I64, 2)(BYTES, I64, I64, I64, WORDS, types.boolean))
def check_frames(buffer, offset, end, position, params, is_recording):  # type: ignore[no-untyped-def]
    position -= offset  # of buffer[0]
    message = UNKNOWN
    if (position + offset) & (params[TERM_LENGTH] - 1) == 0:
        message = ENDED  # none crosses the end of a term
    before = offset
    while offset < end:
        if end - offset < HEADER_LENGTH:
            return offset, FRAME_LENGTH
        frame_length = get_i32(buffer, offset)
        if frame_length < HEADER_LENGTH or align_frame(frame_length) > end - offset:
            return offset, FRAME_LENGTH
        fault = _fault(buffer, offset, position + offset, params, is_recording)
        if fault != FINE:
            return offset, fault
        if _is_misplaced(buffer, offset, message, params[MTU]):
            return before, FRAGMENT  # the flags of either may be wrong
        if get_u16(buffer, offset + TYPE_AT) == TYPE_DATA:
            message = ENDED if get_u8(buffer, offset + FLAGS_AT) & FLAG_END != 0 else OPEN
            before = offset
        offset += align_frame(frame_length)
    return offset, FINE


def check_run(
    buffer: np.ndarray,
    start: int,
    end: int,
    position: int,
    params: LogParams,
    *,
    is_recording: bool = False,
) -> int:
    """End of the part of ``buffer[start:end]`` that joins on to a log that ends at ``position``.

    Every frame of it is whole, at its place (term id, term offset), of the log's stream and session, at most
    an MTU long, with zeros after its payload; padding is zero throughout. Fragments follow each other as
    those of whole messages do; where they do not, the run ends before the two that do not fit. With
    ``is_recording`` the session may be any (a recording holds those of all its leaders, or checksums) and
    padding is not looked at (Aeron writes only the header of a padding frame, and leaves stale bytes after
    a payload).
    """
    return find_fault(buffer, start, end, position, params, is_recording=is_recording)[0]


def fault_at(
    buffer: np.ndarray,
    start: int,
    end: int,
    position: int,
    params: LogParams,
    *,
    is_recording: bool = False,
) -> str:
    """What is wrong where check_run ended, for an error message; "" when nothing is."""
    offset, fault = find_fault(buffer, start, end, position, params, is_recording=is_recording)
    if fault == FINE:
        return ""
    header = header_at(buffer, offset)
    flags_and_type = header.version | header.flags << 8 | header.type << 16
    return FAULTS[fault].format(**header._asdict(), flags_and_type=flags_and_type)


def find_fault(
    buffer: np.ndarray, start: int, end: int, position: int, params: LogParams, *, is_recording: bool = False
) -> tuple[int, int]:
    """As check_run, with why it ended there: FINE, or a key of FAULTS for the frame that begins there."""
    assert position % FRAME_ALIGNMENT == 0
    assert 0 <= start <= end <= buffer.size
    valid_end, fault = check_frames(buffer, start, end, position, params.words, is_recording)
    return valid_end, fault
