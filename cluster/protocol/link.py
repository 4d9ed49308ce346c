"""Our own messages, schema 1111: what Aeron leaves to its media driver and archive, or does not have.

They travel in frames of stream LINK beside Aeron's own messages: on links between members, on
clients' connections (CommitAck) and for remote readers of the log. The first frame each way on a
connection is Hello, answered by HelloReply.
"""

import hashlib
from collections.abc import Iterable
from enum import IntEnum
from typing import ClassVar, Final

from cluster.protocol.enums import ClusterTimeUnit
from cluster.protocol.identity import ClusterIdentity
from cluster.protocol.recording_log import TERM, RecordingLogEntry
from cluster.protocol.sbe import Ascii, Blob, Bool32, Composite, Message, Schema, Version, i32, i64

LINK_SCHEMA: Final = Schema("link", 1111, 1)
LINK_PROTOCOL_VERSION: Final = 1 << 16 | 1 << 8  # 1.1.0; the majors of both ends must be equal
KEEPS_ALIVE_VERSION: Final = 1 << 16 | 1 << 8  # of members that send something each heartbeat interval


class ConnectionKind(IntEnum):
    """What the end that dialled is."""

    MEMBER = 0
    CLIENT = 1
    READER = 2
    BACKUP = 3
    TOOL = 4


class LinkErrorCode(IntEnum):
    """Why a request on a link was not served."""

    OK = 0  # of EndOfStream: the asked end was reached
    NOT_AVAILABLE = 1  # purged, or not yet there: positions in the text
    WRONG_CLUSTER = 2
    WRONG_VERSION = 3
    NOT_LEADER = 4
    REFUSED = 5  # a bound of the member is reached: it is in the text
    FAILED = 6
    INVALID_ARGUMENT = 7  # no position that a range of the log can begin or end at
    OUT_OF_RANGE = 8  # beyond what is committed
    TLS_REQUIRED = 9  # of a HelloReply in the clear: nothing else is spoken there
    UNAUTHORISED = 10


class PromiseState(IntEnum):
    """Whether a member knows what it has voted for and acknowledged."""

    LOST = 0  # its disk was wiped, or is damaged: it may have promised anything
    EMPTY = 1  # nothing is on its disk: wiped, or new
    KEPT = 2


def incarnation_of(secret: int) -> int:
    """What everybody may know of a member's secret: 63 bits of its SHA-256."""
    digest = hashlib.sha256(secret.to_bytes(8, "little", signed=True)).digest()
    return int.from_bytes(digest[:8], "little") >> 1


class Hello(Message, template_id=1, schema=LINK_SCHEMA):
    """First frame of the end that dialled; ``member_id`` -1 unless it is a member.

    ``secret`` is drawn for each life of a member, and shows that the end that dialled is the process that
    answers at the member's address: its incarnation is `incarnation_of` it. 0 of all others.
    """

    cluster_id: i32
    member_id: i32
    secret: i64
    protocol_version: Version
    kind: ConnectionKind
    name: Ascii = ""


class HelloReply(Message, template_id=2, schema=LINK_SCHEMA):
    """First frame of the end that was dialled; a ``code`` other than OK is followed by a close.

    ``incarnation`` differs between two lives of a process: a member that answers with a new one has
    restarted, and what it said before counts no more.
    ``message_length_max`` is the longest message, SBE header included, that the log takes (0: not known).
    """

    cluster_id: i32
    member_id: i32
    incarnation: i64
    protocol_version: Version
    code: LinkErrorCode
    message_length_max: i32 = 0
    detail: Ascii = ""


class CommitAck(Message, template_id=3, schema=LINK_SCHEMA):
    """To a client: how many messages of its session are committed, the last up to ``committed_position``."""

    cluster_session_id: i64
    leadership_term_id: i64
    committed_messages: i64
    committed_position: i64


