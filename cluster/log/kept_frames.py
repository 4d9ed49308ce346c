"""Answers to supervised sessions as the frames that their clients are sent, kept until they have them.

    a stream: one service's answers to one session, in a buffer of its own
       free | BEGIN ── in flight ── SENT ── waiting ── END | free

A row of words a stream, and one array for all rows. What is of a whole session stands in the row of its first
stream, its head, which the session's slot points to (``KEPT_AT``); the others follow by NEXT. Kernels move
what a buffer has, but the buffers are Python's: whoever lacks room, or a row, leaves the answer to it
(``consensus/kept_answers.py``).
"""

import numpy as np
from numba import types

from cluster.log.calls import viewer
from cluster.log.frames import LEADERSHIP_TERM_ID_AT, align_frame
from cluster.log.kernel import kernel, routine
from cluster.log.memory import (
    BYTES,
    BYTES_OUT,
    I64,
    WORDS,
    WORDS_OUT,
    copy_bytes,
    get_i32,
    get_i64,
    put_i64,
)
from cluster.log.session_frames import ANSWERED_NUMBER, FRAME_OVERHEAD, is_row_wrong, put_frame
from cluster.log.session_table import KEPT_AT, find_slot
from cluster.protocol import streams
from cluster.protocol.frame import HEADER_LENGTH, RESERVED_VALUE_AT
from cluster.protocol.sbe import NULL_VALUE
from cluster.protocol.session import ANSWER_NUMBER_BITS

# Words of a row. Numbers count the service's answers to the session, from 1 on.
SESSION_ID, SERVICE_ID, CAME, TAKEN, ADDRESS, SIZE, BEGIN, SENT, END, NEXT = range(10)
# Of a head, for its session.
CONNECTION_ID, IS_TOUCHED, KEPT_BYTES, IN_FLIGHT_BYTES = range(10, 14)
ROW_WORDS = 16
# Words before the rows.
BYTES_MAX, KEPT_BYTES_MAX, TOUCHED_COUNT, TOUCHED_AT = range(4)
HEADER_WORDS = 16

NUMBER_MASK = (1 << ANSWER_NUMBER_BITS) - 1

bytes_at = viewer(np.dtype(np.uint8), BYTES_OUT)


@routine
def find_stream(kept, head, service_id):  # type: ignore[no-untyped-def]
    """The row of the service's answers, of the session with this head; 0 when there is none."""
    row = head
    while row != 0 and kept[row + SERVICE_ID] != service_id:
        row = kept[row + NEXT]
    return row


@routine
def _number_at(frames, offset):  # type: ignore[no-untyped-def]
    return get_i64(frames, offset + RESERVED_VALUE_AT) & NUMBER_MASK


@routine
def _drop_first(kept, head, row, frames):  # type: ignore[no-untyped-def]
    begin = kept[row + BEGIN]
    length = align_frame(get_i32(frames, begin))
    kept[row + BEGIN] = begin + length
    kept[head + KEPT_BYTES] -= length
    if kept[row + SENT] > begin:
        kept[head + IN_FLIGHT_BYTES] -= length
    else:
        kept[row + SENT] = begin + length


@routine
def _has_room(kept, row, frames, length):  # type: ignore[no-untyped-def]
    """Whether the stream's buffer takes so many bytes more, perhaps after a move of what it has."""
    begin, end = kept[row + BEGIN], kept[row + END]
    if begin == end:
        kept[row + BEGIN] = kept[row + SENT] = kept[row + END] = begin = end = 0
    if length <= kept[row + SIZE] - end:
        return True
    if length > kept[row + SIZE] - (end - begin) or begin < end - begin:
        return False
    copy_bytes(frames, 0, frames, begin, end - begin)
    kept[row + BEGIN] = 0
    kept[row + SENT] -= begin
    kept[row + END] -= begin
    return True


@routine
def _touch(kept, head):  # type: ignore[no-untyped-def]
    """Have the leader look what it may send of the session."""
    if kept[head + IS_TOUCHED] == 0:
        kept[head + IS_TOUCHED] = 1
        kept[kept[TOUCHED_AT] + kept[TOUCHED_COUNT]] = head
        kept[TOUCHED_COUNT] += 1


@kernel(types.void(WORDS_OUT, I64))
def touch(kept, head):  # type: ignore[no-untyped-def]
    _touch(kept, head)


