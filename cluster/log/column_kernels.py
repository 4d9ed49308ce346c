"""Log entries into Arrow's memory: the two passes of ``columns.py``.

The first pass counts, so that the second can write each value where it stays: all columns of a batch lie in
one slab, and ``layout`` has three offsets into it for each column (-1: nothing to write there):

    validity  a bit a row            columns that every entry has and that cannot be null have none
    values    8 or 4 bytes a row     or for strings and bytes: the i32 offsets, one more than rows
    data      the strings and bytes

Bits start as ones in columns that a session message has, as zeros in the others, so that of the commonest
entry none has to be touched. Columns that no entry of the batch has are not laid out at all.
"""

import numpy as np
from numba import types

from cluster.log.frames import (
    DAMAGED,
    DONE,
    FRAGMENTED,
    INCOMPLETE,
    MALFORMED,
    OUT_FULL,
    SBE_HEADER_LENGTH,
    SCHEMA_ID,
    SKIP,
    gather,
    next_message,
)
from cluster.log.kernel import kernel, routine
from cluster.log.memory import (
    BYTES,
    BYTES_OUT,
    I64,
    WORDS_OUT,
    copy_bytes,
    get_i32,
    get_i64,
    get_u8,
    get_u16,
    get_u32,
    put_i32,
    put_i64,
    put_u8,
)
from cluster.protocol.frame import HEADER_LENGTH
from cluster.protocol.sbe import SCHEMA_ID_AT, SCHEMA_VERSION_AT, TEMPLATE_ID_AT

# Entry types, in the order of their template ids 1, 20 .. 24; OTHER is skipped.
SESSION_MESSAGE, TIMER, SESSION_OPEN, SESSION_CLOSE, CLUSTER_ACTION, NEW_LEADERSHIP_TERM, OTHER = range(7)
# The shortest block that a version of the schema had for each: without flags, timeUnit and appVersion.
BLOCK_LENGTH_MIN = np.array([24, 24, 36, 28, 28, 40, 0], np.int64)

# Columns, in the order of the row schema.
POSITION, END_POSITION, LEADERSHIP_TERM_ID, ENTRY_TYPE, TIMESTAMP, CLUSTER_TIME = range(6)
CLUSTER_SESSION_ID, CORRELATION_ID, PAYLOAD = range(6, 9)
RESPONSE_STREAM_ID, RESPONSE_CHANNEL, ENCODED_PRINCIPAL, CLOSE_REASON, ACTION, ACTION_FLAGS = range(9, 15)
TERM_BASE_LOG_POSITION, LEADER_MEMBER_ID, LOG_SESSION_ID, TIME_UNIT, APP_VERSION = range(15, 20)
COLUMN_COUNT = 20

VALIDITY, VALUES, DATA = range(3)  # within a column's part of layout
# After the columns, for the five columns whose strings are rare: how many rows have their offset.
FILLED_AT = 3 * COLUMN_COUNT
LAYOUT_WORDS = 4 * COLUMN_COUNT

# What the first pass counts: rows by entry type (OTHER: skipped), then
PAYLOAD_LENGTH, OPEN_LENGTH, FRAGMENTED_LENGTH_MAX = range(7, 10)
COUNT_WORDS = 10

NULL_I64 = -0x8000_0000_0000_0000
NULL_I32 = -0x8000_0000
MILLIS, MICROS, NANOS = range(3)
DATA_LENGTH_MAX = 0x7FFF_0000  # i32 offsets, and room to spare
WORD_SLACK = 32  # bytes that a name's last words may write beyond its end

ENTRY_TYPE_NAMES = (
    "SESSION_MESSAGE",
    "TIMER",
    "SESSION_OPEN",
    "SESSION_CLOSE",
    "CLUSTER_ACTION",
    "NEW_LEADERSHIP_TERM",
)
CLOSE_REASON_NAMES = ("CLIENT_ACTION", "SERVICE_ACTION", "TIMEOUT")
ACTION_NAMES = ("SUSPEND", "RESUME", "SNAPSHOT")
TIME_UNIT_NAMES = ("MILLIS", "MICROS", "NANOS")


