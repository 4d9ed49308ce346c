"""Services in processes of their own: how far they may read the log, their answers, how far they have come.

As ``services/remote_service.py``, for what is frequent:

LogLimit           to each, when the commit position has risen
ServiceAnswers     from one, framed and sent to the clients of a leader
ServicePosition    from one, shown in its counters

All their other messages, and whatever follows one, are Python's.
"""

from cluster.log.connection_table import OWNER, ROW_WORDS
from cluster.log.frames import DATA_UNFRAGMENTED, align_frame
from cluster.log.kernel import routine
from cluster.log.memory import get_i32, get_i64, get_u32, put_i64
from cluster.log.message_columns import COLUMNS, EXTRA, LENGTHS, OFFSETS
from cluster.log.runs import NOT_A_FRAME
from cluster.member.busy import words as at
from cluster.member.busy.egress import fits_egress, keep_answers, send_egress, send_kept
from cluster.member.busy.envelopes import (
    BLOCK_AT,
    KIND_MASK,
    SBE_AT,
    kind_of,
    offer,
)
from cluster.member.busy.receiving import leave, receive_frames
from cluster.member.log.log_words import COMMIT_POSITION
from cluster.member.services.service_table import (
    ANSWERED,
    CYCLES_EXCEEDED_COUNTER,
    LIMIT,
    LINK,
    MAX_CYCLE_COUNTER,
    POSITION_COUNTER,
    SERVED,
    SERVICE_WORDS,
    next_limit,
)
from cluster.protocol import streams
from cluster.protocol.frame import HEADER_LENGTH, STREAM_ID_AT, VERSION_AT
from cluster.protocol.service_link import LogLimit, ServiceAnswers, ServicePosition

SERVICE_POSITION, SERVICE_ANSWERS = kind_of(ServicePosition), kind_of(ServiceAnswers)
POSITION_FRAME_LENGTH = HEADER_LENGTH + ServicePosition.ENCODED_LENGTH
# In a frame.
LIMIT_POSITION_AT = BLOCK_AT + LogLimit.offset_of("log_position")
SERVED_POSITION_AT = BLOCK_AT + ServicePosition.offset_of("log_position")
MAX_CYCLE_TIME_AT = BLOCK_AT + ServicePosition.offset_of("max_cycle_time_ns")
CYCLE_TIME_EXCEEDED_AT = BLOCK_AT + ServicePosition.offset_of("cycle_time_exceeded")
TERM_OF_ANSWERS_AT = BLOCK_AT + ServiceAnswers.offset_of("leadership_term_id")
COLUMNS_LENGTH_AT = BLOCK_AT + ServiceAnswers.BLOCK_LENGTH  # then the columns
COLUMNS_AT = COLUMNS_LENGTH_AT + 4
ROW_BYTES = 8 * COLUMNS

# No client waits for a follower's service: it is let on after so long, or after so much log.
FOLLOWER_PAUSE_NS = 5_000_000
FOLLOWER_BYTES = 64 * 1024


@routine
def give_log(t):  # type: ignore[no-untyped-def]
    """The log is committed further: let a leader's services read it in their processes, a follower's soon."""
    w = t.words
    is_due = w[at.ROLE] == at.LEADER_ROLE or w[at.NOW_NS] >= w[at.LIMIT_DUE_NS]
    due_ns = at.NEVER
    for row in range(0, t.services.size, SERVICE_WORDS):
        lag = t.member_log[COMMIT_POSITION] - t.services[row + LIMIT]
        if is_due or lag >= FOLLOWER_BYTES:
            _send_limit(t, row)
        elif lag > 0 and t.services[row + LINK] >= 0:
            due_ns = min(w[at.LIMIT_DUE_NS], w[at.NOW_NS] + FOLLOWER_PAUSE_NS)
    w[at.LIMIT_DUE_NS] = due_ns


@routine
def _send_limit(t, row):  # type: ignore[no-untyped-def]
    """Let the process read what is committed, as long as it comes along."""
    w, service = t.words, t.services[row : row + SERVICE_WORDS]
    if service[LINK] < 0 or not next_limit(service, t.member_log[COMMIT_POSITION], w[at.NOW_NS]):
        return
    put_i64(t.scratch, at.LIMIT_AT + LIMIT_POSITION_AT, t.member_log[COMMIT_POSITION])
    offer(t, service[LINK], t.scratch, at.LIMIT_AT, at.LIMIT_LENGTH, t.scratch, 0, 0)


