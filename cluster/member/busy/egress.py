"""What clients get in a busy turn: answers of services, and acknowledgements of commits.

As ``clients/egress_publisher.py``: one send a client, its answers and behind them its acknowledgements.
"""

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
from cluster.log.memory import copy_bytes, put_i64
from cluster.log.message_columns import COLUMNS, LENGTHS, NUMBERS, OFFSETS, SESSION_IDS, TIMESTAMPS
from cluster.log.session_frames import FRAME_OVERHEAD, frame_answers
from cluster.log.session_table import (
    CLUSTER_SESSION_ID,
    COMMITTED_POSITION,
    CONNECTION_ID,
    NULL_VALUE,
    SLOT_WORDS,
    SLOTS_AT,
    TOUCHED,
    TOUCHED_AT,
    TOUCHED_COUNT,
)
from cluster.log.session_table import COMMITTED as COMMITTED_MESSAGES
from cluster.member.busy.envelopes import offer
from cluster.member.busy.words import ACK_AT, ACK_LENGTH, LEADERSHIP_TERM_ID, SERVICE_LEADERSHIP_TERM_ID

# In the frame of a CommitAck.
SESSION_AT, ACK_LEADERSHIP_TERM_AT, MESSAGES_AT, ACK_POSITION_AT = 40, 48, 56, 64


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
            w[SERVICE_LEADERSHIP_TERM_ID],
            t.sessions,
            t.ranges,
        )
        for i in range(ranges):
            descriptor = descriptor_of(t, t.ranges[3 * i])
            if descriptor < 0:
                continue
            begin, length = t.ranges[3 * i + 1], t.ranges[3 * i + 2] - t.ranges[3 * i + 1]
            at = descriptor * ROW_WORDS
            acks_begin = acks_end = 0
            if is_last and taken == count:
                acks_begin, acks_end = t.connections[at + ACKS_BEGIN], t.connections[at + ACKS_END]
                t.connections[at + ACKS_BEGIN] = acks_end
            offer(t, descriptor, t.egress, begin, length, t.acks, acks_begin, acks_end - acks_begin)
        row = taken


@routine
def put_acks(t):  # type: ignore[no-untyped-def]
    """Frame the acknowledgements of the sessions that were touched, each client's side by side.

    Returns how many clients get some; their descriptors are in ``ready``.
    """
    table, connections = t.sessions, t.connections
    begin = table[TOUCHED_AT]
    clients = 0
    for i in range(begin, begin + table[TOUCHED_COUNT]):
        slot = table[SLOTS_AT] + table[i] * SLOT_WORDS
        descriptor = descriptor_of(t, table[slot + CONNECTION_ID])
        if descriptor < 0:
            continue
        at = descriptor * ROW_WORDS
        if connections[at + ACKS_END] == 0:
            t.ready[clients] = descriptor
            clients += 1
        connections[at + ACKS_END] += ACK_LENGTH
    ends = 0
    for i in range(clients):  # from lengths to begins
        at = t.ready[i] * ROW_WORDS
        length = connections[at + ACKS_END]
        connections[at + ACKS_BEGIN] = connections[at + ACKS_END] = ends
        ends += length
    for i in range(begin, begin + table[TOUCHED_COUNT]):
        slot = table[SLOTS_AT] + table[i] * SLOT_WORDS
        table[slot + TOUCHED] = 0
        descriptor = descriptor_of(t, table[slot + CONNECTION_ID])
        if descriptor < 0:
            continue
        at = descriptor * ROW_WORDS + ACKS_END
        ack = connections[at]
        copy_bytes(t.acks, ack, t.scratch, ACK_AT, ACK_LENGTH)
        put_i64(t.acks, ack + SESSION_AT, table[slot + CLUSTER_SESSION_ID])
        put_i64(t.acks, ack + ACK_LEADERSHIP_TERM_AT, t.words[LEADERSHIP_TERM_ID])
        put_i64(t.acks, ack + MESSAGES_AT, table[slot + COMMITTED_MESSAGES])
        put_i64(t.acks, ack + ACK_POSITION_AT, table[slot + COMMITTED_POSITION])
        connections[at] += ACK_LENGTH
    table[TOUCHED_COUNT] = 0
    return clients


@routine
def send_acks(t, clients):  # type: ignore[no-untyped-def]
    """Send those that went with no answer."""
    for i in range(clients):
        descriptor = t.ready[i]
        at = descriptor * ROW_WORDS
        begin, end = t.connections[at + ACKS_BEGIN], t.connections[at + ACKS_END]
        if end > begin:
            offer(t, descriptor, t.acks, begin, end - begin, t.acks, 0, 0)
        t.connections[at + ACKS_BEGIN] = t.connections[at + ACKS_END] = 0
