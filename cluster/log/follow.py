"""What committed log says about sessions, kept in the session table of every member.

A follower learns from the log that a session is alive (C-225), and each member how many of a session's
messages are committed, which is what a session gets beside its egress. The leader runs this over what the
commit position has passed, a follower over what it has applied; each entry once, and in order.
"""

import numpy as np
from numba import types

from cluster.log.frames import (
    CLUSTER_SESSION_ID_AT,
    DAMAGED,
    DONE,
    INCOMPLETE,
    MALFORMED,
    OTHER_MESSAGE,
    SCHEMA_ID,
    SESSION_HEADER_LENGTH,
    SESSION_MESSAGE_HEADER,
    SKIP,
    TIMESTAMP_AT,
    next_message,
)
from cluster.log.kernel import kernel
from cluster.log.memory import BYTES, I64, WORDS_OUT, get_i32, get_i64, get_u16
from cluster.log.session_table import (
    APPENDED,
    COMMITTED,
    COMMITTED_POSITION,
    LAST_TIMESTAMP,
    SERVICE_IDS_AT,
    SLOT_WORDS,
    SLOTS_AT,
    TOUCHED,
    TOUCHED_AT,
    TOUCHED_COUNT,
    SessionTable,
    find_slot,
)
from cluster.protocol.frame import FRAME_ALIGNMENT, HEADER_LENGTH
from cluster.protocol.sbe import SCHEMA_ID_AT, TEMPLATE_ID_AT


@kernel(types.UniTuple(I64, 3)(BYTES, I64, I64, I64, WORDS_OUT))
def follow_run(buffer, offset, limit, position, table):  # type: ignore[no-untyped-def]
    position -= offset  # of buffer[0]
    count = 0
    while True:
        kind, end = next_message(buffer, offset, limit)
        if kind == SKIP:
            offset = end
            continue
        if kind == INCOMPLETE:
            return DONE, offset, count
        message = offset + HEADER_LENGTH
        if kind == DAMAGED or get_i32(buffer, offset) < HEADER_LENGTH + 8:
            return MALFORMED, offset, count
        if (
            get_u16(buffer, message + TEMPLATE_ID_AT) != SESSION_MESSAGE_HEADER
            or get_u16(buffer, message + SCHEMA_ID_AT) != SCHEMA_ID
        ):
            return OTHER_MESSAGE, offset, count
        if get_i32(buffer, offset) < HEADER_LENGTH + SESSION_HEADER_LENGTH:
            return MALFORMED, offset, count
        session_id = get_i64(buffer, message + CLUSTER_SESSION_ID_AT)
        timestamp = get_i64(buffer, message + TIMESTAMP_AT)
        table[LAST_TIMESTAMP] = max(table[LAST_TIMESTAMP], timestamp)
        if session_id < 0:
            table[SERVICE_IDS_AT + (session_id >> 56 & 0x7F)] = session_id
        else:
            slot = find_slot(table, session_id)
            if slot >= 0:
                table[slot + COMMITTED] += 1
                table[slot + COMMITTED_POSITION] = position + end
                # Only the leader counts what it appends: on the others this is how they keep up.
                if table[slot + APPENDED] < table[slot + COMMITTED]:
                    table[slot + APPENDED] = table[slot + COMMITTED]
                if table[slot + TOUCHED] == 0:
                    table[slot + TOUCHED] = 1
                    table[table[TOUCHED_AT] + table[TOUCHED_COUNT]] = (slot - table[SLOTS_AT]) // SLOT_WORDS
                    table[TOUCHED_COUNT] += 1
        count += 1
        offset = end


def follow_log(
    buffer: np.ndarray, start: int, limit: int, position: int, table: SessionTable
) -> tuple[int, int, int]:
    """Count the session messages of ``buffer[start:limit]``; return (status, consumed, messages).

    ``position`` is that of ``buffer[start]``, which begins a frame. Counts those of the sessions in ``table``
    (``committed``, ``committed_position``; ``table.take_touched`` lists the slots), keeps
    the last id of each service's own messages, and stops like ``deliver``: DONE, OTHER_MESSAGE, MALFORMED.
    """
    assert start % FRAME_ALIGNMENT == 0
    assert 0 <= start <= limit <= buffer.size
    return follow_run(buffer, start, limit, position, table.words)
