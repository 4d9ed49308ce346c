"""Many messages in and out of session frames: a service's answers, what a client sends, what it receives.

    header (stream 101 or 102) | SBE header | term id, session id, timestamp | payload

On a link a message is one frame, however long. Each function takes or gives columns over one buffer of
payloads: a row is (session id, timestamp, offset, length).
"""

from collections.abc import Sequence

from cluster.errors import LocalProtocolError
from cluster.log.compiler import types
from cluster.log.frames import (
    CLUSTER_SESSION_ID_AT,
    COMMIT_ACK_FRAME_LENGTH,
    COMMIT_ACK_SBE_HEADER,
    DATA_UNFRAGMENTED,
    DONE,
    MALFORMED,
    OTHER_MESSAGE,
    OUT_FULL,
    SBE_HEADER_LENGTH,
    SCHEMA_ID,
    SESSION_HEADER_LENGTH,
    SESSION_MESSAGE_BLOCK,
    SESSION_MESSAGE_HEADER,
    TIMESTAMP_AT,
    align_frame,
    put_header,
    put_session_header,
)
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
    get_u16,
    put_i64,
    zero_bytes,
)
from cluster.log.message_columns import (
    EXTRA,
    LENGTHS,
    NUMBERS,
    OFFSETS,
    SESSION_IDS,
    TIMESTAMPS,
    MessageColumns,
)
from cluster.log.session_table import (
    CLUSTER_SESSION_ID,
    COMMITTED,
    COMMITTED_POSITION,
    CONNECTION_ID,
    DROPPED_EGRESS,
    EGRESS_END,
    EGRESS_SLOTS_AT,
    SLOT_WORDS,
    SLOTS_AT,
    SUPERVISED,
    TOUCHED,
    TOUCHED_AT,
    TOUCHED_COUNT,
    SessionTable,
    find_slot,
)
from cluster.protocol import streams
from cluster.protocol.arrays import np
from cluster.protocol.frame import HEADER_LENGTH, RESERVED_VALUE_AT, STREAM_ID_AT, VERSION_AT
from cluster.protocol.sbe import NULL_VALUE, SCHEMA_ID_AT, TEMPLATE_ID_AT

FRAME_OVERHEAD = HEADER_LENGTH + SESSION_HEADER_LENGTH
# In an answer's frame, which lies in no term: the number of the message that it answers, in its session.
ANSWERED_NUMBER = 8
PAYLOAD_LENGTH_MAX = 0x4000_0000
ACK_LENGTH = 96  # of a CommitAck in its frame, aligned


@routine
def put_frame(out, begin, stream_id, leadership_term_id, session_id, timestamp, buffer, offset, length):  # type: ignore[no-untyped-def]
    """Write one unfragmented frame with a session header; return its aligned end."""
    end = begin + align_frame(FRAME_OVERHEAD + length)
    for word in range(end - 32, end, 8):  # zeros after the payload, overwritten in part
        put_i64(out, word, 0)
    put_header(out, begin, FRAME_OVERHEAD + length, DATA_UNFRAGMENTED, 0, 0, stream_id, 0)
    put_session_header(out, begin + HEADER_LENGTH, leadership_term_id, session_id, timestamp)
    copy_bytes(out, begin + FRAME_OVERHEAD, buffer, offset, length)
    return end


@routine
def is_row_wrong(offset, length, size):  # type: ignore[no-untyped-def]
    return offset < 0 or length < 0 or length > PAYLOAD_LENGTH_MAX or offset > size - length


@routine
def _sort_by_connection(table, begin, end):  # type: ignore[no-untyped-def]
    """Order the slots ``table[begin:end]`` by their connection (Shell's sort: few, and mostly in order)."""
    gap = (end - begin) // 2
    while gap > 0:
        for i in range(begin + gap, end):
            slot = table[i]
            j = i
            while j - gap >= begin and table[table[j - gap] + CONNECTION_ID] > table[slot + CONNECTION_ID]:
                table[j] = table[j - gap]
                j -= gap
            table[j] = slot
        gap //= 2


@routine
def _put_ranges(table, slots_begin, slots_end, ranges):  # type: ignore[no-untyped-def]
    """Sessions of one connection lie side by side: one range; returns how many there are."""
    begin = count = 0
    for j in range(slots_begin, slots_end):
        slot = table[j]
        connection_id = table[slot + CONNECTION_ID]
        if count == 0 or ranges[3 * count - 3] != connection_id:
            ranges[3 * count] = connection_id
            ranges[3 * count + 1] = begin
            count += 1
        begin = table[slot + EGRESS_END]
        ranges[3 * count - 1] = begin
        table[slot + EGRESS_END] = 0
    return count