class SessionResume(Message, template_id=4, schema=LINK_SCHEMA):
    """From a client whose connection broke or whose leader changed: it wants its open session back.

    The leader answers SessionResumed and links the session to this connection, anyone else a SessionEvent
    with REDIRECT; a session that is not open (any more), or whose hash is not that of ``resume_token``
    (protocol/resume.py), or of another principal, gets CLOSED. The credentials are those of the connect
    request. A client that never heard the OK names session -1: the one that its token opened is linked, and
    answered like a connect request.
    """

    correlation_id: i64
    cluster_session_id: i64
    leadership_term_id: i64  # the last that the client heard of
    encoded_credentials: Blob = b""
    resume_token: Blob = b""


class SessionResumed(Message, template_id=5, schema=LINK_SCHEMA):
    """The session goes on here: ``appended_messages`` of it are in this leader's log since it opened.

    The client sends from the next one on; what it had sent beyond that is in no log.
    """

    correlation_id: i64
    cluster_session_id: i64
    leadership_term_id: i64
    appended_messages: i64
    leader_member_id: i32
    ingress_endpoints: Ascii = ""


class WantedKind(IntEnum):
    """By what entries are chosen."""

    ENTRY_TYPE = 0  # the value is the template id of the entry: 1, 20 to 24
    SESSION = 1  # cluster session id
    TEMPLATE = 2  # template id in the SBE header that the payload begins with


class Wanted(Composite):
    """One value that entries may have; those of one kind are alternatives, and of each kind one must hold."""

    kind: WantedKind
    value: i64


class LogRequest(Message, template_id=10, schema=LINK_SCHEMA):
    """Send the log's frames from ``from_position``, up to ``to_position`` (-1: follow the commits).

    With ``wanted`` they may come as ThinnedBlocks. A member of 0.1 reads no more than the block, and sends
    all; a reader of 0.1 sends no more.
    """

    correlation_id: i64
    from_position: i64
    to_position: i64
    max_bytes: i64
    wanted: tuple[Wanted, ...] = ()

    LATER_PARTS: ClassVar[int] = 1


class ThinnedBlock(Message, template_id=9, schema=LINK_SCHEMA):
    """Frames of the log from ``position`` to ``position`` + ``length``, without those that are not wanted.

    For each run of them stands the header of a padding frame as long as the run.
    """

    correlation_id: i64
    position: i64
    length: i64
    frames: Blob = b""


class EndOfStream(Message, template_id=11, schema=LINK_SCHEMA):
    """No more log frames for this request; ``position`` is the end of what was sent."""

    correlation_id: i64
    position: i64
    code: LinkErrorCode
    text: Ascii = ""


class StatusRequest(Message, template_id=12, schema=LINK_SCHEMA):
    correlation_id: i64


class LogStatus(Message, template_id=13, schema=LINK_SCHEMA):
    """How a member stands. The identity is that of the log: the same on every member of a cluster.

    A member of 0.1 sends none of the last three. ``standing`` is a JSON object: what
    ``cluster/reader/standing.py`` finds, as readers of ``cluster status --json`` get it. ``term`` is that of
    the last entry before the frames that a LogRequest asks for, as tokens have it; empty if it is not known.
    """

    correlation_id: i64
    start_position: i64
    commit_position: i64
    append_position: i64
    leadership_term_id: i64
    first_term_timestamp: i64 | None  # of the first NewLeadershipTermEvent, in cluster time units
    first_log_session_id: i32 | None  # both None without one: an empty log, or its head was purged
    cluster_id: i32
    member_id: i32
    leader_member_id: i32  # -1 while none is known
    role: i32
    election_state: i32
    module_state: i32
    session_count: i32
    term_length: i32
    mtu: i32
    initial_term_id: i32
    time_unit: ClusterTimeUnit
    awaited_members: i64 = 0  # those it cannot take part without, a bit each
    certificate_end_ms: i64 = 0  # of its TLS certificate, since the epoch; 0: it speaks no TLS
    ingress_endpoints: Ascii = ""
    tcp_endpoints: Ascii = ""
    ipc_endpoints: Ascii = ""
    consumers: Ascii = ""  # consumer groups: position:name, with a zero byte between two of them
    standing: Ascii = ""
    term: Ascii = ""

    LATER_PARTS: ClassVar[int] = 3