@routine
def receive_from_service(t, descriptor):  # type: ignore[no-untyped-def]
    """Take its answers and positions."""
    row = t.connections[descriptor * ROW_WORDS + OWNER] * SERVICE_WORDS
    received, end, follows = receive_frames(t, descriptor, False)
    offset = 0
    while offset < end and follows != NOT_A_FRAME and _take(t, row, offset):
        offset += align_frame(get_i32(t.received, offset))
    leave(t, descriptor, offset, received, end, follows)
    give_log(t)


@routine
def _take(t, row, frame):  # type: ignore[no-untyped-def]
    """Take one frame; False, with nothing done, where that is Python's."""
    buffer = t.received
    if (
        get_i32(buffer, frame) < POSITION_FRAME_LENGTH
        or get_i32(buffer, frame + VERSION_AT) != DATA_UNFRAGMENTED
        or get_i32(buffer, frame + STREAM_ID_AT) != streams.LINK
    ):
        return False
    kind = get_i64(buffer, frame + SBE_AT) & KIND_MASK
    if kind == SERVICE_POSITION:
        return _take_position(t, row, frame)
    return kind == SERVICE_ANSWERS and _take_answers(t, row, frame)


@routine
def _take_position(t, row, frame):  # type: ignore[no-untyped-def]
    buffer, service = t.received, t.services[row : row + SERVICE_WORDS]
    position = get_i64(buffer, frame + SERVED_POSITION_AT)
    if position < service[SERVED] or position > service[LIMIT]:
        return False
    if position > service[SERVED]:
        service[SERVED], service[ANSWERED] = position, 0
    t.counters[service[POSITION_COUNTER]] = position
    t.counters[service[MAX_CYCLE_COUNTER]] = get_i64(buffer, frame + MAX_CYCLE_TIME_AT)
    t.counters[service[CYCLES_EXCEEDED_COUNTER]] = get_i64(buffer, frame + CYCLE_TIME_EXCEEDED_AT)
    return True


@routine
def _take_answers(t, row, frame):  # type: ignore[no-untyped-def]
    is_leader = t.words[at.ROLE] == at.LEADER_ROLE
    rows, unsupervised = _read_answers(t, frame)
    if rows == 0 or (unsupervised > 0 and not is_leader):
        return False
    columns = t.columns[: COLUMNS * rows]
    if unsupervised < rows:
        answer_ids = columns[EXTRA * rows : EXTRA * rows + rows]
        if keep_answers(t, columns, answer_ids, t.received, rows) < rows:
            return False  # those that are kept now are not kept twice
    if is_leader:
        t.services[row + ANSWERED] += unsupervised
        send_kept(t)
        send_egress(t, get_i64(t.received, frame + TERM_OF_ANSWERS_AT), columns, t.received, rows)
    return True


@routine
def _read_answers(t, frame):  # type: ignore[no-untyped-def]
    """Columns of the answers in ``received``, and how many are to sessions that are not supervised.

    None where one is too long, or wrong.
    """
    buffer, columns = t.received, t.columns
    end = frame + get_i32(buffer, frame)
    length = get_u32(buffer, frame + COLUMNS_LENGTH_AT)
    begin = frame + COLUMNS_AT
    rows = length // ROW_BYTES
    if length % ROW_BYTES != 0 or rows > t.words[at.SERVICE_ROWS] or begin + length + 4 > end:
        return 0, 0
    payloads = begin + length + 4
    payloads_length = get_u32(buffer, begin + length)
    if payloads + payloads_length > end:
        return 0, 0
    unsupervised = 0
    for word in range(COLUMNS * rows):
        columns[word] = get_i64(buffer, begin + 8 * word)
    for row in range(rows):
        offset, answer_length = columns[OFFSETS * rows + row], columns[LENGTHS * rows + row]
        if (
            not 0 <= offset <= payloads_length
            or not 0 <= answer_length <= payloads_length - offset
            or not fits_egress(t, answer_length)
        ):
            return 0, 0
        columns[OFFSETS * rows + row] += payloads
        unsupervised += columns[EXTRA * rows + row] == 0
    return rows, unsupervised
