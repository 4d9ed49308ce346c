"""What a majority has proven, and how far a leader commits: over words, for Python and compiled turns alike.

members      a row each: what it reported last, and when it was heard (``ClusterMember``)
leadership   of one term: what its leader has taken in, committed and sent (``Leadership``, ``Leader``)
"""

from cluster.log.kernel import kernel, routine
from cluster.log.memory import I64, WORDS, WORDS_OUT
from cluster.protocol.frame import FRAME_ALIGNMENT, TERM_LENGTH_MAX

# A row of members.
ID, REPORT_TERM_ID, REPORT_POSITION, LAST_ACTIVITY_NS = range(4)
ROW_WORDS = 4
NEVER_HEARD = -1

# A leadership.
(
    LEADERSHIP_TERM_ID,
    QUORUM,  # so many members are a majority
    TIMEOUT_NS,  # of members that are not heard
    HEARTBEAT_NS,
    OWN_ROW,
    APPEND_POSITION,  # ours, as far as it is taken in
    HAS_NEWS,  # reports came since
    COMMIT_POSITION,
    QUORUM_POSITION,  # that CommitPosition said last
    COMMIT_DUE_NS,  # when CommitPosition is to be sent although nothing has changed
    IS_COMMIT_UNSENT,  # it has risen, which followers hear with the next turn or log
    COMMIT_RISEN_NS,  # for the first time since it was sent
) = range(12)
LEADERSHIP_WORDS = 12
COMMIT_WAIT_NS = 1_000_000  # of a commit position, for log to go with

# A follower.
FOLLOWED_TERM_ID, FOLLOWED_LEADER = range(2)
NOTIFIED_COMMIT_POSITION, LAST_LEADER_MESSAGE_NS, SENT_POSITION = range(2, 5)
REPORT_DUE_NS, REPORT_INTERVAL_NS = range(5, 7)  # of AppendPosition although nothing has changed
FOLLOWER_WORDS = 7

NOTHING_TO_REPORT = -1

POSITION_MAX = TERM_LENGTH_MAX << 31  # of the log with the longest terms


@routine
def is_position(position):  # type: ignore[no-untyped-def]
    """Whether a log can end there."""
    return 0 <= position <= POSITION_MAX and position % FRAME_ALIGNMENT == 0


@routine
def is_heard(members, row, now_ns, timeout_ns):  # type: ignore[no-untyped-def]
    """Whether the member was heard less than ``timeout_ns`` ago."""
    last_ns = members[row + LAST_ACTIVITY_NS]
    return last_ns != NEVER_HEARD and last_ns + timeout_ns > now_ns


@routine
def _has_quorum(leadership, members, position, now_ns):  # type: ignore[no-untyped-def]
    holders = 0
    for row in range(0, members.size, ROW_WORDS):
        holders += (
            members[row + REPORT_TERM_ID] == leadership[LEADERSHIP_TERM_ID]
            and members[row + REPORT_POSITION] >= position
            and is_heard(members, row, now_ns, leadership[TIMEOUT_NS])
        )
    return holders >= leadership[QUORUM]


@kernel(I64(WORDS, WORDS, I64, I64))
def has_quorum_at(leadership, members, position, now_ns):  # type: ignore[no-untyped-def]
    """Whether a majority of active members has proven ``position`` in this term (0 included)."""
    return _has_quorum(leadership, members, position, now_ns)


@routine
def _quorum_position(leadership, members, synced_position, now_ns):  # type: ignore[no-untyped-def]
    highest = 0
    for row in range(0, members.size, ROW_WORDS):
        position = members[row + REPORT_POSITION]
        if position > highest and _has_quorum(leadership, members, position, now_ns):
            highest = position
    return min(highest, synced_position)


@kernel(I64(WORDS, WORDS, I64, I64))
def quorum_position(leadership, members, synced_position, now_ns):  # type: ignore[no-untyped-def]
    """The position that a majority has proven in this term, at most our own ``synced_position``; else 0."""
    return _quorum_position(leadership, members, synced_position, now_ns)


@routine
def take_report(leadership, members, member_id, term_id, position, now_ns):  # type: ignore[no-untyped-def]
    """A follower's log is safe up to there; of an earlier term it proves nothing."""
    for row in range(0, members.size, ROW_WORDS):
        if members[row + ID] == member_id and term_id <= leadership[LEADERSHIP_TERM_ID]:
            members[row + REPORT_TERM_ID] = term_id
            members[row + REPORT_POSITION] = position
            members[row + LAST_ACTIVITY_NS] = now_ns
            leadership[HAS_NEWS] = 1