def _names(names: tuple[str, ...]) -> np.ndarray:
    """A row a name: its length, then its bytes in three words."""
    table = np.zeros((len(names), 4), np.int64)
    for row, name in enumerate(names):
        table[row, 0] = len(name)
        table[row, 1:] = np.frombuffer(name.encode().ljust(24, b"\0"), np.int64)
    return table


_ENTRY_TYPES = _names(ENTRY_TYPE_NAMES)
_CLOSE_REASONS = _names(CLOSE_REASON_NAMES)
_ACTIONS = _names(ACTION_NAMES)
_TIME_UNITS = _names(TIME_UNIT_NAMES)


@routine
def _entry_type(source, message):  # type: ignore[no-untyped-def]
    template_id = get_u16(source, message + TEMPLATE_ID_AT)
    if get_u16(source, message + SCHEMA_ID_AT) != SCHEMA_ID:
        return OTHER
    if template_id == 1:
        return SESSION_MESSAGE
    if 20 <= template_id <= 24:
        return TIMER + template_id - 20
    return OTHER


@routine
def _message_length(buffer, offset, end):  # type: ignore[no-untyped-def]
    length = 0
    while offset < end:
        frame_length = get_i32(buffer, offset)
        length += frame_length - HEADER_LENGTH
        offset += (frame_length + 31) & ~31
    return length


@kernel(types.UniTuple(I64, 3)(BYTES, I64, I64, I64, I64, I64, WORDS_OUT))
def count_rows(buffer, offset, to_offset, limit, entry_mask, rows_max, counts):  # type: ignore[no-untyped-def]
    """Count the entries that begin in ``buffer[offset:to_offset]``; return (status, end offset, rows).

    An entry may go on beyond ``to_offset``, up to ``limit``. Ends before an entry that is not whole (DONE),
    one that cannot be (MALFORMED), and when there are enough rows or bytes of payload (OUT_FULL).
    """
    rows = 0
    while offset < to_offset:
        kind, end = next_message(buffer, offset, limit)
        if kind == SKIP:
            offset = end
            continue
        if kind == INCOMPLETE:
            return DONE, offset, rows
        message = offset + HEADER_LENGTH
        frame_length = get_i32(buffer, offset)
        if kind == DAMAGED or frame_length < HEADER_LENGTH + SBE_HEADER_LENGTH:
            return MALFORMED, offset, rows
        entry_type = _entry_type(buffer, message)
        is_wanted = entry_mask >> entry_type & 1 == 1
        if not is_wanted and entry_type != OTHER and entry_type != NEW_LEADERSHIP_TERM:
            offset = end
            continue
        block_end = SBE_HEADER_LENGTH + get_u16(buffer, message)
        if block_end < SBE_HEADER_LENGTH + BLOCK_LENGTH_MIN[entry_type]:
            return MALFORMED, offset, rows
        length = frame_length - HEADER_LENGTH
        if kind == FRAGMENTED:
            length = _message_length(buffer, offset, end)
        if entry_type == OTHER:
            counts[OTHER] += 1
            offset = end
            continue
        if block_end > length:
            return MALFORMED, offset, rows
        if kind == FRAGMENTED:
            counts[FRAGMENTED_LENGTH_MAX] = max(counts[FRAGMENTED_LENGTH_MAX], length)
        if not is_wanted:
            offset = end
            continue
        if rows == rows_max or counts[PAYLOAD_LENGTH] + counts[OPEN_LENGTH] + length > DATA_LENGTH_MAX:
            return OUT_FULL, offset, rows
        if entry_type == SESSION_MESSAGE:
            counts[PAYLOAD_LENGTH] += length - block_end
        elif entry_type == SESSION_OPEN:
            counts[OPEN_LENGTH] += length
        counts[entry_type] += 1
        rows += 1
        offset = end
    return DONE, offset, rows


