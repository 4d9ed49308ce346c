"""The busy turn of a member, as one compiled function (Aeron's duty cycle, for what is frequent).

    wait       for sockets, no longer than until the slow tick, or until a commit position is due
    tick       every 10 ms: whether an operator asks for something
    receive    members by id, then clients in turn, then    receiving.py
               processes of services                        remote.py
    lead       flush, sync, quorum, commit, serve           leading.py
    follow     sync, report, process, serve                 following.py

What Aeron has in a turn, and where it is here:

    idle strategy (AgentRunner)     wait: it is a part of the turn
    stall tracker                   the longest gap of a run goes to the agent's on_busy_turns
    slow tick                       its toggles here; the rest is Python's, every 50 ms: sessions that time
                                    out, the active quorum, signs of life
    timers                          TIME, by what is due next
    service messages                with one pending, nothing is lent
    consensus adapter               take_reports (AppendPosition), take_log (log, CommitPosition)
    ingress                         receive_ingress; a follower's clients are EVENTs
    archive                         append and sync, in line: what is reported or counted is on the disk
    quorum, commit position         update_leader_position, after this turn's sync
    CommitPosition                  with the next log, or alone; every 200 ms by Python (TIME)
    AppendPosition                  follower_work, when it has changed; every 200 ms by Python (TIME)
    log adapter                     poll_log; a follower's after its report, which the leader waits for
    service container, egress       serve_committed, before CommitPosition is sent
    sweep of uncommitted entries    by Python, after a run (Leading.take_back)

It turns until something rare happens: an event of a socket that is not served here, a frame of another kind,
an entry that is no session message, a segment that ends, a fault, or Python's slow tick. Then it finishes the
turn and returns the reason, and Python goes on; only what has no room is left for Python to write. It does
what Python's turn does with the same events, in the same order, except that CommitPosition waits about a
millisecond so that it can go out with log.
"""

from cluster.archive.append_and_sync import RECORDING_MODULES
from cluster.consensus import quorum
from cluster.consensus.cluster_time import STAMPED, TIME_NS, go_on
from cluster.log.connection_table import CLIENT, CRC, KIND, LINK_IN, OWNER, ROW_WORDS, SERVICE_LINK, STATE
from cluster.log.kernel import kernel, routine
from cluster.log.memory import I64
from cluster.log.runs import NOT_A_FRAME
from cluster.member.busy import words as at
from cluster.member.busy.following import follower_work, take_log
from cluster.member.busy.leading import (
    fits_one_write,
    leader_work,
    may_take_input,
    receive_ingress,
    send_commit_position,
    take_reports,
)
from cluster.member.busy.receiving import leave, receive_frames
from cluster.member.busy.remote import give_log, receive_from_service
from cluster.member.busy.system import READABLE, event, read_clock, wait
from cluster.member.services.service_table import LINK, SERVICE_WORDS
from cluster.protocol.frame import HEADER_LENGTH
from cluster.transport.envelopes import open_envelope

# A wait looks for so long before it sleeps, since to be woken takes 10 to 20 us. After a look in vain the
# next waits sleep at once, twice as many each time: whoever is awaited may need this very core.
LOOK_NS = 30_000
SLEEPS_MIN, SLEEPS_MAX = 32, 1024

# What is compiled into the turn, beside the modules that all kernels share; a test holds it complete.
_OF_THE_LOG = (
    "deliver",
    "follow",
    "ingress",
    "kept_frames",
    "runs",
    "scan",
    "session_frames",
    "message_calls",
    "message_numbers",
)
_OF_THE_TURN = (
    "words",
    "tls",
    "system",
    "receiving",
    "recorder",
    "envelopes",
    "buffer",
    "egress",
    "remote",
    "serving",
    "leading",
    "following",
)
_OF_THE_PROTOCOL = ("cnc", "consensus", "counter_types", "enums", "service_link")
MODULES = (
    *RECORDING_MODULES,
    "cluster.consensus.cluster_time",
    "cluster.consensus.quorum",
    "cluster.member.log.log_words",
    "cluster.member.measuring",
    "cluster.member.services.service_table",
    *(f"cluster.log.{name}" for name in _OF_THE_LOG),
    *(f"cluster.member.busy.{name}" for name in _OF_THE_TURN),
    *(f"cluster.protocol.{name}" for name in _OF_THE_PROTOCOL),
    "cluster.transport.envelopes",
    "cluster.transport.sockets",
)