@kernel(I64(WORDS_OUT, WORDS_OUT, I64, I64, I64, I64))
def on_report(leadership, members, member_id, term_id, position, now_ns):  # type: ignore[no-untyped-def]
    """``take_report`` for Python."""
    take_report(leadership, members, member_id, term_id, position, now_ns)
    return 0


@routine
def is_heartbeat_due(leadership, now_ns):  # type: ignore[no-untyped-def]
    """Whether CommitPosition is to be sent although nothing has changed."""
    return now_ns >= leadership[COMMIT_DUE_NS]


@routine
def take_in(leadership, members, synced_position, now_ns):  # type: ignore[no-untyped-def]
    """Take in what is synced here and elsewhere; what CommitPosition is to say now, NOTHING_TO_REPORT.

    That is a commit position that rises, never beyond our own disk, or whatever a majority has when the
    next one is due.
    """
    own = leadership[OWN_ROW]
    members[own + LAST_ACTIVITY_NS] = now_ns
    is_due = is_heartbeat_due(leadership, now_ns)
    if synced_position == leadership[APPEND_POSITION] and not leadership[HAS_NEWS] and not is_due:
        return NOTHING_TO_REPORT
    leadership[APPEND_POSITION] = synced_position
    leadership[HAS_NEWS] = 0
    members[own + REPORT_TERM_ID] = leadership[LEADERSHIP_TERM_ID]
    members[own + REPORT_POSITION] = synced_position
    position = _quorum_position(leadership, members, synced_position, now_ns)
    return position if is_due or position > leadership[COMMIT_POSITION] else NOTHING_TO_REPORT


@routine
def on_commit_sent(leadership, position, now_ns):  # type: ignore[no-untyped-def]
    """CommitPosition with this position goes to all others; the next one is due after the interval."""
    leadership[QUORUM_POSITION] = position
    leadership[COMMIT_DUE_NS] = now_ns + leadership[HEARTBEAT_NS]


@routine
def commit(leadership, position, now_ns):  # type: ignore[no-untyped-def]
    """The majority has this position, which all others are to hear; a commit position never falls."""
    if position > leadership[COMMIT_POSITION]:
        leadership[COMMIT_POSITION] = position
        if leadership[QUORUM] > 1 and not leadership[IS_COMMIT_UNSENT]:
            leadership[IS_COMMIT_UNSENT] = 1
            leadership[COMMIT_RISEN_NS] = now_ns
    on_commit_sent(leadership, position, now_ns)


@kernel(I64(WORDS_OUT, WORDS_OUT, I64, I64))
def update(leadership, members, synced_position, now_ns):  # type: ignore[no-untyped-def]
    """``take_in``, then ``commit`` what it says."""
    position = take_in(leadership, members, synced_position, now_ns)
    if position != NOTHING_TO_REPORT:
        commit(leadership, position, now_ns)
    return position


@routine
def has_waited(leadership, now_ns):  # type: ignore[no-untyped-def]
    """Whether followers wait for the commit position, and it has waited long enough for log to go with."""
    return leadership[IS_COMMIT_UNSENT] and now_ns - leadership[COMMIT_RISEN_NS] >= COMMIT_WAIT_NS


@routine
def take_commit(follower, position, now_ns):  # type: ignore[no-untyped-def]
    """The leader that is followed has said CommitPosition."""
    follower[LAST_LEADER_MESSAGE_NS] = now_ns
    follower[NOTIFIED_COMMIT_POSITION] = max(follower[NOTIFIED_COMMIT_POSITION], position)


@routine
def is_report_due(follower, synced_position, now_ns):  # type: ignore[no-untyped-def]
    """Whether a follower is to report its position: it grew, or the interval passed (C-38, C-39)."""
    return synced_position != follower[SENT_POSITION] or now_ns >= follower[REPORT_DUE_NS]


@routine
def on_report_sent(follower, synced_position, now_ns):  # type: ignore[no-untyped-def]
    """AppendPosition with this position was sent; the next one is due after the interval."""
    follower[SENT_POSITION] = synced_position
    follower[REPORT_DUE_NS] = now_ns + follower[REPORT_INTERVAL_NS]