@routine
def _set_bit(slab, at, row):  # type: ignore[no-untyped-def]
    put_u8(slab, at + (row >> 3), get_u8(slab, at + (row >> 3)) | 1 << (row & 7))


@routine
def _clear_bit(slab, at, row):  # type: ignore[no-untyped-def]
    put_u8(slab, at + (row >> 3), get_u8(slab, at + (row >> 3)) & ~(1 << (row & 7)))


@routine
def _put_common(slab, layout, column, row, value):  # type: ignore[no-untyped-def]
    """An i64 of a column that a session message has: its bit is set already."""
    at = layout[3 * column + VALUES]
    if at >= 0:
        put_i64(slab, at + 8 * row, value)
        if value == NULL_I64:
            put_i64(slab, at + 8 * row, 0)
            _clear_bit(slab, layout[3 * column + VALIDITY], row)


@routine
def _put_long(slab, layout, column, row, value):  # type: ignore[no-untyped-def]
    at = layout[3 * column + VALUES]
    if at >= 0 and value != NULL_I64:
        put_i64(slab, at + 8 * row, value)
        _set_bit(slab, layout[3 * column + VALIDITY], row)


@routine
def _put_int(slab, layout, column, row, value, null):  # type: ignore[no-untyped-def]
    at = layout[3 * column + VALUES]
    if at >= 0 and value != null:
        put_i32(slab, at + 4 * row, value)
        _set_bit(slab, layout[3 * column + VALIDITY], row)


@routine
def _fill_offsets(slab, layout, column, row):  # type: ignore[no-untyped-def]
    """Write the offsets of the rows before ``row`` that have none; return where this row's bytes go."""
    at = layout[3 * column + VALUES]
    filled = layout[FILLED_AT + column]
    end = get_i32(slab, at + 4 * filled)
    for empty in range(filled + 1, row + 1):
        put_i32(slab, at + 4 * empty, end)
    layout[FILLED_AT + column] = row
    return end


@routine
def _end_offset(slab, layout, column, row, end):  # type: ignore[no-untyped-def]
    put_i32(slab, layout[3 * column + VALUES] + 4 * (row + 1), end)
    layout[FILLED_AT + column] = row + 1
    _set_bit(slab, layout[3 * column + VALIDITY], row)


@routine
def _put_bytes(slab, layout, column, row, source, offset, length, is_text):  # type: ignore[no-untyped-def]
    if layout[3 * column + VALUES] < 0:
        return
    begin = _fill_offsets(slab, layout, column, row)
    at = layout[3 * column + DATA] + begin
    copy_bytes(slab, at, source, offset, length)
    if is_text:  # declared ASCII; whatever else stands there must not be broken UTF-8
        for i in range(at, at + length):
            if get_u8(slab, i) >= 0x80:
                put_u8(slab, i, 0x3F)
    _end_offset(slab, layout, column, row, begin + length)


@routine
def _put_name(slab, layout, column, row, names, index):  # type: ignore[no-untyped-def]
    if layout[3 * column + VALUES] < 0 or index < 0 or index >= names.shape[0]:
        return
    begin = _fill_offsets(slab, layout, column, row)
    at = layout[3 * column + DATA] + begin
    for word in range(3):
        put_i64(slab, at + 8 * word, names[index, 1 + word])
    _end_offset(slab, layout, column, row, begin + names[index, 0])


@routine
def _microseconds(cluster_time, time_unit):  # type: ignore[no-untyped-def]
    """Null where a timestamp cannot hold it."""
    if time_unit == NANOS and cluster_time != NULL_I64:
        return cluster_time // 1000
    if time_unit == MILLIS and cluster_time != NULL_I64:
        if not -9_223_372_036_854_775 <= cluster_time <= 9_223_372_036_854_775:
            return NULL_I64
        return cluster_time * 1000
    return cluster_time


@routine
def _time_unit(source, message):  # type: ignore[no-untyped-def]
    """What a NewLeadershipTermEvent says that the log counts time in from here on; null means MILLIS."""
    if get_u16(source, message + SCHEMA_VERSION_AT) < 4 or get_u16(source, message) < 44:
        return MILLIS
    unit = get_i32(source, message + 48)
    return unit if unit in (MICROS, NANOS) else MILLIS


