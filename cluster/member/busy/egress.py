"""What clients get in a busy turn: answers of services, and acknowledgements of commits.

As ``clients/egress_publisher.py``: one send a client, its answers and behind them its acknowledgements.
"""

from cluster.consensus import quorum
from cluster.log.connection_table import (
    ACKS_BEGIN,
    ACKS_END,
    CLIENT,
    INDEX_LENGTH,
    KIND,
    OWNER,
    ROW_WORDS,
    STRANGER,
)
from cluster.log.kernel import routine
from cluster.log.message_columns import COLUMNS, LENGTHS, NUMBERS, OFFSETS, SESSION_IDS, TIMESTAMPS
from cluster.log.session_frames import FRAME_OVERHEAD, frame_acks, frame_answers
from cluster.log.session_table import NULL_VALUE
from cluster.member.busy import words as at
from cluster.member.busy.envelopes import offer


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
    return length + FRAME_OVERHEAD + 32 <= t.egress.size


@routine
def send_answers(t, columns, buffer, count, is_last):  # type: ignore[no-untyped-def]
    """Send each client its answers, each of which fits."""
    w = t.words
    rows = columns.size // COLUMNS
    row = 0
    while row < count:
        taken, ranges = frame_answers(
            t.egress,
            0,
            columns[SESSION_IDS * rows : SESSION_IDS * rows + count],
            columns[TIMESTAMPS * rows : TIMESTAMPS * rows + count],
            columns[OFFSETS * rows : OFFSETS * rows + count],
            columns[LENGTHS * rows : LENGTHS * rows + count],
            columns[NUMBERS * rows : NUMBERS * rows + count],
            buffer,
            row,
            w[at.SERVICE_LEADERSHIP_TERM_ID],
            t.sessions,
            t.ranges,
        )
        for i in range(ranges):
            descriptor = descriptor_of(t, t.ranges[3 * i])
            if descriptor < 0:
                continue
            begin, length = t.ranges[3 * i + 1], t.ranges[3 * i + 2] - t.ranges[3 * i + 1]
            row_at = descriptor * ROW_WORDS
            acks_begin = acks_end = 0
            if is_last and taken == count:
                acks_begin, acks_end = t.connections[row_at + ACKS_BEGIN], t.connections[row_at + ACKS_END]
                t.connections[row_at + ACKS_BEGIN] = acks_end
            offer(t, descriptor, t.egress, begin, length, t.acks, acks_begin, acks_end - acks_begin)
        row = taken


@routine
def put_acks(t):  # type: ignore[no-untyped-def]
    """Frame the acknowledgements of the sessions that were touched; where each client's are is in its row.

    Returns how many clients get some; their descriptors are in ``ready``.
    """
    clients = 0
    for i in range(frame_acks(t.acks, t.leadership[quorum.LEADERSHIP_TERM_ID], t.sessions, t.ranges)):
        descriptor = descriptor_of(t, t.ranges[3 * i])
        if descriptor >= 0:
            row_at = descriptor * ROW_WORDS
            t.connections[row_at + ACKS_BEGIN] = t.ranges[3 * i + 1]
            t.connections[row_at + ACKS_END] = t.ranges[3 * i + 2]
            t.ready[clients] = descriptor
            clients += 1
    return clients


@routine
def send_acks(t, clients):  # type: ignore[no-untyped-def]
    """Send those that went with no answer."""
    for i in range(clients):
        descriptor = t.ready[i]
        row_at = descriptor * ROW_WORDS
        begin, end = t.connections[row_at + ACKS_BEGIN], t.connections[row_at + ACKS_END]
        if end > begin:
            offer(t, descriptor, t.acks, begin, end - begin, t.acks, 0, 0)
        t.connections[row_at + ACKS_BEGIN] = t.connections[row_at + ACKS_END] = 0