@routine
def _touched_slot(table, i):  # type: ignore[no-untyped-def]
    return table[SLOTS_AT] + table[table[TOUCHED_AT] + i] * SLOT_WORDS


@routine
def _put_ack(out, begin, leadership_term_id, table, slot):  # type: ignore[no-untyped-def]
    """Write what is committed of a session in one frame, a CommitAck; return its aligned end."""
    put_header(out, begin, COMMIT_ACK_FRAME_LENGTH, DATA_UNFRAGMENTED, 0, 0, streams.LINK, 0)
    put_i64(out, begin + 32, COMMIT_ACK_SBE_HEADER)
    put_i64(out, begin + 40, table[slot + CLUSTER_SESSION_ID])
    put_i64(out, begin + 48, leadership_term_id)
    put_i64(out, begin + 56, table[slot + COMMITTED])
    put_i64(out, begin + 64, table[slot + COMMITTED_POSITION])
    zero_bytes(out, begin + COMMIT_ACK_FRAME_LENGTH, ACK_LENGTH - COMMIT_ACK_FRAME_LENGTH)
    return begin + ACK_LENGTH


@kernel(
    types.UniTuple(I64, 2)(
        BYTES_OUT, WORDS, WORDS, WORDS, WORDS, WORDS, BYTES, I64, I64, I64, WORDS_OUT, WORDS_OUT
    )
)
def frame_answers_and_acks(  # type: ignore[no-untyped-def]
    out,
    session_ids,
    timestamps,
    offsets,
    lengths,
    numbers,
    buffer,
    row,
    answers_term_id,
    acks_term_id,
    table,
    ranges,
):
    # First how much each session gets, so that each has its place; then the frames, in the rows' order.
    touched = table[TOUCHED_COUNT]
    room = out.size - touched * ACK_LENGTH
    slots_begin = slots_end = table[EGRESS_SLOTS_AT]
    rows_end = row
    slot = -1
    for i in range(row, session_ids.size):
        if is_row_wrong(offsets[i], lengths[i], buffer.size):
            for j in range(slots_begin, slots_end):
                table[table[j] + EGRESS_END] = 0
            return -1 - i, 0
        if i == row or session_ids[i] != session_ids[i - 1]:
            slot = find_slot(table, session_ids[i])
        if slot >= 0 and table[slot + CONNECTION_ID] != NULL_VALUE and table[slot + SUPERVISED] == 0:
            framed = align_frame(FRAME_OVERHEAD + lengths[i])
            if framed > room:
                break
            room -= framed
            if table[slot + EGRESS_END] == 0:
                table[slots_end] = slot
                slots_end += 1
            table[slot + EGRESS_END] += framed
        rows_end = i + 1
    if rows_end < session_ids.size:
        touched = 0  # they are acknowledged after the last answers
    for i in range(touched):
        slot = _touched_slot(table, i)
        if table[slot + EGRESS_END] > 0:
            table[slot + EGRESS_END] += ACK_LENGTH
        elif session_ids.size == 0 and table[slot + CONNECTION_ID] != NULL_VALUE:
            table[slots_end] = slot
            slots_end += 1
            table[slot + EGRESS_END] = ACK_LENGTH
    _sort_by_connection(table, slots_begin, slots_end)

    begin = 0
    for j in range(slots_begin, slots_end):  # from lengths to begins
        length = table[table[j] + EGRESS_END]
        table[table[j] + EGRESS_END] = begin
        begin += length
    for i in range(row, rows_end):
        if i == row or session_ids[i] != session_ids[i - 1]:
            slot = find_slot(table, session_ids[i])
        if slot >= 0 and table[slot + SUPERVISED] != 0:
            continue
        if slot < 0 or table[slot + CONNECTION_ID] == NULL_VALUE:
            table[DROPPED_EGRESS] += 1
            continue
        begin = table[slot + EGRESS_END]
        table[slot + EGRESS_END] = put_frame(
            out,
            begin,
            streams.EGRESS,
            answers_term_id,
            session_ids[i],
            timestamps[i] if timestamps.size > 1 else timestamps[0],
            buffer,
            offsets[i],
            lengths[i],
        )
        put_i64(out, begin + ANSWERED_NUMBER, numbers[i] if numbers.size > 1 else numbers[0])

    left = 0
    for i in range(touched):
        slot = _touched_slot(table, i)
        if session_ids.size > 0 and table[slot + EGRESS_END] == 0:
            table[table[TOUCHED_AT] + left] = table[table[TOUCHED_AT] + i]
            left += 1
            continue
        table[slot + TOUCHED] = 0
        if table[slot + CONNECTION_ID] != NULL_VALUE:
            table[slot + EGRESS_END] = _put_ack(out, table[slot + EGRESS_END], acks_term_id, table, slot)
    table[TOUCHED_COUNT] -= touched - left
    return rows_end, _put_ranges(table, slots_begin, slots_end, ranges)