@routine
def _await_events(t):  # type: ignore[no-untyped-def]
    """Wait for sockets, no longer than until something is due; how many have something."""
    w = t.words
    w[at.LAST_NS] = w[at.NOW_NS]
    timeout_ms = 0
    due_ns = min(w[at.SLOW_TICK_NS], w[at.DUE_NS], w[at.LIMIT_DUE_NS])
    if w[at.PASSES_MAX] == 0:
        w[at.NOW_NS] = read_clock(t)
        is_look = w[at.SLEEPS] == 0
        look_until_ns = max(w[at.SPIN_UNTIL_NS], w[at.NOW_NS] + LOOK_NS * is_look)
        while w[at.NOW_NS] < look_until_ns and w[at.NOW_NS] < due_ns:
            found = wait(t, 0)
            w[at.NOW_NS] = read_clock(t)
            if found != 0 or (w[at.ROLE] == at.LEADER_ROLE and quorum.has_waited(t.leadership, w[at.NOW_NS])):
                w[at.LOOKS_IN_VAIN] *= found <= 0
                return found
        _count_sleep(t, is_look)
        if w[at.NOW_NS] < due_ns:
            timeout_ms = (due_ns - w[at.NOW_NS] + 999_999) // 1_000_000
            if w[at.ROLE] == at.LEADER_ROLE and t.leadership[quorum.IS_COMMIT_UNSENT]:
                waits_until_ns = t.leadership[quorum.COMMIT_RISEN_NS] + quorum.COMMIT_WAIT_NS
                left_ns = max(waits_until_ns - w[at.NOW_NS], 0)
                timeout_ms = min(timeout_ms, (left_ns + 500_000) // 1_000_000)
    found = wait(t, timeout_ms)
    w[at.NOW_NS] = read_clock(t)
    return found


@routine
def _count_sleep(t, is_look):  # type: ignore[no-untyped-def]
    """A wait sleeps, after a look in vain or without one."""
    w = t.words
    if is_look:
        w[at.SLEEPS] = min(SLEEPS_MIN << w[at.LOOKS_IN_VAIN], SLEEPS_MAX)
        w[at.LOOKS_IN_VAIN] = min(w[at.LOOKS_IN_VAIN] + 1, 8)
    else:
        w[at.SLEEPS] -= 1


@routine
def _is_time(t):  # type: ignore[no-untyped-def]
    """Whether something is due that is Python's. A slow tick is not while nothing waits for it."""
    w = t.words
    is_leader = w[at.ROLE] == at.LEADER_ROLE
    if w[at.NOW_NS] >= w[at.DUE_NS] or (is_leader and quorum.is_heartbeat_due(t.leadership, w[at.NOW_NS])):
        return True
    if w[at.NOW_NS] < w[at.SLOW_TICK_NS]:
        return False
    if (
        w[at.NOW_NS] >= w[at.QUIET_UNTIL_NS]
        or t.counters[w[at.CONTROL_TOGGLE]] > at.TOGGLE_NEUTRAL
        or t.counters[w[at.NODE_TOGGLE]] > at.TOGGLE_NEUTRAL
    ):
        return True
    w[at.SLOW_TICK_NS] = w[at.NOW_NS] + w[at.TICK_NS]
    return False


@routine
def _find_ready(t, found):  # type: ignore[no-untyped-def]
    """Order what is ready: members by id, clients from the one after the last; False: one is for Python."""
    w, connections = t.words, t.connections
    count = 0
    for i in range(found):
        mask, descriptor = event(t, i)
        row = descriptor * ROW_WORDS
        if mask != READABLE or row >= connections.size:
            return False
        kind = connections[row + KIND]
        is_client = kind == CLIENT and w[at.ROLE] == at.LEADER_ROLE
        is_service = kind == SERVICE_LINK and _is_lent(t, descriptor)
        if connections[row + STATE] != 0 or not (kind == LINK_IN or is_client or is_service):
            return False
        place = count
        while place > 0 and _comes_before(t, descriptor, t.ready[place - 1]):
            t.ready[place] = t.ready[place - 1]
            place -= 1
        t.ready[place] = descriptor
        count += 1
    w[at.READY_COUNT] = count
    return True


@routine
def _is_lent(t, descriptor):  # type: ignore[no-untyped-def]
    """Whether the process of a service is not Python's."""
    return t.services[t.connections[descriptor * ROW_WORDS + OWNER] * SERVICE_WORDS + LINK] == descriptor


@routine
def _comes_before(t, descriptor, other):  # type: ignore[no-untyped-def]
    connections, last = t.connections, t.words[at.LAST_CLIENT]
    a, b = descriptor * ROW_WORDS, other * ROW_WORDS
    if connections[a + KIND] != connections[b + KIND]:
        return connections[a + KIND] == LINK_IN or connections[b + KIND] == SERVICE_LINK
    a_owner, b_owner = connections[a + OWNER], connections[b + OWNER]
    if connections[a + KIND] == CLIENT and (a_owner <= last) != (b_owner <= last):
        return b_owner <= last
    return a_owner < b_owner


@routine
def _receive(t):  # type: ignore[no-untyped-def]
    w = t.words
    for i in range(w[at.READY_COUNT]):
        descriptor = t.ready[i]
        kind = t.connections[descriptor * ROW_WORDS + KIND]
        if kind == LINK_IN:
            _receive_from_member(t, descriptor)
        elif kind == SERVICE_LINK:
            receive_from_service(t, descriptor)
        elif not may_take_input(t):
            w[at.REASON] |= at.ROOM
        elif fits_one_write(t):  # else it comes first in the next turn
            receive_ingress(t, descriptor)
            w[at.LAST_CLIENT] = t.connections[descriptor * ROW_WORDS + OWNER]
        if w[at.REASON] & (at.FRAMES | at.FAILED):
            break


@routine
def _receive_from_member(t, descriptor):  # type: ignore[no-untyped-def]
    """Take what comes over its link, an envelope at a time."""
    row = descriptor * ROW_WORDS
    received, end, follows = receive_frames(t, descriptor, True)
    offset = 0
    while offset < end and follows != NOT_A_FRAME:
        envelope_end, crc = open_envelope(t.received, offset, end, t.connections[row + CRC])
        begin, member_id = offset + HEADER_LENGTH, t.connections[row + OWNER]
        if envelope_end < 0:
            break
        if t.words[at.ROLE] == at.LEADER_ROLE:
            is_taken = take_reports(t, member_id, begin, envelope_end)
        else:
            is_taken = take_log(t, member_id, begin, envelope_end)
        if not is_taken:
            break
        t.connections[row + CRC] = crc
        offset = envelope_end
    leave(t, descriptor, offset, received, end, follows)


@routine
def _stamp(t):  # type: ignore[no-untyped-def]
    """Cluster time goes on; Python looks at clocks after the run."""
    w = t.words
    go_on(t.time, w[at.NOW_NS])
    t.replica[STAMPED] = max(t.replica[STAMPED], t.time[TIME_NS] // w[at.TIME_DIVISOR])


@kernel(I64(at.TABLES), modules=MODULES, nogil=True)
def busy_turns(t):  # type: ignore[no-untyped-def]
    """Turn until something is rare; returns why, bits of ``words.py``."""
    w = t.words
    w[at.REASON] = w[at.UNSENT_END] = w[at.RUN_TURNS] = w[at.LONGEST_GAP_NS] = w[at.UNKEPT] = 0
    while True:
        # The last one is Python's.
        w[at.LONGEST_GAP_NS] = max(w[at.LONGEST_GAP_NS], w[at.NOW_NS] - w[at.LAST_NS])
        found = _await_events(t)
        if found < 0:
            w[at.REASON] |= at.INTERRUPTED
            break
        if _is_time(t):
            w[at.REASON] |= at.TIME
            break
        if not _find_ready(t, found):
            w[at.REASON] |= at.EVENT
            break
        if w[at.NOW_NS] >= w[at.LIMIT_DUE_NS]:
            give_log(t)
        if found == 0:
            if w[at.ROLE] == at.LEADER_ROLE and t.leadership[quorum.IS_COMMIT_UNSENT]:
                send_commit_position(t)
            elif w[at.PASSES_MAX] > 0:
                if w[at.RUN_TURNS] == 0:
                    w[at.REASON] |= at.IDLE
                break
            if w[at.REASON] != 0:
                break
            continue
        w[at.RUN_TURNS] += 1
        w[at.SPIN_UNTIL_NS] = w[at.NOW_NS] + w[at.SPIN_NS]
        if w[at.ROLE] == at.LEADER_ROLE:
            _stamp(t)
        _receive(t)
        if w[at.ROLE] == at.LEADER_ROLE:
            leader_work(t)
        else:
            follower_work(t)
        if w[at.REASON] != 0 or w[at.RUN_TURNS] == w[at.PASSES_MAX]:
            break
    if w[at.ROLE] == at.LEADER_ROLE:
        _stamp(t)
    w[at.WORK_TURNS] += w[at.RUN_TURNS]
    return w[at.REASON]