class LinkError(Message, template_id=14, schema=LINK_SCHEMA):
    """A request could not be served; the connection stays."""

    correlation_id: i64
    code: LinkErrorCode
    text: Ascii = ""


class EventsRequest(Message, template_id=21, schema=LINK_SCHEMA):
    """Send one of the logs for people from a place on; an EndOfStream ends it.

    ``log`` is a number in `LOG_NAMES`, or the next one: the stacks of all threads. ``inode`` and ``offset``
    are those of the last EventLines. With ``inode`` 0 it is from the start of the file before, or from
    -``offset`` bytes before the end. Lines of before ``since_ms``, since the epoch, may be left out then.
    """

    correlation_id: i64
    inode: i64
    offset: i64
    since_ms: i64
    log: i32


class EventLines(Message, template_id=22, schema=LINK_SCHEMA):
    """Bytes of a file, which may end amid a line, and the offset after them."""

    correlation_id: i64
    inode: i64
    offset: i64
    member_id: i32
    lines: Blob = b""


class ReaderCredentials(Message, template_id=15, schema=LINK_SCHEMA):
    """From a reader, before its first request: who it says that it is. It is not answered."""

    encoded_credentials: Blob = b""


class ControlRequest(Message, template_id=18, schema=LINK_SCHEMA):
    """To a member, outside of a session, from an administrator: set a toggle, and say what came of it.

    ``toggle`` is what the control toggle is set to (a leader takes it) or, ``is_of_node``, the node's.
    """

    correlation_id: i64
    toggle: i64
    is_of_node: Bool32


class ControlOutcome(Message, template_id=19, schema=LINK_SCHEMA):
    """What came of a ControlRequest: OK when it is done, or, of the end of the cluster, begun.

    NOT_LEADER comes with who leads (-1: not known), and where the members are reached by the medium
    of the request; a toggle that is busy, or an action that failed, is FAILED.
    """

    correlation_id: i64
    member_id: i32
    leader_member_id: i32
    code: LinkErrorCode
    ingress_endpoints: Ascii = ""
    text: Ascii = ""


class ReplicationRequest(Message, template_id=20, schema=LINK_SCHEMA):
    """From a member that lags: send frames up to ``to_position``, excluded; -1: follow on."""

    correlation_id: i64
    leadership_term_id: i64
    from_position: i64
    to_position: i64


class LogGeometry(Message, template_id=24, schema=LINK_SCHEMA):
    """Of the sender's log; goes before each NewLeadershipTerm, for members that have no log yet."""

    initial_term_id: i32
    term_length: i32
    mtu: i32


class LogImage(Message, template_id=25, schema=LINK_SCHEMA):
    """The log frames that follow are what a ReplicationRequest or CatchupPosition asked for.

    Of a CatchupPosition, which has no correlation id, its log position comes back as one. Log frames that
    come before belong to an earlier request.
    """

    correlation_id: i64
    leadership_term_id: i64
    join_position: i64
    log_session_id: i32


class CatchupProgress(Message, template_id=26, schema=LINK_SCHEMA):
    """An AppendPosition of a catch-up that counts for nothing: its sender has lost its promises."""

    leadership_term_id: i64
    log_position: i64


class KnownPromises(Composite):
    """Whose votes count no more unless they are given under this id."""

    promises_id: i64
    member_id: i32