def frame_egress(
    out: np.ndarray,
    session_ids: np.ndarray,
    timestamps: np.ndarray,
    offsets: np.ndarray,
    lengths: np.ndarray,
    numbers: np.ndarray,
    buffer: np.ndarray,
    row: int,
    answers_term_id: int,
    acks_term_id: int,
    table: SessionTable,
) -> tuple[int, list[list[int]]]:
    """Frame the answers from ``row`` on into ``out``; return (rows taken, ranges).

    A range ``[connection_id, begin, end]`` of ``out`` is all that one connection gets; ranges ascend by
    connection, rows of one session keep their order. Behind the last row a session that was touched gets a
    CommitAck of what is committed of it, and is touched no more: those that get answers, and with no rows at
    all the others. ``out`` has ``ACK_LENGTH`` bytes for each that was touched.
    Columns are int64; ``timestamps`` may have one value for all, and so may ``numbers``, those of the
    messages that are answered. Rows of sessions that are closed or not connected are dropped and counted
    (Aeron: the egress of such a session is mocked); those of supervised ones are ``kept_frames.py``'s. Fewer
    rows than there are were taken when ``out`` is full: send, and call again. Raises LocalProtocolError for a
    row whose payload lies outside ``buffer``; nothing is framed then.
    """
    assert 0 <= row <= session_ids.size == offsets.size == lengths.size
    assert timestamps.size in (1, session_ids.size)
    assert numbers.size in (1, session_ids.size)
    rows_end, count = frame_answers_and_acks(
        out,
        session_ids,
        timestamps,
        offsets,
        lengths,
        numbers,
        buffer,
        row,
        answers_term_id,
        acks_term_id,
        table.words,
        table.ranges,
    )
    if rows_end < 0:
        _raise_wrong_row(-1 - rows_end, offsets, lengths, buffer.size)
    return rows_end, table.ranges[: 3 * count].reshape(count, 3).tolist()


@kernel(types.UniTuple(I64, 2)(WORDS, WORDS, I64))
def _measure_payloads(offsets, lengths, size):  # type: ignore[no-untyped-def]
    longest = 0
    for row in range(offsets.size):
        if is_row_wrong(offsets[row], lengths[row], size):
            return longest, row
        longest = max(longest, lengths[row])
    return longest, -1


def longest_payload(offsets: np.ndarray, lengths: np.ndarray, size: int) -> int:
    """Length of the longest of the payloads in a buffer of ``size`` bytes; columns are int64.

    Raises LocalProtocolError for the first that lies outside of it.
    """
    assert offsets.size == lengths.size
    longest, row = _measure_payloads(offsets, lengths, size)
    if row >= 0:
        _raise_wrong_row(row, offsets, lengths, size)
    return longest


def _raise_wrong_row(row: int, offsets: np.ndarray, lengths: np.ndarray, size: int) -> None:
    raise LocalProtocolError(
        f"row {row}: a payload of {lengths[row]} bytes at offset {offsets[row]} does not lie in the buffer "
        f"of {size} bytes"
    )


@kernel(types.UniTuple(I64, 2)(BYTES_OUT, I64, WORDS, WORDS, BYTES, I64, I64, I64))
def _frame_ingress(  # type: ignore[no-untyped-def]
    out, out_offset, offsets, lengths, buffer, row, leadership_term_id, cluster_session_id
):
    while row < offsets.size:
        if is_row_wrong(offsets[row], lengths[row], buffer.size):
            return -1 - row, out_offset
        if align_frame(FRAME_OVERHEAD + lengths[row]) > out.size - out_offset:
            break
        out_offset = put_frame(
            out,
            out_offset,
            streams.INGRESS,
            leadership_term_id,
            cluster_session_id,
            0,
            buffer,
            offsets[row],
            lengths[row],
        )
        row += 1
    return row, out_offset


def frame_ingress(
    out: np.ndarray,
    out_offset: int,
    offsets: np.ndarray,
    lengths: np.ndarray,
    buffer: np.ndarray,
    row: int,
    leadership_term_id: int,
    cluster_session_id: int,
) -> tuple[int, int]:
    """Frame a client's messages from ``row`` on into ``out[out_offset:]``; return (rows taken, end in out).

    The header's timestamp is 0, as Aeron's clients leave it. Fewer rows were taken when ``out`` is full.
    Raises LocalProtocolError for a row whose payload lies outside ``buffer``.
    """
    assert 0 <= out_offset <= out.size
    assert 0 <= row <= offsets.size == lengths.size
    rows_end, end = _frame_ingress(
        out, out_offset, offsets, lengths, buffer, row, leadership_term_id, cluster_session_id
    )
    if rows_end < 0:
        _raise_wrong_row(-1 - rows_end, offsets, lengths, buffer.size)
    return rows_end, end


