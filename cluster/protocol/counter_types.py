"""What counters there are: type ids, labels and keys, as Aeron's own tools look for them.

A tool finds a counter by its type id and by its key, not by its label; people read the label.
Sources: AeronCounters, ClusterCounters, ConsensusModule, ArchiveCounters of Aeron.
"""

from collections.abc import Iterable
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from cluster.errors import LogDamaged
from cluster.protocol.cnc import KEY_LENGTH_MAX, LABEL_LENGTH_MAX
from cluster.protocol.sbe import Buffer, Composite, i32, i64


class CounterTypeId(IntEnum):
    """Type ids of the driver (0-13), the archive (100-113), the cluster (200-241), and ours."""

    SYSTEM = 0
    PUBLISHER_LIMIT = 1
    SENDER_POSITION = 2
    RECEIVER_HIGH_WATER_MARK = 3
    SUBSCRIBER_POSITION = 4
    RECEIVER_POSITION = 5
    SENDER_LIMIT = 9
    CLIENT_HEARTBEAT = 11
    PUBLISHER_POSITION = 12
    SENDER_BACK_PRESSURE = 13

    RECORDING_POSITION = 100
    ARCHIVE_ERRORS = 101
    ARCHIVE_CONTROL_SESSIONS = 102
    ARCHIVE_MAX_CYCLE_TIME = 103
    ARCHIVE_CYCLE_TIME_EXCEEDED = 104
    ARCHIVE_RECORDER_MAX_WRITE_TIME = 105
    ARCHIVE_RECORDER_WRITE_BYTES = 106
    ARCHIVE_RECORDER_WRITE_TIME = 107
    ARCHIVE_REPLAYER_MAX_READ_TIME = 108
    ARCHIVE_REPLAYER_READ_BYTES = 109
    ARCHIVE_REPLAYER_READ_TIME = 110
    ARCHIVE_RECORDING_SESSIONS = 111
    ARCHIVE_REPLAY_SESSIONS = 112
    ARCHIVE_CONTROL_SESSION = 113

    CONSENSUS_MODULE_STATE = 200
    NODE_ROLE = 201
    CONTROL_TOGGLE = 202
    COMMIT_POSITION = 203
    RECOVERY_STATE = 204
    SNAPSHOT_COUNT = 205
    ELECTION_STATE = 207
    BACKUP_STATE = 208
    BACKUP_LIVE_LOG_POSITION = 209
    BACKUP_NEXT_QUERY_DEADLINE = 210
    BACKUP_ERRORS = 211
    CONSENSUS_MODULE_ERRORS = 212
    CLIENT_TIMEOUTS = 213
    INVALID_REQUESTS = 214  # reserved, never allocated
    CONTAINER_ERRORS = 215
    MAX_CYCLE_TIME = 216
    CYCLE_TIME_EXCEEDED = 217
    CONTAINER_MAX_CYCLE_TIME = 218
    CONTAINER_CYCLE_TIME_EXCEEDED = 219
    STANDBY_SNAPSHOTS_RECEIVED = 232
    NODE_CONTROL_TOGGLE = 233
    MAX_SNAPSHOT_DURATION = 234
    SNAPSHOT_DURATION_EXCEEDED = 235
    SERVICE_MAX_SNAPSHOT_DURATION = 236
    SERVICE_SNAPSHOT_DURATION_EXCEEDED = 237
    ELECTION_COUNT = 238
    LEADERSHIP_TERM_ID = 239
    BACKUP_SNAPSHOTS_RETRIEVED = 240
    CLIENT_SESSION = 241

    AWAITED_MEMBERS = 1111  # ours, beyond the ids that Aeron keeps for itself
    CERTIFICATE_END = 1112
    SERVICE_POSITION = 1113
    BACKUP_MEMBERS_COMMIT_POSITION = 1114
    CONSUMER_POSITION = 1115
    LEADER_MEMBER_ID = 1116
    CLOCK_OFFSET = 1117
    SYNC_TIME = 1118
    COMMIT_TIME = 1119
    INGRESS_MESSAGES = 1120
    DROPPED_MESSAGES = 1121
    CLIENT_CONNECTIONS = 1122
    LOG_READERS = 1123
    REFUSALS = 1124
    CUT_OFF_PEERS = 1125
    LINK_IS_UP = 1126
    LINK_QUEUED_BYTES = 1127
    LOG_ROOM = 1128
    CLUSTER_TIME_OFFSET = 1129
    SERVICE_STANDSTILL = 1130
    LINK_REFUSED = 1131