class PromiseStatement(Message, template_id=27, schema=LINK_SCHEMA):
    """How a member stands to its promises: when a link comes up, beside each CanvassPosition and each Vote.

    ``promises_id`` is drawn again whenever promises are lost. Who has lost his ``asks``; everybody answers
    with a statement of his own, in every phase, and names that id among the ``known`` then and with later
    votes. ``candidate_term_id`` and ``leadership_term_id`` (led, followed or in the log) are -1 for none.
    ``cluster`` is the identity of the sender's cluster; none of a member of 0.1, or that does not know it.
    """

    promises_id: i64
    candidate_term_id: i64
    leadership_term_id: i64
    state: PromiseState
    asks: Bool32
    known: tuple[KnownPromises, ...] = ()
    cluster: tuple[ClusterIdentity, ...] = ()

    LATER_PARTS: ClassVar[int] = 1


class ClockRequest(Message, template_id=37, schema=LINK_SCHEMA):
    """What does the member's wall clock show? A member of 0.1 steps over it."""

    asked_ns: i64  # of the monotonic clock of who asks


class ClockReply(Message, template_id=38, schema=LINK_SCHEMA):
    """``clock_ns`` since the epoch; ``asked_ns`` is the request's."""

    asked_ns: i64
    clock_ns: i64


class ServicesAway(Message, template_id=29, schema=LINK_SCHEMA):
    """After a ClockReply, which else says that the sender would serve clients: a service of its is away."""

    service_id: i32  # the first one that is; -1: they are there, and its log has no room


class TransferLeadership(Message, template_id=28, schema=LINK_SCHEMA):
    """The leader of the term wants a follower to lead the next one, whose log ends where its own does.

    To that follower: stand at once. From it to all others, before it asks for their votes: the leader that
    they hear has asked it to. An election follows in which everything is judged as ever.
    """

    leadership_term_id: i64
    log_position: i64
    candidate_member_id: i32


class TermEntry(Composite):
    """A leadership term of the recording log; ``log_position`` -1 while it is open."""

    leadership_term_id: i64
    term_base_log_position: i64
    log_position: i64
    timestamp: i64


def terms_from(position: int, entries: Iterable[RecordingLogEntry]) -> tuple[TermEntry, ...]:
    """The terms of a recording log from the one on that holds ``position``."""
    terms = [TermEntry(*entry[1:5]) for entry in entries if entry.entry_type is TERM]
    first = max((i for i, term in enumerate(terms) if term.term_base_log_position <= position), default=0)
    return tuple(terms[first:])


class RecordingFetch(Message, template_id=30, schema=LINK_SCHEMA):
    """Send frames of a recording, ``to_position`` excluded, in place of an earlier request's."""

    correlation_id: i64
    recording_id: i64
    from_position: i64
    to_position: i64


class RecordingBlock(Message, template_id=31, schema=LINK_SCHEMA):
    """Whole frames of a recording at ``position``, as they were published."""

    correlation_id: i64
    position: i64
    frames: Blob = b""


class LogRangeRequest(Message, template_id=34, schema=LINK_SCHEMA):
    """From a member whose log is damaged: send frames that it misses, as they were published.

    Of a term with this base, up to ``to_position`` (excluded) at most; less is a beginning.
    """

    correlation_id: i64
    leadership_term_id: i64
    term_base_log_position: i64
    from_position: i64
    to_position: i64


class SnapshotRequest(Message, template_id=32, schema=LINK_SCHEMA):
    """From a member that cannot have, or does not want, the log from its start: what is to be had instead?"""

    correlation_id: i64


class OfferedRecording(Composite):
    """One recording of a snapshot; ``service_id`` -1 is the consensus module's."""

    recording_id: i64
    length: i64
    service_id: i32
    session_id: i32
    initial_term_id: i32
    term_length: i32
    mtu: i32