@kernel(I64(WORDS_OUT, WORDS, WORDS, WORDS, WORDS, WORDS, WORDS, WORDS, BYTES, I64))
def keep_run(  # type: ignore[no-untyped-def]
    kept, sessions, session_ids, timestamps, offsets, lengths, numbers, answer_ids, buffer, row
):
    """Keep the answers from ``row`` on that have an id, but for those that came before or are taken.

    Returns the row that Python has to make room for, as many as there are when there is none, or -1 - row
    for a payload that lies outside of ``buffer``. Answers to sessions that are closed are dropped.
    """
    head = 0
    for i in range(row, session_ids.size):
        answer_id = answer_ids[i]
        if answer_id == 0:
            continue
        if is_row_wrong(offsets[i], lengths[i], buffer.size):
            return -1 - i
        slot = find_slot(sessions, session_ids[i])
        if slot < 0:
            continue
        head = sessions[slot + KEPT_AT]
        stream = find_stream(kept, head, answer_id >> ANSWER_NUMBER_BITS)
        if stream == 0:
            return i
        number = answer_id & NUMBER_MASK
        if number <= kept[stream + CAME]:
            continue
        if number <= kept[stream + TAKEN]:
            kept[stream + CAME] = number
            continue
        frames = bytes_at(kept[stream + ADDRESS], kept[stream + SIZE])
        length = align_frame(FRAME_OVERHEAD + lengths[i])
        while (
            kept[head + KEPT_BYTES] + length > kept[KEPT_BYTES_MAX]
            and kept[stream + BEGIN] < kept[stream + END]
        ):
            _drop_first(kept, head, stream, frames)
        if not _has_room(kept, stream, frames, length):
            return i
        begin = kept[stream + END]
        kept[stream + END] = put_frame(
            frames,
            begin,
            streams.EGRESS,
            NULL_VALUE,
            session_ids[i],
            timestamps[i],
            buffer,
            offsets[i],
            lengths[i],
        )
        put_i64(frames, begin + ANSWERED_NUMBER, numbers[i] if numbers.size > 1 else numbers[0])
        put_i64(frames, begin + RESERVED_VALUE_AT, answer_id)
        kept[head + KEPT_BYTES] += length
        kept[stream + CAME] = number
        if kept[head + CONNECTION_ID] != NULL_VALUE:
            _touch(kept, head)
    return session_ids.size


@kernel(types.boolean(WORDS_OUT, I64, I64, I64))
def take_answers(kept, head, row, number):  # type: ignore[no-untyped-def]
    """The client has the answers of a stream up to ``number``; whether that is news."""
    if number <= kept[row + TAKEN]:
        return False
    kept[row + TAKEN] = number
    frames = bytes_at(kept[row + ADDRESS], kept[row + SIZE])
    while kept[row + BEGIN] < kept[row + END] and _number_at(frames, kept[row + BEGIN]) <= number:
        _drop_first(kept, head, row, frames)
    return True


@kernel(types.boolean(WORDS, I64))
def has_gap(kept, row):  # type: ignore[no-untyped-def]
    """Whether an answer that the client lacks is kept no more."""
    frames = bytes_at(kept[row + ADDRESS], kept[row + SIZE])
    begin = kept[row + BEGIN]
    return begin < kept[row + END] and _number_at(frames, begin) > kept[row + TAKEN] + 1


@kernel(types.UniTuple(I64, 3)(WORDS_OUT, I64, I64))
def send_next(kept, head, leadership_term_id):  # type: ignore[no-untyped-def]
    """A run of frames that is to be sent now: row, begin and end in its buffer; 0 when there is none.

    No more than BYTES_MAX of a session are in flight, but for what the last frame has beyond it.
    """
    row = head
    while row != 0:
        frames = bytes_at(kept[row + ADDRESS], kept[row + SIZE])
        begin = end = kept[row + SENT]
        while end < kept[row + END] and kept[head + IN_FLIGHT_BYTES] < kept[BYTES_MAX]:
            put_i64(frames, end + HEADER_LENGTH + LEADERSHIP_TERM_ID_AT, leadership_term_id)
            length = align_frame(get_i32(frames, end))
            kept[head + IN_FLIGHT_BYTES] += length
            end += length
        if end > begin:
            kept[row + SENT] = end
            return row, begin, end
        row = kept[row + NEXT]
    return 0, 0, 0