class Scope(Enum):
    """Whose counter it is, hence its key: (cluster id), (cluster id, service id) or (archive id)."""

    CLUSTER = 0
    SERVICE = 1
    ARCHIVE = 2


class CounterText(NamedTuple):
    """How a label begins, and what it has besides the scope."""

    text: str
    scope: Scope = Scope.CLUSTER
    has_version: bool = False
    has_threshold: bool = False  # ``text`` is followed by the threshold before the scope


# Upper bounds of the buckets of a histogram; the last bucket has none.
BUCKETS_NS: Final = (
    50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000, 25_000_000, 50_000_000, 100_000_000, 250_000_000, 1_000_000_000,
)  # fmt: skip

_CONSUMER_LABEL: Final = "Cluster consumer-pos: - clusterId="
_T = CounterTypeId
TEXTS: Final = {
    _T.CONSENSUS_MODULE_STATE: CounterText("Consensus Module state"),
    _T.NODE_ROLE: CounterText("Cluster node role"),
    _T.CONTROL_TOGGLE: CounterText("Cluster control toggle"),
    _T.COMMIT_POSITION: CounterText("Cluster commit-pos:"),
    _T.SNAPSHOT_COUNT: CounterText("Cluster snapshot count"),
    _T.ELECTION_STATE: CounterText("Cluster election state"),
    _T.BACKUP_STATE: CounterText("ClusterBackup State"),
    _T.BACKUP_LIVE_LOG_POSITION: CounterText("ClusterBackup live log position"),
    _T.BACKUP_NEXT_QUERY_DEADLINE: CounterText("ClusterBackup next query deadline in ms"),
    _T.BACKUP_ERRORS: CounterText("ClusterBackup Errors", has_version=True),
    _T.CONSENSUS_MODULE_ERRORS: CounterText("Cluster Errors", has_version=True),
    _T.CLIENT_TIMEOUTS: CounterText("Cluster timed out client count"),
    _T.CONTAINER_ERRORS: CounterText("Cluster Container Errors", Scope.SERVICE, has_version=True),
    _T.MAX_CYCLE_TIME: CounterText("Cluster max cycle time in ns"),
    _T.CYCLE_TIME_EXCEEDED: CounterText("Cluster work cycle time exceeded count", has_threshold=True),
    _T.CONTAINER_MAX_CYCLE_TIME: CounterText("Cluster container max cycle time in ns", Scope.SERVICE),
    _T.CONTAINER_CYCLE_TIME_EXCEEDED: CounterText(
        "Cluster container work cycle time exceeded count", Scope.SERVICE, has_threshold=True
    ),
    _T.STANDBY_SNAPSHOTS_RECEIVED: CounterText("Cluster standby snapshots received"),
    _T.NODE_CONTROL_TOGGLE: CounterText("Node control toggle"),
    _T.MAX_SNAPSHOT_DURATION: CounterText("Total max snapshot duration in ns"),
    _T.SNAPSHOT_DURATION_EXCEEDED: CounterText(
        "Total max snapshot duration exceeded count", has_threshold=True
    ),
    _T.SERVICE_MAX_SNAPSHOT_DURATION: CounterText(
        "Clustered service max snapshot duration in ns", Scope.SERVICE
    ),
    _T.SERVICE_SNAPSHOT_DURATION_EXCEEDED: CounterText(
        "Clustered service max snapshot duration exceeded count", Scope.SERVICE, has_threshold=True
    ),
    _T.ELECTION_COUNT: CounterText("Cluster election count"),
    _T.LEADERSHIP_TERM_ID: CounterText("Cluster leadership term id"),
    _T.AWAITED_MEMBERS: CounterText("Cluster members waited for, a bit each"),
    _T.CERTIFICATE_END: CounterText("End of the TLS certificate, ms since the epoch"),
    _T.SERVICE_POSITION: CounterText("Cluster service-pos:", Scope.SERVICE),
    _T.SERVICE_STANDSTILL: CounterText("Cluster service ns at a standstill", Scope.SERVICE),
    _T.LEADER_MEMBER_ID: CounterText("Cluster leader member id"),
    _T.INGRESS_MESSAGES: CounterText("Cluster messages of clients taken"),
    _T.CLIENT_CONNECTIONS: CounterText("Cluster connections of clients"),
    _T.LOG_READERS: CounterText("Cluster readers of the log"),
    _T.REFUSALS: CounterText("Cluster refusals for want of proof or right"),
    _T.CUT_OFF_PEERS: CounterText("Cluster connections cut off for what came over them"),
    _T.CLOCK_OFFSET: CounterText("Cluster clock ahead of a majority's in ns"),
    _T.LOG_ROOM: CounterText("Cluster bytes of log that may still come"),
    _T.CLUSTER_TIME_OFFSET: CounterText("Cluster time ahead of the leader's clock in ns"),
    _T.BACKUP_MEMBERS_COMMIT_POSITION: CounterText("ClusterBackup members' commit-pos:"),
    _T.BACKUP_SNAPSHOTS_RETRIEVED: CounterText("ClusterBackup snapshots retrieved"),
    _T.ARCHIVE_ERRORS: CounterText("Archive Errors", Scope.ARCHIVE, has_version=True),
    _T.ARCHIVE_CONTROL_SESSIONS: CounterText("Archive Control Sessions", Scope.ARCHIVE),
    _T.ARCHIVE_RECORDING_SESSIONS: CounterText("Archive Recording Sessions", Scope.ARCHIVE),
    _T.ARCHIVE_REPLAY_SESSIONS: CounterText("Archive Replay Sessions", Scope.ARCHIVE),
    _T.ARCHIVE_RECORDER_MAX_WRITE_TIME: CounterText("archive-recorder max write time in ns", Scope.ARCHIVE),
    _T.ARCHIVE_RECORDER_WRITE_BYTES: CounterText("archive-recorder total write bytes", Scope.ARCHIVE),
    _T.ARCHIVE_RECORDER_WRITE_TIME: CounterText("archive-recorder total write time in ns", Scope.ARCHIVE),
    _T.ARCHIVE_REPLAYER_MAX_READ_TIME: CounterText("archive-replayer max read time in ns", Scope.ARCHIVE),
    _T.ARCHIVE_REPLAYER_READ_BYTES: CounterText("archive-replayer total read bytes", Scope.ARCHIVE),
    _T.ARCHIVE_REPLAYER_READ_TIME: CounterText("archive-replayer total read time in ns", Scope.ARCHIVE),
}


