"""A follower's busy turn: as ``phases/following.py``, for what is frequent.

the leader's log         checked, written, synced, reported: the leader waits for that alone
CommitPosition           messages counted, shown, served

Clients are never read here, and the AppendPosition of every 200 ms is Python's (TIME).
"""

from cluster.archive.recording_words import APPEND_POSITION, SYNCED_POSITION, TAKEN_POSITION
from cluster.consensus import quorum
from cluster.log.frames import align_frame
from cluster.log.kernel import routine
from cluster.log.memory import copy_bytes, get_i32, get_i64
from cluster.log.runs import find_whole_frames
from cluster.log.scan import check_frames
from cluster.member.busy import words as at
from cluster.member.busy.buffer import make_room, poll_log
from cluster.member.busy.envelopes import (
    COMMIT_POSITION_KIND,
    LEADERSHIP_TERM_AT,
    POSITION_AT,
    POSITION_FRAME_LENGTH,
    is_position_message,
    send_sealed,
    set_position,
)
from cluster.member.busy.recorder import append, has_room, sync
from cluster.member.busy.serving import serve_committed
from cluster.member.log.log_words import BASE, COMMIT_POSITION, PUBLICATION_POSITION
from cluster.protocol import streams
from cluster.protocol.frame import STREAM_ID_AT


@routine
def take_log(t, member_id, begin, end):  # type: ignore[no-untyped-def]
    """Take the leader's log and commit positions; False where they are Python's, or the disk fails."""
    is_leader = member_id == t.follower[quorum.FOLLOWED_LEADER]
    return is_leader and _can_be_taken(t, begin, end) and _on_log_and_positions(t, begin, end)


@routine
def _log_end(buffer, begin, end):  # type: ignore[no-untyped-def]
    """End of the run of log frames at ``begin``."""
    while begin < end and get_i32(buffer, begin + STREAM_ID_AT) == streams.LOG:
        begin += align_frame(get_i32(buffer, begin))
    return begin


@routine
def _can_be_taken(t, begin, end):  # type: ignore[no-untyped-def]
    """Whether the frames are log that joins on and has room, and commit positions of this term."""
    buffer = t.received
    position = t.recording.words[APPEND_POSITION]
    frames_end, _ = find_whole_frames(buffer, begin, end, end - begin, True)
    if frames_end != end:
        return False
    in_memory = t.log_end[PUBLICATION_POSITION] - t.log_end[BASE]
    if not has_room(t, end - begin) or end - begin > t.log.size - in_memory:
        return False
    while begin < end:
        log_end = _log_end(buffer, begin, end)
        if log_end > begin:
            valid_end, _ = check_frames(buffer, begin, log_end, position, t.params, False)
            if valid_end != log_end:
                return False
            position += log_end - begin
            begin = log_end
            continue
        committed = get_i64(buffer, begin + POSITION_AT) if end - begin >= POSITION_FRAME_LENGTH else -1
        if (
            not is_position_message(buffer, begin, end, COMMIT_POSITION_KIND)
            or get_i64(buffer, begin + LEADERSHIP_TERM_AT) != t.follower[quorum.FOLLOWED_TERM_ID]
            or not quorum.is_position(committed)
        ):
            return False
        begin += align_frame(get_i32(buffer, begin))
    return True


@routine
def _on_log_and_positions(t, begin, end):  # type: ignore[no-untyped-def]
    w, buffer = t.words, t.received
    while begin < end:
        log_end = _log_end(buffer, begin, end)
        if log_end > begin:
            place = t.log_end[PUBLICATION_POSITION] - t.log_end[BASE]
            copy_bytes(t.log, place, buffer, begin, log_end - begin)
            if not append(t, place, place + log_end - begin):
                return False
            t.log_end[PUBLICATION_POSITION] = t.recording.words[APPEND_POSITION]
            begin = log_end
            continue
        quorum.take_commit(t.follower, get_i64(buffer, begin + POSITION_AT), w[at.NOW_NS])
        begin += align_frame(get_i32(buffer, begin))
    return True


@routine
def follower_work(t):  # type: ignore[no-untyped-def]
    """What follows the receives of a turn."""
    w = t.words
    if w[at.REASON] & at.FAILED:
        return
    if not sync(t):
        return
    synced_position = t.recording.words[SYNCED_POSITION]
    if quorum.is_report_due(t.follower, synced_position, w[at.NOW_NS]):
        set_position(t, t.follower[quorum.FOLLOWED_TERM_ID], synced_position)
        if send_sealed(t, w[at.LEADER_OUT], True, t.log, 0, 0):
            quorum.on_report_sent(t.follower, synced_position, w[at.NOW_NS])
    limit = min(t.follower[quorum.NOTIFIED_COMMIT_POSITION], t.recording.words[APPEND_POSITION])
    if t.cursor[TAKEN_POSITION] < limit:
        poll_log(t, limit, True)
        t.member_log[COMMIT_POSITION] = t.counters[w[at.COMMIT_COUNTER]] = t.cursor[TAKEN_POSITION]
        serve_committed(t)
    make_room(t)
