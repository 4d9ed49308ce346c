"""A service's own compiled function, called for one message after the other, from compiled code or Python.

    batch of messages ──▶ call_rows ──by an address──▶ take_rows ──▶ the function, a message at a time
                                                                      └─ state, and an answer or none

Who calls and the function are compiled apart: what passes between them are the words of one array, with the
addresses of all other arrays in it. So ``busy_turns`` is compiled once, whatever service it serves. Without
compilation an address is a key of ``calls.PLAIN``.
"""

import numpy as np
from numba import njit

from cluster.log.calls import address_of, call_at, viewer
from cluster.log.kernel import kernel, routine
from cluster.log.memory import BYTES, BYTES_OUT, I64, WORDS, WORDS_OUT, zero_bytes
from cluster.log.message_columns import (
    COLUMNS,
    EXTRA,
    LENGTHS,
    NUMBERS,
    OFFSETS,
    SESSION_IDS,
    TIMESTAMPS,
)

# What the function returns beside the length of its answer.
NO_ANSWER = -1
NOT_TAKEN = -2  # nothing was changed: the message is for Python's callback

# Words of a call.
(
    STATE,  # address
    SESSION_IDS_OF,  # addresses of the columns of messages
    TIMESTAMPS_OF,
    POSITIONS_OF,
    OFFSETS_OF,
    LENGTHS_OF,
    NUMBERS_OF,
    PAYLOADS,  # address of the buffer, and its length in bytes
    PAYLOADS_LENGTH,
    ROW,  # the first to take, and the end of them
    ROWS_END,
    ANSWERS,  # address of the columns of answers, and how many rows they have
    ANSWERS_MAX,
    ANSWER_BYTES,  # address of the answers' buffer, and its length in bytes
    ANSWER_BYTES_LENGTH,
    ANSWER_LENGTH_MAX,
    ANSWERED,  # how many answers there are
    STATUS,
    RETURNED,  # by the function, of the row that ended it
    REFUSED_POSITION,  # of a row that was not taken, and that Python is to see: where it ends
) = range(20)
CALL_WORDS = 24

# STATUS: what ended it.
TAKEN, REFUSED, RAISED, WRONG = range(4)  # WRONG: no length that an answer can have

_RAISED = -(1 << 62)


_words_at = viewer(np.dtype(np.int64), WORDS_OUT)
_read_words_at = viewer(np.dtype(np.int64), WORDS)
_bytes_at = viewer(np.dtype(np.uint8), BYTES_OUT)
_read_bytes_at = viewer(np.dtype(np.uint8), BYTES)


@njit
def words_of_call(address):  # type: ignore[no-untyped-def]
    """The words of a call, by their address."""
    return _words_at(address, CALL_WORDS)


@njit
def _call(function, state, session_id, timestamp, position, payload, answer):  # type: ignore[no-untyped-def]
    try:
        returned = int(function(state, session_id, timestamp, position, payload, answer))
    except Exception:  # compiled code knows no other clause
        returned = _RAISED
    return returned


@njit
def take_rows(function, state, call):  # type: ignore[no-untyped-def]
    """Call the function for the rows from ROW on; returns the end of those that are taken.

    Fewer than there are when the function ends it, by STATUS, or when the answers have no room left.
    """
    rows_end, answer_length_max = call[ROWS_END], call[ANSWER_LENGTH_MAX]
    session_ids = _read_words_at(call[SESSION_IDS_OF], rows_end)
    timestamps = _read_words_at(call[TIMESTAMPS_OF], rows_end)
    positions = _read_words_at(call[POSITIONS_OF], rows_end)
    offsets = _read_words_at(call[OFFSETS_OF], rows_end)
    lengths = _read_words_at(call[LENGTHS_OF], rows_end)
    numbers = _read_words_at(call[NUMBERS_OF], rows_end)
    payloads = _read_bytes_at(call[PAYLOADS], call[PAYLOADS_LENGTH])
    rows = call[ANSWERS_MAX]
    answers = _words_at(call[ANSWERS], COLUMNS * rows)
    answer_bytes = _bytes_at(call[ANSWER_BYTES], call[ANSWER_BYTES_LENGTH])
    row, answered, begin = call[ROW], 0, 0
    call[STATUS] = TAKEN
    while row < rows_end and answered < rows and answer_bytes.size - begin >= answer_length_max:
        answer = answer_bytes[begin : begin + answer_length_max]
        zero_bytes(answer_bytes, begin, answer_length_max)
        returned = _call(
            function,
            state,
            session_ids[row],
            timestamps[row],
            positions[row],
            payloads[offsets[row] : offsets[row] + lengths[row]],
            answer,
        )
        if returned > answer_length_max or returned < NO_ANSWER:
            status = RAISED if returned == _RAISED else WRONG
            call[STATUS] = REFUSED if returned == NOT_TAKEN else status
            call[RETURNED] = returned
            call[REFUSED_POSITION] = positions[row]
            break
        if returned >= 0:
            answers[SESSION_IDS * rows + answered] = session_ids[row]
            answers[TIMESTAMPS * rows + answered] = timestamps[row]
            answers[OFFSETS * rows + answered] = begin
            answers[LENGTHS * rows + answered] = returned
            answers[NUMBERS * rows + answered] = numbers[row]
            answered += 1
            begin += (returned + 7) & ~7
        row += 1
    call[ANSWERED] = answered
    return row


@routine
def set_columns(call, columns, rows):  # type: ignore[no-untyped-def]
    """Have the columns that ``deliver_run`` filled taken."""
    call[SESSION_IDS_OF] = address_of(columns, SESSION_IDS * rows)
    call[TIMESTAMPS_OF] = address_of(columns, TIMESTAMPS * rows)
    call[POSITIONS_OF] = address_of(columns, EXTRA * rows)
    call[OFFSETS_OF] = address_of(columns, OFFSETS * rows)
    call[LENGTHS_OF] = address_of(columns, LENGTHS * rows)
    call[NUMBERS_OF] = address_of(columns, NUMBERS * rows)


@routine
def call_rows(function, call, payloads, row, rows_end):  # type: ignore[no-untyped-def]
    """``take_rows`` by the address of its caller (``service/compiled_callback.py``)."""
    call[PAYLOADS], call[PAYLOADS_LENGTH] = address_of(payloads, 0), payloads.size
    call[ROW], call[ROWS_END] = row, rows_end
    return call_at(function, address_of(call, 0))


@kernel(I64(I64, WORDS_OUT, BYTES, I64, I64))
def call_rows_of_batch(function, call, payloads, row, rows_end):  # type: ignore[no-untyped-def]
    return call_rows(function, call, payloads, row, rows_end)