@routine
def _put_var_data(slab, layout, row, source, at, end):  # type: ignore[no-untyped-def]
    """responseChannel and encodedPrincipal; False when a length leads out of the message."""
    if end - at < 4:
        return False
    length = get_u32(source, at)
    principal_at = at + 4 + length  # beyond the end when the length is
    if end - principal_at < 4 or get_u32(source, principal_at) > end - principal_at - 4:
        return False
    _put_bytes(slab, layout, RESPONSE_CHANNEL, row, source, at + 4, length, True)
    principal_length = get_u32(source, principal_at)
    _put_bytes(slab, layout, ENCODED_PRINCIPAL, row, source, principal_at + 4, principal_length, False)
    return True


@routine
def _put_rare(source, message, end, slab, layout, row, entry_type, time_unit):  # type: ignore[no-untyped-def]
    """What a session message does not have; return the time unit that holds, or -1 for damage."""
    if layout[3 * PAYLOAD + VALUES] >= 0:
        _clear_bit(slab, layout[3 * PAYLOAD + VALIDITY], row)
    has_session = entry_type in (SESSION_OPEN, SESSION_CLOSE)
    if layout[3 * CLUSTER_SESSION_ID + VALUES] >= 0 and not has_session:
        _clear_bit(slab, layout[3 * CLUSTER_SESSION_ID + VALIDITY], row)
    block_length = get_u16(source, message)
    version = get_u16(source, message + SCHEMA_VERSION_AT)
    if entry_type == TIMER:
        _put_long(slab, layout, CORRELATION_ID, row, get_i64(source, message + 16))
    elif entry_type == SESSION_OPEN:
        _put_long(slab, layout, CORRELATION_ID, row, get_i64(source, message + 16))
        _put_common(slab, layout, CLUSTER_SESSION_ID, row, get_i64(source, message + 24))
        _put_int(slab, layout, RESPONSE_STREAM_ID, row, get_i32(source, message + 40), NULL_I32)
        if not _put_var_data(slab, layout, row, source, message + SBE_HEADER_LENGTH + block_length, end):
            return -1
    elif entry_type == SESSION_CLOSE:
        _put_common(slab, layout, CLUSTER_SESSION_ID, row, get_i64(source, message + 16))
        _put_name(slab, layout, CLOSE_REASON, row, _CLOSE_REASONS, get_i32(source, message + 32))
    elif entry_type == CLUSTER_ACTION:
        _put_name(slab, layout, ACTION, row, _ACTIONS, get_i32(source, message + 32))
        if version >= 11 and block_length >= 32:
            _put_int(slab, layout, ACTION_FLAGS, row, get_i32(source, message + 36), NULL_I32)
    else:
        _put_long(slab, layout, TERM_BASE_LOG_POSITION, row, get_i64(source, message + 32))
        _put_int(slab, layout, LEADER_MEMBER_ID, row, get_i32(source, message + 40), NULL_I32)
        _put_int(slab, layout, LOG_SESSION_ID, row, get_i32(source, message + 44), NULL_I32)
        time_unit = _time_unit(source, message)
        if version >= 4 and block_length >= 48:
            _put_name(slab, layout, TIME_UNIT, row, _TIME_UNITS, get_i32(source, message + 48))
            _put_int(slab, layout, APP_VERSION, row, get_i32(source, message + 52), 0)
    return time_unit