def threshold_text(duration_ns: int) -> str:
    """A threshold in a label: in the largest of s, ms, us, ns that it is a multiple of, as 100ms."""
    for unit, nanoseconds in (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)):
        if duration_ns and duration_ns % nanoseconds == 0:
            return f"{duration_ns // nanoseconds}{unit}"
    return f"{duration_ns}ns"


def counter_label(
    type_id: CounterTypeId,
    scope_id: int,
    *,
    service_id: int | None = None,
    version: str = "",
    commit: str = "",
    threshold_ns: int | None = None,
) -> str:
    """Label of a counter of `TEXTS`; ``scope_id`` is the cluster id, or the archive id of an archive's."""
    known = TEXTS[type_id]
    assert (known.scope is Scope.SERVICE) == (service_id is not None)
    assert known.has_threshold == (threshold_ns is not None)
    label = known.text
    if threshold_ns is not None:
        label += f": threshold={threshold_text(threshold_ns)}"
    label += f" - {'archiveId' if known.scope is Scope.ARCHIVE else 'clusterId'}={scope_id}"
    if service_id is not None:
        label += f" serviceId={service_id}"
    if known.has_version:
        label += f" version={version} commit={commit}"
    return label


def client_session_label(client_info: str, source_identity: str, session_id: int) -> str:
    """Label of counter 241; ``session_id`` is the transport's."""
    return f"cluster-session: {client_info} sourceIdentity={source_identity} sessionId={session_id}"


def consumer_label(cluster_id: int, group: str) -> str:
    """Label of counter 1115; what is not ASCII in the group's name is escaped as Python does."""
    name = group.encode("ascii", "backslashreplace").decode()
    return f"{_CONSUMER_LABEL}{cluster_id} group={name}"


PARTS: Final = {
    CounterTypeId.SYNC_TIME: "Cluster syncs of the log",
    CounterTypeId.COMMIT_TIME: "Cluster times from write to commit",
    CounterTypeId.DROPPED_MESSAGES: "Cluster messages of clients dropped",
    CounterTypeId.LINK_IS_UP: "Cluster link is up",
    CounterTypeId.LINK_QUEUED_BYTES: "Cluster bytes queued on a link",
    CounterTypeId.LINK_REFUSED: "Cluster certificate refused on a link",
}


