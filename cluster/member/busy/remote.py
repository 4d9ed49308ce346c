"""A service in a process of its own: how far it may read the log, what it answers, how far it has come.

As ``services/remote_service.py``, for what is frequent:

LogLimit           to it, when the commit position has risen
ServiceAnswers     from it, framed and sent to the clients of a leader
ServicePosition    from it, shown in its counters

All its other messages, and whatever follows one, are Python's.
"""

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
from cluster.member.services.log_limits import ANSWERED, LIMIT, SERVED, next_limit
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
    """The log is committed further: let the process of a leader's service read it now, a follower's soon."""
    w = t.words
    if w[at.ROLE] == at.LEADER_ROLE or w[at.COMMIT_POSITION] - t.limits[LIMIT] >= FOLLOWER_BYTES:
        send_limit(t)
    elif w[at.COMMIT_POSITION] > t.limits[LIMIT] and w[at.LIMIT_DUE_NS] == at.NEVER:
        w[at.LIMIT_DUE_NS] = w[at.NOW_NS] + FOLLOWER_PAUSE_NS


@routine
def send_limit(t):  # type: ignore[no-untyped-def]
    """Let the process read what is committed, as long as it comes along."""
    w = t.words
    w[at.LIMIT_DUE_NS] = at.NEVER
    if not next_limit(t.limits, w[at.COMMIT_POSITION], w[at.NOW_NS]):
        return
    put_i64(t.scratch, at.LIMIT_AT + LIMIT_POSITION_AT, w[at.COMMIT_POSITION])
    offer(t, w[at.SERVICE_LINK], t.scratch, at.LIMIT_AT, at.LIMIT_LENGTH, t.scratch, 0, 0)


@routine
def receive_from_service(t, descriptor):  # type: ignore[no-untyped-def]
    """Take its answers and positions."""
    received, end, follows = receive_frames(t, descriptor, False)
    offset = 0
    while offset < end and follows != NOT_A_FRAME and _take(t, offset):
        offset += align_frame(get_i32(t.received, offset))
    leave(t, descriptor, offset, received, end, follows)
    give_log(t)


@routine
def _take(t, frame):  # type: ignore[no-untyped-def]
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
        return _take_position(t, frame)
    return kind == SERVICE_ANSWERS and _take_answers(t, frame)


@routine
def _take_position(t, frame):  # type: ignore[no-untyped-def]
    w, buffer, limits = t.words, t.received, t.limits
    position = get_i64(buffer, frame + SERVED_POSITION_AT)
    if position < limits[SERVED] or position > limits[LIMIT]:
        return False
    if position > limits[SERVED]:
        limits[SERVED], limits[ANSWERED] = position, 0
    t.counters[w[at.SERVICE_COUNTER]] = position
    t.counters[w[at.MAX_CYCLE_COUNTER]] = get_i64(buffer, frame + MAX_CYCLE_TIME_AT)
    t.counters[w[at.CYCLES_EXCEEDED_COUNTER]] = get_i64(buffer, frame + CYCLE_TIME_EXCEEDED_AT)
    return True


@routine
def _take_answers(t, frame):  # type: ignore[no-untyped-def]
    w, is_leader = t.words, t.words[at.ROLE] == at.LEADER_ROLE
    rows, unsupervised = _read_answers(t, frame)
    if rows == 0 or (unsupervised > 0 and not is_leader):
        return False
    columns = t.columns[: COLUMNS * rows]
    if unsupervised < rows:
        answer_ids = columns[EXTRA * rows : EXTRA * rows + rows]
        if keep_answers(t, columns, answer_ids, t.received, rows) < rows:
            return False  # those that are kept now are not kept twice
    if is_leader:
        w[at.SERVICE_LEADERSHIP_TERM_ID] = get_i64(t.received, frame + TERM_OF_ANSWERS_AT)
        t.limits[ANSWERED] += unsupervised
        send_kept(t)
        send_egress(t, columns, t.received, rows)
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