@routine
def _put_row(source, message, end, slab, layout, row, entry_type, time_unit):  # type: ignore[no-untyped-def]
    """Write the columns of ``source[message:end]``; return the time unit that holds, or -1 for damage."""
    if entry_type != SESSION_MESSAGE:
        time_unit = _put_rare(source, message, end, slab, layout, row, entry_type, time_unit)
        if time_unit < 0:
            return time_unit
    timestamp_at = 24 if entry_type != SESSION_OPEN else 32
    cluster_time = get_i64(source, message + timestamp_at)
    _put_common(slab, layout, LEADERSHIP_TERM_ID, row, get_i64(source, message + 8))
    _put_common(slab, layout, TIMESTAMP, row, _microseconds(cluster_time, time_unit))
    _put_common(slab, layout, CLUSTER_TIME, row, cluster_time)

    at = layout[3 * ENTRY_TYPE + VALUES]
    if at >= 0:
        begin = get_i32(slab, at + 4 * row)
        to = layout[3 * ENTRY_TYPE + DATA] + begin
        put_i64(slab, to, _ENTRY_TYPES[entry_type, 1])
        put_i64(slab, to + 8, _ENTRY_TYPES[entry_type, 2])
        put_i64(slab, to + 16, _ENTRY_TYPES[entry_type, 3])
        put_i32(slab, at + 4 * row + 4, begin + _ENTRY_TYPES[entry_type, 0])

    at = layout[3 * PAYLOAD + VALUES]
    length = 0
    if entry_type == SESSION_MESSAGE:
        _put_common(slab, layout, CLUSTER_SESSION_ID, row, get_i64(source, message + 16))
        payload = message + SBE_HEADER_LENGTH + get_u16(source, message)
        length = end - payload
        if at >= 0:
            begin = get_i32(slab, at + 4 * row)
            copy_bytes(slab, layout[3 * PAYLOAD + DATA] + begin, source, payload, length)
    if at >= 0:
        put_i32(slab, at + 4 * row + 4, get_i32(slab, at + 4 * row) + length)
    return time_unit


@kernel(types.UniTuple(I64, 3)(BYTES, I64, I64, I64, I64, I64, I64, BYTES_OUT, BYTES, BYTES_OUT, WORDS_OUT))
def fill_rows(  # type: ignore[no-untyped-def]
    buffer, offset, to_offset, limit, position, entry_mask, time_unit, scratch, joined, slab, layout
):
    """Write the rows of ``buffer[offset:to_offset]``; return (rows, end offset, time unit).

    ``to_offset`` is the end that count_rows returned, unless an entry is damaged within: the rows end before
    it then. ``scratch`` takes the longest fragmented message, and ``joined`` is the same array once more,
    read-only as ``buffer`` is, so that rows are compiled once. ``position`` is that of ``buffer[offset]``.
    """
    position -= offset  # of buffer[0]
    # Typed zeros: for a literal one numba would compile everything below once more.
    row, joined_begin = np.int64(0), np.int64(0)
    while offset < to_offset:
        kind, end = next_message(buffer, offset, limit)
        message = offset + HEADER_LENGTH
        entry_type = OTHER
        if kind != SKIP:
            entry_type = _entry_type(buffer, message)
        is_wanted = entry_mask >> entry_type & 1 == 1
        if not is_wanted and entry_type != NEW_LEADERSHIP_TERM:
            offset = end
            continue
        if kind == FRAGMENTED:
            length = gather(buffer, offset, end, scratch, 0)
            if is_wanted:
                unit = _put_row(joined, joined_begin, length, slab, layout, row, entry_type, time_unit)
            else:
                unit = _time_unit(joined, joined_begin)
        elif is_wanted:
            frame_end = offset + get_i32(buffer, offset)
            unit = _put_row(buffer, message, frame_end, slab, layout, row, entry_type, time_unit)
        else:
            unit = _time_unit(buffer, message)
        if unit < 0:
            break
        time_unit = unit
        if not is_wanted:
            offset = end
            continue
        at = layout[3 * POSITION + VALUES]
        if at >= 0:
            put_i64(slab, at + 8 * row, position + offset)
        at = layout[3 * END_POSITION + VALUES]
        if at >= 0:
            put_i64(slab, at + 8 * row, position + end)
        row += 1
        offset = end
    for column in (RESPONSE_CHANNEL, ENCODED_PRINCIPAL, CLOSE_REASON, ACTION, TIME_UNIT):
        if layout[3 * column + VALUES] >= 0:
            _fill_offsets(slab, layout, column, row)
    return row, offset, time_unit