class SnapshotOffer(Message, template_id=33, schema=LINK_SCHEMA):
    """The newest snapshot of the sender, and the log that it has before it; ``log_position`` -1: none.

    ``terms`` begin with the one that holds ``log_start_position`` and end with the snapshot's, which is open.
    ``first_frame`` is that of the whole log, where its beginning is purged.
    """

    correlation_id: i64
    log_position: i64
    leadership_term_id: i64
    timestamp: i64
    log_recording_id: i64
    log_start_position: i64
    initial_term_id: i32
    term_length: i32
    mtu: i32
    recordings: tuple[OfferedRecording, ...] = ()
    terms: tuple[TermEntry, ...] = ()
    first_frame: Blob = b""


class RecordingRequest(Message, template_id=16, schema=LINK_SCHEMA):
    """From a backup, as a reader: describe a recording and, if it is a snapshot's, send all of its frames.

    The frames of the log are asked for by LogRequest, which is bounded by the commit position.
    """

    correlation_id: i64
    recording_id: i64


class RecordingStatus(Message, template_id=17, schema=LINK_SCHEMA):
    """What a recording is like; the frames that follow, as they are in the files, end with an EndOfStream.

    ``checksum``: what the frames hold in place of session ids, crc32 or crc32c, or none. ``stop_position`` is
    -1 while it is being written. Of the log, ``terms`` begin with the one that holds ``start_position``, and
    ``first_frame`` is that of the whole log, where its beginning is purged.
    """

    correlation_id: i64
    recording_id: i64
    start_position: i64
    stop_position: i64
    session_id: i32
    stream_id: i32
    initial_term_id: i32
    term_length: i32
    mtu: i32
    terms: tuple[TermEntry, ...] = ()
    checksum: Ascii = ""
    first_frame: Blob = b""


class ServiceFailed(Message, template_id=40, schema=LINK_SCHEMA):
    """From a service: a callback raised. The leader reports it to the session's client, and it goes on."""

    cluster_session_id: i64
    detail: Ascii = ""


class ServiceSnapshot(Message, template_id=41, schema=LINK_SCHEMA):
    """From a service to its consensus module: its snapshot is safe, or there is none, with a ``why``."""

    service_id: i32
    log_position: i64
    recording_id: i64
    length: i64  # of the recording, bytes
    checksum: i64  # CRC-32 of its frames
    digest: i64  # CRC-32 of what the service wrote into it; -1: not to be compared with other members'
    why: Blob = b""


class PartDigest(Composite):
    """Of the snapshot of one service, or of the module's state (``service_id`` -1)."""

    service_id: i32
    digest: i64


class SnapshotDigest(Message, template_id=36, schema=LINK_SCHEMA):
    """From a follower: digests of its snapshot at ``log_position``, which all members share."""

    log_position: i64
    parts: tuple[PartDigest, ...] = ()


class TakenNumber(Composite):
    """The last answer of a service that a client has: all before it, too."""

    number: i64
    service_id: i32


class AnswersTaken(Message, template_id=45, schema=LINK_SCHEMA):
    """From the client of a supervised session: which answers it has; the leader need not keep them any more.

    The first on a connection asks for the answers that follow. A client that got SessionRetained has sent
    nothing since when it names a ``correlation_id`` (-1 else), and is answered SessionResumed.
    """

    correlation_id: i64
    cluster_session_id: i64
    leadership_term_id: i64
    numbers: tuple[TakenNumber, ...] = ()


class SessionRetained(Message, template_id=46, schema=LINK_SCHEMA):
    """To the client of a supervised session: too many of its answers are kept, its messages are dropped.

    From the next message on; how many are in the log says the SessionResumed that answers AnswersTaken.
    """

    cluster_session_id: i64
    leadership_term_id: i64


class TakenAnswer(Composite):
    """Of one session and service."""

    cluster_session_id: i64
    number: i64
    service_id: i32


class TakenAnswers(Message, template_id=47, schema=LINK_SCHEMA):
    """From a leader to its followers: which answers clients have, so that nobody keeps them. A hint."""

    leadership_term_id: i64
    answers: tuple[TakenAnswer, ...] = ()
