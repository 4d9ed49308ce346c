"""What clients get in a busy turn: answers of services, and acknowledgements of commits.

As ``clients/egress_publisher.py``: one send a client, of what ``frame_answers_and_acks`` frames for it. Those
of supervised sessions are kept and sent as ``clients/supervision.py`` does it.
"""

from cluster.consensus import quorum
from cluster.log.connection_table import CLIENT, INDEX_LENGTH, KIND, OWNER, ROW_WORDS, STRANGER
from cluster.log.kept_frames import (
    ADDRESS,
    BYTES_MAX,
    IS_TOUCHED,
    KEPT_BYTES,
    SESSION_ID,
    SIZE,
    TOUCHED_AT,
    TOUCHED_COUNT,
    bytes_at,
    keep_run,
    send_next,
)
from cluster.log.kept_frames import CONNECTION_ID as ASKED_OVER
from cluster.log.kernel import routine
from cluster.log.message_columns import COLUMNS, LENGTHS, NUMBERS, OFFSETS, SESSION_IDS, TIMESTAMPS
from cluster.log.session_frames import ACK_LENGTH, FRAME_OVERHEAD, frame_answers_and_acks
from cluster.log.session_table import CONNECTION_ID, RETAINED, SLOT_LIMIT, find_slot
from cluster.member.busy import words as at
from cluster.member.busy.envelopes import offer
from cluster.protocol.sbe import NULL_VALUE


@routine
def descriptor_of(t, connection_id):  # type: ignore[no-untyped-def]
    """The client's descriptor, or -1."""
    if connection_id == NULL_VALUE:
        return -1
    descriptor = t.by_connection[connection_id & INDEX_LENGTH - 1]
    if _is_of(t, descriptor, connection_id):
        return descriptor
    for other in range(t.connections.size // ROW_WORDS):
        if _is_of(t, other, connection_id):
            return other
    return -1


@routine
def _is_of(t, descriptor, connection_id):  # type: ignore[no-untyped-def]
    row = descriptor * ROW_WORDS
    kind = t.connections[row + KIND]
    return kind in (CLIENT, STRANGER) and t.connections[row + OWNER] == connection_id


@routine
def fits_egress(t, length):  # type: ignore[no-untyped-def]
    """Whether an answer of so many bytes can be framed; a longer one is Python's."""
    return length + FRAME_OVERHEAD + 32 <= t.egress.size - t.sessions[SLOT_LIMIT] * ACK_LENGTH


@routine
def send_egress(t, term_id, columns, buffer, count):  # type: ignore[no-untyped-def]
    """Send each client its answers of this term, each of which fits, and acknowledgements: with none, all."""
    rows = columns.size // COLUMNS
    row = 0
    while True:
        row, ranges = frame_answers_and_acks(
            t.egress,
            columns[SESSION_IDS * rows : SESSION_IDS * rows + count],
            columns[TIMESTAMPS * rows : TIMESTAMPS * rows + count],
            columns[OFFSETS * rows : OFFSETS * rows + count],
            columns[LENGTHS * rows : LENGTHS * rows + count],
            columns[NUMBERS * rows : NUMBERS * rows + count],
            buffer,
            row,
            term_id,
            t.leadership[quorum.LEADERSHIP_TERM_ID],
            t.sessions,
            t.ranges,
        )
        for i in range(ranges):
            descriptor = descriptor_of(t, t.ranges[3 * i])
            if descriptor >= 0:
                begin, end = t.ranges[3 * i + 1], t.ranges[3 * i + 2]
                offer(t, descriptor, t.egress, begin, end - begin, t.egress, 0, 0)
        if row == count:
            break


@routine
def keep_answers(t, columns, answer_ids, buffer, count):  # type: ignore[no-untyped-def]
    """Keep those to supervised sessions; returns the row that has no room, ``count`` where all are kept."""
    rows = columns.size // COLUMNS
    return keep_run(
        t.kept,
        t.sessions,
        columns[SESSION_IDS * rows : SESSION_IDS * rows + count],
        columns[TIMESTAMPS * rows : TIMESTAMPS * rows + count],
        columns[OFFSETS * rows : OFFSETS * rows + count],
        columns[LENGTHS * rows : LENGTHS * rows + count],
        columns[NUMBERS * rows : NUMBERS * rows + count],
        answer_ids,
        buffer,
        0,
    )


@routine
def send_kept(t):  # type: ignore[no-untyped-def]
    """Send what is new of supervised sessions. That one is full is for Python to say."""
    kept = t.kept
    left = 0
    for i in range(kept[TOUCHED_COUNT]):
        head = kept[kept[TOUCHED_AT] + i]
        slot = find_slot(t.sessions, kept[head + SESSION_ID])
        if slot >= 0 and kept[head + ASKED_OVER] == t.sessions[slot + CONNECTION_ID]:
            _send_kept_of(t, head)
            if kept[head + KEPT_BYTES] >= kept[BYTES_MAX] and not t.sessions[slot + RETAINED]:
                t.words[at.REASON] |= at.SERVICES
                kept[kept[TOUCHED_AT] + left] = head
                left += 1
                continue
        kept[head + IS_TOUCHED] = 0
    kept[TOUCHED_COUNT] = left


@routine
def _send_kept_of(t, head):  # type: ignore[no-untyped-def]
    descriptor = descriptor_of(t, t.kept[head + ASKED_OVER])
    while descriptor >= 0:
        row, begin, end = send_next(t.kept, head, t.leadership[quorum.LEADERSHIP_TERM_ID])
        if row == 0:
            break
        frames = bytes_at(t.kept[row + ADDRESS], t.kept[row + SIZE])
        offer(t, descriptor, frames, begin, end - begin, frames, 0, 0)
