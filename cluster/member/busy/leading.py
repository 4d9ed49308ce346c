"""A leader's busy turn: as ``phases/leading.py``, for what is frequent.

followers' reports      members' rows
clients' messages       into the log; one write, one send a follower, one sync
quorum                  the commit position; messages counted, served, acknowledged
CommitPosition          with the log of the next turn, or after a millisecond
"""

from cluster.archive.recording_words import APPEND_POSITION, SYNCED_POSITION
from cluster.consensus import quorum
from cluster.consensus.cluster_time import STAMPED
from cluster.log.connection_table import OWNER, ROW_WORDS
from cluster.log.frames import OUT_FULL, align_frame
from cluster.log.ingress import append_run
from cluster.log.kernel import routine
from cluster.log.memory import get_i32, get_i64, get_u8
from cluster.log.runs import NOT_A_FRAME
from cluster.member.busy import words as at
from cluster.member.busy.buffer import make_room, poll_log
from cluster.member.busy.envelopes import (
    APPEND_POSITION_KIND,
    LEADERSHIP_TERM_AT,
    POSITION_AT,
    REPORT_FLAGS_AT,
    is_position_message,
    send_sealed,
    set_position,
)
from cluster.member.busy.receiving import leave, receive_frames
from cluster.member.busy.recorder import append, has_room, sync
from cluster.member.busy.serving import serve_committed
from cluster.member.busy.system import read_clock
from cluster.member.log.log_words import (
    BASE,
    COMMIT_POSITION,
    FLUSHED,
    FOLLOWER_WORDS,
    IS_LIVE,
    OUT,
    PUBLICATION_POSITION,
    STREAM_POSITION,
)
from cluster.member.measuring import measure
from cluster.protocol.enums import AppendPositionFlags
from cluster.transport.envelopes import piece_end

CATCHUP = int(AppendPositionFlags.CATCHUP)


@routine
def take_reports(t, member_id, begin, end):  # type: ignore[no-untyped-def]
    """Take the AppendPositions of a follower; False, with nothing done, where they are Python's."""
    if not _are_reports(t, begin, end):
        return False
    while begin < end:
        quorum.take_report(
            t.leadership,
            t.members,
            member_id,
            t.leadership[quorum.LEADERSHIP_TERM_ID],
            get_i64(t.received, begin + POSITION_AT),
            t.words[at.NOW_NS],
        )
        begin += align_frame(get_i32(t.received, begin))
    return True


@routine
def _are_reports(t, begin, end):  # type: ignore[no-untyped-def]
    """Whether the frames are reports of this term that can be meant as they are said."""
    buffer = t.received
    while begin < end:
        if not is_position_message(buffer, begin, end, APPEND_POSITION_KIND):
            return False
        position = get_i64(buffer, begin + POSITION_AT)
        if (
            get_i64(buffer, begin + LEADERSHIP_TERM_AT) != t.leadership[quorum.LEADERSHIP_TERM_ID]
            or not quorum.is_position(position)
            or position > t.recording.words[APPEND_POSITION]
            or get_u8(buffer, begin + REPORT_FLAGS_AT) == CATCHUP
        ):
            return False
        begin += align_frame(get_i32(buffer, begin))
    return begin == end


@routine
def may_take_input(t):  # type: ignore[no-untyped-def]
    """Whether clients are read: they wait in their sockets for the majority, and for room."""
    w = t.words
    position = t.log_end[PUBLICATION_POSITION]
    return position < w[at.INPUT_LIMIT] and position - t.member_log[COMMIT_POSITION] < w[at.UNCOMMITTED_MAX]


@routine
def fits_one_write(t):  # type: ignore[no-untyped-def]
    """Whether what another client sends can be written together with what was appended in this turn."""
    room = t.recording.scratch.size - 2 * t.received.size  # of a message in fragments each has a header
    return t.log_end[PUBLICATION_POSITION] - t.log_end[FLUSHED] <= room


@routine
def receive_ingress(t, descriptor):  # type: ignore[no-untyped-def]
    """Append the session messages of a client."""
    w = t.words
    row = descriptor * ROW_WORDS
    received, end, follows = receive_frames(t, descriptor, False)
    offset = 0
    while offset < end and follows != NOT_A_FRAME:
        status, position, offset = append_run(
            t.log,
            t.log_end[PUBLICATION_POSITION] - t.log_end[BASE],
            t.log_end[PUBLICATION_POSITION],
            t.params,
            t.received,
            offset,
            end,
            t.sessions,
            t.connections[row + OWNER],
            t.leadership[quorum.LEADERSHIP_TERM_ID],
            t.replica[STAMPED],
            w[at.NOW_NS],
        )
        t.log_end[PUBLICATION_POSITION] = position
        if status != OUT_FULL:
            break
        base = t.log_end[BASE]
        if not flush(t):
            break
        make_room(t)
        if t.log_end[BASE] == base:
            w[at.REASON] |= at.ROOM
            break
    leave(t, descriptor, offset, received, end, follows)