def part_label(type_id: CounterTypeId, cluster_id: int, part: str) -> str:
    """Label of one of several counters of a type of ``PARTS``; ``part_of`` takes the part out of it."""
    return f"{PARTS[type_id]} - clusterId={cluster_id} {part}"


def part_of(label: str) -> tuple[str, str]:
    """Name and value of the part in the label of a type of ``PARTS``, both empty without one."""
    name, _, value = label.rpartition(" ")[2].partition("=")
    return name, value


def bucket_parts() -> list[str]:
    """The parts of a histogram's counters: how many took at most so long, more, and ns in all."""
    return [*(f"le={bound}" for bound in BUCKETS_NS), "le=inf", "sum=ns"]


def consumer_group_of(label: str) -> str:
    """The group's name as the label of counter 1115 has it."""
    return label.partition(" group=")[2]


def recording_position_label(
    recording_id: int, session_id: int, stream_id: int, stripped_channel: str, archive_id: int
) -> str:
    """Label of counter 100; the channel is cut so that all of the rest fits."""
    head, tail = f"rec-pos: {recording_id} {session_id} {stream_id} ", f" - archiveId={archive_id}"
    return f"{head}{stripped_channel[: LABEL_LENGTH_MAX - len(head) - len(tail)]}{tail}"


# -- keys -----------------------------------------------------------------------------------------


class ClusterKey(Composite):
    """Of counters with cluster scope."""

    cluster_id: i32


class ServiceKey(Composite):
    """Of counters with service scope."""

    cluster_id: i32
    service_id: i32


class ArchiveKey(Composite):
    """Of archive counters 101 to 112."""

    archive_id: i64


class ClientSessionKey(Composite):
    """Of counter 241: a client's session."""

    cluster_id: i32
    cluster_session_id: i64


class RecordingPositionHead(Composite):
    """Of counter 100; the source identity and, unaligned after it, the archive id follow."""

    recording_id: i64
    session_id: i32
    source_identity_length: i32


SOURCE_IDENTITY_LENGTH_MAX: Final = KEY_LENGTH_MAX - RecordingPositionHead.BLOCK_LENGTH - 8


def counter_key(cluster_id: int, service_id: int | None = None) -> bytes:
    """Key of a counter with cluster scope, or (with a service id) service scope."""
    if service_id is None:
        return ClusterKey(cluster_id).encode_body()
    return ServiceKey(cluster_id, service_id).encode_body()


def client_session_key(cluster_id: int, cluster_session_id: int) -> bytes:
    """Key of counter 241."""
    return ClientSessionKey(cluster_id, cluster_session_id).encode_body()


def recording_position_key(
    recording_id: int, session_id: int, source_identity: str, archive_id: int
) -> bytes:
    """Key of counter 100; a longer source identity is cut to 88 bytes."""
    identity = source_identity.encode("ascii", "replace")[:SOURCE_IDENTITY_LENGTH_MAX]
    head = RecordingPositionHead(recording_id, session_id, len(identity))
    return head.encode_body() + identity + ArchiveKey(archive_id).encode_body()


class RecordingPositionKey(NamedTuple):
    """What the key of counter 100 holds."""

    recording_id: int
    session_id: int
    source_identity: str
    archive_id: int


def decode_recording_position_key(key: Buffer) -> RecordingPositionKey:
    """Key of counter 100."""
    head = RecordingPositionHead.decode_record(key)
    length = head.source_identity_length
    if not 0 <= length <= SOURCE_IDENTITY_LENGTH_MAX:
        raise LogDamaged(None, 12, f"source identity of {length} bytes, at most {SOURCE_IDENTITY_LENGTH_MAX}")
    begin = RecordingPositionHead.BLOCK_LENGTH
    identity = bytes(key[begin : begin + length]).decode("latin-1")
    archive_id = ArchiveKey.decode_record(key, begin + length).archive_id
    return RecordingPositionKey(head.recording_id, head.session_id, identity, archive_id)


def bits_of(member_ids: Iterable[int]) -> int:
    """The value of AWAITED_MEMBERS for these members; one with an id above 62 has no bit."""
    return sum(1 << member_id for member_id in set(member_ids) if member_id < 63)


def members_of(bits: int) -> list[int]:
    """The members of a value of AWAITED_MEMBERS."""
    return [member_id for member_id in range(63) if bits >> member_id & 1]