def join_payloads(payloads: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(offsets, lengths, buffer) of payloads that are separate objects, for frame_ingress."""
    lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
    offsets = np.cumsum(lengths) - lengths
    return offsets, lengths, np.frombuffer(b"".join(payloads), np.uint8)


ANY_SESSION = 0


class EgressMessages(MessageColumns):
    """A reusable batch of what a client received; ``buffer`` is the run that was taken apart.

    ``acknowledged`` has the numbers of the last CommitAck that came: messages, -1 for none, and position.
    """

    __slots__ = ("acknowledged",)

    def __init__(self, rows: int = 4096) -> None:
        super().__init__(rows)
        self.acknowledged = np.full(2, -1, np.int64)

    @property
    def answer_ids(self) -> np.ndarray:
        """Which answer of which service each is; 0 to a session that is not supervised."""
        return self._column(EXTRA)


@kernel(types.UniTuple(I64, 3)(BYTES, I64, I64, WORDS_OUT, I64, I64, WORDS_OUT))
def _parse_egress(buffer, start, end, columns, rows, session, acknowledged):  # type: ignore[no-untyped-def]
    offset = start
    row = 0
    acknowledged[0] = -1
    while end - offset >= HEADER_LENGTH:
        frame_length = get_i32(buffer, offset)
        if frame_length < HEADER_LENGTH:
            return MALFORMED, offset, row
        if align_frame(frame_length) > end - offset:
            break
        message = offset + HEADER_LENGTH
        if (
            frame_length == COMMIT_ACK_FRAME_LENGTH
            and get_i32(buffer, offset + VERSION_AT) == DATA_UNFRAGMENTED
            and get_i32(buffer, offset + STREAM_ID_AT) == streams.LINK
            and get_i64(buffer, message) == COMMIT_ACK_SBE_HEADER
        ):
            if session == ANY_SESSION or get_i64(buffer, message + 8) == session:
                acknowledged[0] = get_i64(buffer, message + 24)
                acknowledged[1] = get_i64(buffer, message + 32)
            offset += align_frame(frame_length)
            continue
        if (
            get_i32(buffer, offset + VERSION_AT) != DATA_UNFRAGMENTED
            or get_i32(buffer, offset + STREAM_ID_AT) != streams.EGRESS
            or frame_length < HEADER_LENGTH + SBE_HEADER_LENGTH
        ):
            return OTHER_MESSAGE, offset, row
        if (
            get_u16(buffer, message + TEMPLATE_ID_AT) != SESSION_MESSAGE_HEADER
            or get_u16(buffer, message + SCHEMA_ID_AT) != SCHEMA_ID
        ):
            return OTHER_MESSAGE, offset, row
        block_length = get_u16(buffer, message)
        payload = message + SBE_HEADER_LENGTH + block_length
        if block_length < SESSION_MESSAGE_BLOCK or payload > offset + frame_length:
            return MALFORMED, offset, row
        if session != ANY_SESSION and get_i64(buffer, message + CLUSTER_SESSION_ID_AT) != session:
            offset += align_frame(frame_length)
            continue
        if row == rows:
            return OUT_FULL, offset, row
        columns[EXTRA * rows + row] = get_i64(buffer, offset + RESERVED_VALUE_AT)
        columns[NUMBERS * rows + row] = get_i64(buffer, offset + ANSWERED_NUMBER)
        columns[SESSION_IDS * rows + row] = get_i64(buffer, message + CLUSTER_SESSION_ID_AT)
        columns[TIMESTAMPS * rows + row] = get_i64(buffer, message + TIMESTAMP_AT)
        columns[OFFSETS * rows + row] = payload - start
        columns[LENGTHS * rows + row] = offset + frame_length - payload
        row += 1
        offset += align_frame(frame_length)
    return DONE, offset, row


def parse_egress(
    buffer: np.ndarray, start: int, end: int, messages: EgressMessages, session_id: int = ANY_SESSION
) -> tuple[int, int]:
    """Fill ``messages`` from the egress frames of ``buffer[start:end]``; return (status, consumed).

    Messages and CommitAcks of another session than ``session_id`` are passed over.

    DONE: what is left is less than a frame. OUT_FULL: handle the rows, go on from ``consumed``.
    OTHER_MESSAGE: what is there is neither (another template, or another one of our own streams).
    MALFORMED: drop the connection.
    """
    assert 0 <= start <= end <= buffer.size
    status, consumed, messages.count = _parse_egress(
        buffer, start, end, messages.words, messages.rows, session_id, messages.acknowledged
    )
    messages.buffer = buffer[start:consumed]
    return status, consumed