@routine
def flush(t):  # type: ignore[no-untyped-def]
    """Write and send what was appended since the last time; False where Python must, or the disk failed."""
    w = t.words
    begin, end = t.log_end[FLUSHED], t.log_end[PUBLICATION_POSITION]
    if begin == end:
        return True
    if not has_room(t, end - begin):
        w[at.REASON] |= at.ROOM
        return False
    if w[at.MEASURED_POSITION] == 0:
        w[at.MEASURED_POSITION], w[at.MEASURED_FROM_NS] = end, read_clock(t)
    if not append(t, begin - t.log_end[BASE], end - t.log_end[BASE]):
        return False
    t.log_end[FLUSHED] = end
    set_position(t, t.leadership[quorum.LEADERSHIP_TERM_ID], t.leadership[quorum.QUORUM_POSITION])
    for row in range(0, t.followers.size, FOLLOWER_WORDS):
        if t.followers[row + IS_LIVE] and t.followers[row + OUT] >= 0:
            if not _send_log(t, row, begin, end):
                w[at.REASON] |= at.LAGGARD
        elif t.leadership[quorum.IS_COMMIT_UNSENT]:
            _send_position(t, row)
    if not w[at.REASON] & at.LAGGARD:
        t.leadership[quorum.IS_COMMIT_UNSENT] = 0
    return True


@routine
def _send_log(t, row, begin, end):  # type: ignore[no-untyped-def]
    """Send a follower the log that was just written; False when it does not take all of it."""
    base = t.log_end[BASE]
    if t.followers[row + STREAM_POSITION] != begin:
        return False
    has_commit = t.leadership[quorum.IS_COMMIT_UNSENT] != 0
    while begin < end:
        piece = base + piece_end(t.log, begin - base, end - base)
        if not send_sealed(t, t.followers[row + OUT], has_commit, t.log, begin - base, piece - base):
            return False
        begin = piece
        has_commit = False
        t.followers[row + STREAM_POSITION] = piece
    return True


@routine
def update_leader_position(t):  # type: ignore[no-untyped-def]
    """Take in what is synced here and elsewhere; count, show and serve what is committed."""
    w = t.words
    position = quorum.take_in(t.leadership, t.members, t.recording.words[SYNCED_POSITION], w[at.NOW_NS])
    if position <= t.member_log[COMMIT_POSITION]:
        return
    if not poll_log(t, position, False):
        t.leadership[quorum.HAS_NEWS] = 1
        return
    quorum.commit(t.leadership, position, w[at.NOW_NS])
    t.member_log[COMMIT_POSITION] = position
    t.counters[w[at.COMMIT_COUNTER]] = position
    if 0 < w[at.MEASURED_POSITION] <= position:
        measure(t.counters, w[at.COMMIT_TIME], read_clock(t) - w[at.MEASURED_FROM_NS])
        w[at.MEASURED_POSITION] = 0
    serve_committed(t)


@routine
def send_commit_position(t):  # type: ignore[no-untyped-def]
    """Send the followers CommitPosition, without log."""
    t.leadership[quorum.IS_COMMIT_UNSENT] = 0
    set_position(t, t.leadership[quorum.LEADERSHIP_TERM_ID], t.leadership[quorum.QUORUM_POSITION])
    for row in range(0, t.followers.size, FOLLOWER_WORDS):
        _send_position(t, row)


@routine
def _send_position(t, row):  # type: ignore[no-untyped-def]
    """Send one member the position that lies ready."""
    if t.followers[row + OUT] >= 0:
        send_sealed(t, t.followers[row + OUT], True, t.log, 0, 0)


@routine
def leader_work(t):  # type: ignore[no-untyped-def]
    """What follows the receives of a turn."""
    w = t.words
    if w[at.REASON] & at.FAILED or not flush(t):
        return
    if not sync(t):
        return
    update_leader_position(t)
    if quorum.has_waited(t.leadership, w[at.NOW_NS]):
        send_commit_position(t)
    make_room(t)
