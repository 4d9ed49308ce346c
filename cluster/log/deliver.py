"""The committed log as a service takes it: runs of session messages in columns, all else one by one.

Follows Aeron's BoundedLogAdapter: padding is skipped, fragments are joined, nothing at or beyond the limit is
taken, and of a message whose last frame lies beyond it not the first. What is no session message stops the
run, and Python reads it with ``read_message``.
"""

import numpy as np
from numba import types

from cluster.log.frames import (
    CLUSTER_SESSION_ID_AT,
    DAMAGED,
    DONE,
    FRAGMENTED,
    INCOMPLETE,
    MALFORMED,
    OTHER_MESSAGE,
    OUT_FULL,
    SBE_HEADER_LENGTH,
    SCHEMA_ID,
    SESSION_MESSAGE_BLOCK,
    SESSION_MESSAGE_HEADER,
    SKIP,
    TIMESTAMP_AT,
    WHOLE,
    gather,
    next_message,
)
from cluster.log.kernel import kernel, routine
from cluster.log.memory import BYTES, BYTES_OUT, I64, WORDS_OUT, copy_bytes, get_i32, get_i64, get_u16
from cluster.log.message_columns import EXTRA, LENGTHS, OFFSETS, SESSION_IDS, TIMESTAMPS, MessageColumns
from cluster.protocol.frame import FRAME_ALIGNMENT, HEADER_LENGTH, header_at
from cluster.protocol.sbe import SCHEMA_ID_AT, TEMPLATE_ID_AT


class DeliveredMessages(MessageColumns):
    """A reusable batch of committed messages: a row a message, the payloads in one ``buffer``.

    ``buffer`` is the log's own array while no message of the batch is fragmented (nothing is copied), and
    else a buffer of this object into which all of the batch's payloads were copied. Either way columns and
    payloads hold until the next ``deliver``. The ids of services' own messages are negative.
    """

    __slots__ = ("side",)

    def __init__(self, rows: int = 4096, message_length_max: int = 16 * 1024 * 1024) -> None:
        super().__init__(rows)
        # With the frame headers that it is fragmented by, a message takes at most twice its length; memory
        # that is never touched costs nothing.
        self.side = np.empty(2 * message_length_max, np.uint8)

    @property
    def positions(self) -> np.ndarray:
        """End position of each: what a service sees as the log position."""
        return self._column(EXTRA)


@routine
def _move_to_side(buffer, columns, rows, row, side):  # type: ignore[no-untyped-def]
    """Copy the payloads of the first ``row`` rows one after the other into ``side``; return their end."""
    side_end = 0
    for moved in range(row):
        length = columns[LENGTHS * rows + moved]
        copy_bytes(side, side_end, buffer, columns[OFFSETS * rows + moved], length)
        columns[OFFSETS * rows + moved] = side_end
        side_end += length
    return side_end


@kernel(types.UniTuple(I64, 4)(BYTES, I64, I64, I64, WORDS_OUT, I64, BYTES_OUT))
def deliver_run(buffer, offset, limit, position, columns, rows, side):  # type: ignore[no-untyped-def]
    row = 0
    start = offset
    position -= offset  # of buffer[0]
    side_end = 0
    is_in_side = 0
    while row < rows:
        kind, end = next_message(buffer, offset, limit)
        if kind == SKIP:
            offset = end
            continue
        if kind == INCOMPLETE:
            return DONE, offset, row, is_in_side
        if kind == DAMAGED:
            return MALFORMED, offset, row, is_in_side
        message = offset + HEADER_LENGTH
        message_end = offset + get_i32(buffer, offset)  # in the first frame, which holds the SBE header
        if message_end - message < SBE_HEADER_LENGTH:
            return MALFORMED, offset, row, is_in_side
        template_id = get_u16(buffer, message + TEMPLATE_ID_AT)
        if template_id != SESSION_MESSAGE_HEADER or get_u16(buffer, message + SCHEMA_ID_AT) != SCHEMA_ID:
            return OTHER_MESSAGE, offset, row, is_in_side
        block_length = get_u16(buffer, message)
        if block_length < SESSION_MESSAGE_BLOCK:
            return MALFORMED, offset, row, is_in_side

        if row == 0:
            start = offset
        if kind == FRAGMENTED or is_in_side == 1:
            if end - start > side.size:  # at least what the messages of the batch take
                return (OUT_FULL if row > 0 else MALFORMED), offset, row, is_in_side
            if is_in_side == 0:
                side_end = _move_to_side(buffer, columns, rows, row, side)
                is_in_side = 1
            message = side_end
            side_end = message_end = gather(buffer, offset, end, side, message)
        payload = message + SBE_HEADER_LENGTH + block_length
        if payload > message_end:
            return MALFORMED, offset, row, is_in_side
        if is_in_side == 1:
            columns[SESSION_IDS * rows + row] = get_i64(side, message + CLUSTER_SESSION_ID_AT)
            columns[TIMESTAMPS * rows + row] = get_i64(side, message + TIMESTAMP_AT)
        else:
            columns[SESSION_IDS * rows + row] = get_i64(buffer, message + CLUSTER_SESSION_ID_AT)
            columns[TIMESTAMPS * rows + row] = get_i64(buffer, message + TIMESTAMP_AT)
        columns[EXTRA * rows + row] = position + end
        columns[OFFSETS * rows + row] = payload
        columns[LENGTHS * rows + row] = message_end - payload
        row += 1
        offset = end
    return OUT_FULL, offset, row, is_in_side


def deliver(
    buffer: np.ndarray, start: int, limit: int, position: int, messages: DeliveredMessages
) -> tuple[int, int]:
    """Fill ``messages`` from ``buffer[start:limit]``; return (status, consumed).

    ``position`` is that of ``buffer[start]``, which begins a frame; ``limit`` is where the commit position
    lies. ``consumed`` is the offset of the first frame not taken; the columns end before it.

    DONE            nothing whole is left below the limit
    OUT_FULL        handle the rows, then go on from ``consumed``
    OTHER_MESSAGE   handle the rows, then read_message at ``consumed``
    MALFORMED       what no cluster writes: the log is damaged at ``consumed``
    """
    assert start % FRAME_ALIGNMENT == 0
    assert 0 <= start <= limit <= buffer.size
    status, consumed, messages.count, is_in_side = deliver_run(
        buffer, start, limit, position, messages.words, messages.rows, messages.side
    )
    messages.buffer = messages.side if is_in_side else buffer
    return status, consumed


@kernel(types.UniTuple(I64, 2)(BYTES, I64, I64))
def _next_message(buffer, offset, limit):  # type: ignore[no-untyped-def]
    return next_message(buffer, offset, limit)


@kernel(I64(BYTES, I64, I64, BYTES_OUT))
def _gather(buffer, offset, end, out):  # type: ignore[no-untyped-def]
    return gather(buffer, offset, end, out, 0)


def read_message(buffer: np.ndarray, start: int, limit: int) -> tuple[bytes | None, int]:
    """The message that begins at ``start``, SBE header included and joined from its frames, and its end.

    (None, end) for padding and fragments of nothing, which are to be skipped; (None, start) when no message
    that begins there is whole below the limit.
    """
    assert 0 <= start <= limit <= buffer.size
    kind, end = _next_message(buffer, start, limit)
    if kind == WHOLE:
        frame_end = start + header_at(buffer, start).frame_length
        return buffer[start + HEADER_LENGTH : frame_end].tobytes(), end
    if kind == FRAGMENTED:
        message = np.empty(end - start, np.uint8)
        return message[: _gather(buffer, start, end, message)].tobytes(), end
    return None, end
