"""What a busy turn works on: arrays of words and bytes, and the place of each value in them.

Numbers that a turn reads and changes lie in ``Tables.words``. Python fills them in before a run of turns and
takes them back after it (``lend.py``); in between they are the only ones.
"""

from typing import Annotated, NamedTuple, TypeAlias, get_type_hints

import numpy as np

from cluster.archive.recording_words import RECORDING_TABLES, RecordingTables
from cluster.log.memory import BYTES_OUT, WORDS_OUT
from cluster.log.tables import tables_type
from cluster.protocol.enums import ClusterControlToggle

Words: TypeAlias = Annotated[np.ndarray, WORDS_OUT]
Bytes: TypeAlias = Annotated[np.ndarray, BYTES_OUT]


class Tables(NamedTuple):
    """Arrays of int64 (words, by the constants below or those of their modules) and of bytes.

    ``recording`` has several of its own.
    """

    words: Words
    calls: Words  # addresses, by log/calls.py
    connections: Words  # rows by descriptor, log/connection_table.py
    by_connection: Words  # descriptors by connection id
    members: Words  # consensus/quorum.py
    replica: Words  # consensus/cluster_time.py
    member_log: Words  # member/log/log_words.py
    log_end: Words  # of the same
    recording: Annotated[RecordingTables, RECORDING_TABLES]
    cursor: Words  # archive/recording_words.py: how far the log is processed
    service_cursor: Words  # how far a compiled service has it
    time: Words  # a leader's, consensus/cluster_time.py
    leadership: Words  # a leader's, consensus/quorum.py
    follower: Words  # a follower's, of the same
    followers: Words  # rows of the same, one for each of ``members``
    sessions: Words  # log/session_table.py
    ranges: Words  # of frame_egress
    params: Words  # LogParams.words
    counters: Words  # values of the counters file, mapped
    columns: Words  # of delivered messages
    service_call: Words  # log/message_calls.py
    answers: Words  # columns of what the service's function answers
    numbers: Words  # log/message_numbers.py, of a compiled service
    answer_ids: Words  # of what it answers
    kept: Words  # log/kept_frames.py
    services: Words  # member/services/service_table.py
    ready: Words  # descriptors
    received: Bytes
    parts: Bytes  # rows of half a frame, of the same
    keepers: Words
    log: Bytes  # the end of the log; log[0] is the byte at position BASE
    side: Bytes  # payloads of fragmented messages
    answer_bytes: Bytes  # payloads of its answers
    egress: Bytes
    unsent: Bytes  # what sockets did not take, for Python to offer
    sealed: Bytes  # of TLS
    scratch: Bytes  # places below


_HINTS = get_type_hints(Tables, include_extras=True)
TABLES = tables_type(Tables, tuple(_HINTS[name].__metadata__[0] for name in Tables._fields))

# Why a run of turns ended: bits of REASON.
TIME = 1  # a slow tick that is Python's, a dial, a timer or a heartbeat is due
EVENT = 2  # of a socket that is not served here, or the end of one that is
FRAMES = 4  # what was received from GIVEN, from GIVEN_BEGIN on, is for Python
UNSENT = 8  # bytes in ``unsent``
ENTRY = 16  # an entry that is no session message is committed, or to be processed
SERVICES = 32  # committed log is for services that Python serves
PREPARE = 64  # the recording wants zeros ahead, its next segment, or to let go of old log
ROOM = 128  # the segment or a buffer has no room, or clients are as far ahead of the commit as they may be
FAILED = 256  # a write or sync, by ERROR
LAGGARD = 512  # a follower was not sent all
INTERRUPTED = 1024
IDLE = 2048  # nothing had come, in a run that waits for nothing

# Words.
(
    REASON,
    ROLE,
    PASSES_MAX,  # with work, in a run that waits for nothing: the simulator; 0: it waits, and goes on
    EPOLL,
    READY_COUNT,
    NOW_NS,
    LAST_NS,  # of the turn before
    LONGEST_GAP_NS,  # from one turn to the next, in this run, but for the last
    SLOW_TICK_NS,
    TICK_NS,  # from one slow tick to the next
    QUIET_UNTIL_NS,  # a slow tick before it is Python's only if an operator asks for something
    CONTROL_TOGGLE,  # counters
    NODE_TOGGLE,
    DUE_NS,  # of all else that time gives Python to do
    SPIN_NS,
    SPIN_UNTIL_NS,
    LOOKS_IN_VAIN,  # one after the other
    SLEEPS,  # so many waits sleep at once before the next look
    TIME_DIVISOR,  # nanoseconds in a unit of cluster time
    GIVEN,
    GIVEN_BEGIN,
    GIVEN_END,
    UNSENT_END,
    ERROR,
    # the log
    INPUT_LIMIT,  # a leader takes nothing more from here on
    UNCOMMITTED_MAX,  # nor more than so many bytes beyond the commit position
    # the recording
    PREPARE_AT,
    POSITION_COUNTER,
    COMMIT_COUNTER,
    # a follower's
    LEADER_OUT,  # descriptor that sends to its leader
    # the service in line; those in processes of their own have rows
    SERVICE,
    SERVICE_FUNCTION,  # address, log/message_calls.py; ECHO: it needs none
    SERVICE_ROWS,
    SERVICE_LEADERSHIP_TERM_ID,
    SERVICE_TIME,
    IS_SERVING,  # its answers go out
    SERVICE_ID,
    HAS_SUPERVISED,  # there are sessions whose answers are kept
    UNKEPT,  # of its last answers, in ``answers``, some have no room and are for Python to keep
    LIMIT_DUE_NS,  # when processes of a follower's services hear of the next limit; NEVER: none is due
    # measured: histograms, each by its first counter
    SYNC_TIME,
    COMMIT_TIME,
    MEASURED_POSITION,  # whose commit is measured; 0: none is
    MEASURED_FROM_NS,
    # done
    LAST_CLIENT,  # connection id of the client that was read last
    RUN_TURNS,  # with work, in this run
    WORK_TURNS,  # in all
) = range(47)
WORDS = 128

LEADER_ROLE, FOLLOWER_ROLE = 1, 2
TOGGLE_NEUTRAL = int(ClusterControlToggle.NEUTRAL)  # above it something is asked for
ECHO = 0
NEVER = (1 << 63) - 1
PYTHON_SERVICE, COMPILED_SERVICE, NO_SERVICE = range(3)  # the first: also several, or a process for now

# Places in scratch.
TIME_AT = 0  # struct timespec
TLS_AT = 32  # an address
PIECES_AT = 64  # two struct iovec
HEADER_AT = 128  # of an envelope
FRAME_AT = 160  # after it: AppendPosition or CommitPosition, to be filled in
LIMIT_AT = 256  # LogLimit, to be filled in
EVENTS_AT = 2048  # struct epoll_event
SCRATCH = 8192

SEALED_BYTES = 128 * 1024  # of TLS, received or sent at a time: OpenSSL keeps as much for each connection
IS_TO_CLOSE = -1  # in ``unsent``, for a length
LIMIT_LENGTH = 64  # aligned
READY_MAX = 256
