"""Every enumeration of the protocol and of the counters. On the wire each is an i32; null is -2**31.

Sources: aeron-cluster-codecs.xml, aeron-archive-codecs.xml and mark-file schemas; for the counters'
codes ElectionState, ConsensusModule, ClusterControl, NodeControl, ClusterBackup and Cluster.Role.
"""

from enum import IntEnum, IntFlag


class Offer(IntEnum):
    """Why an offer was not taken, with Aeron's values (Publication.java); a position is above 0."""

    NOT_CONNECTED = -1
    BACK_PRESSURED = -2
    ADMIN_ACTION = -3
    CLOSED = -4
    MAX_POSITION_EXCEEDED = -5


class EventCode(IntEnum):
    """What a SessionEvent says about a client's session."""

    OK = 0
    ERROR = 1
    REDIRECT = 2
    AUTHENTICATION_REJECTED = 3
    CLOSED = 4


class CloseReason(IntEnum):
    """Who ended a session."""

    CLIENT_ACTION = 0
    SERVICE_ACTION = 1
    TIMEOUT = 2


class ClusterAction(IntEnum):
    """Action in the log; the numbers differ from the control toggle's (`ClusterControlToggle`)."""

    SUSPEND = 0
    RESUME = 1
    SNAPSHOT = 2


class ClusterActionFlags(IntFlag):
    """Who carries out a ClusterActionRequest."""

    DEFAULT = 0  # every member
    STANDBY_SNAPSHOT = 1  # standby nodes only


def takes_snapshot(flags: int | None, *, is_standby: bool) -> bool:
    """Whether a SNAPSHOT with these flags is for a member, or for a standby (S-113)."""
    return not flags or (is_standby and bool(flags & ClusterActionFlags.STANDBY_SNAPSHOT))


class SnapshotMark(IntEnum):
    """Place of a SnapshotMarker; SECTION is defined and never written."""

    BEGIN = 0
    SECTION = 1
    END = 2


class ChangeType(IntEnum):
    """Of the retired MembershipChangeEvent."""

    JOIN = 0
    QUIT = 1


class ClusterTimeUnit(IntEnum):
    """Unit of the cluster clock; absent on the wire means MILLIS."""

    MILLIS = 0
    MICROS = 1
    NANOS = 2

    @property
    def per_second(self) -> int:
        """Units in a second."""
        return (1_000, 1_000_000, 1_000_000_000)[self]

    @property
    def nanoseconds(self) -> int:
        """Of one unit."""
        return 1_000_000_000 // self.per_second


class AdminRequestType(IntEnum):
    """What a client with the right ``admin`` may ask of the leader."""

    SNAPSHOT = 0


class AdminResponseCode(IntEnum):
    """The outcome of an admin request."""

    OK = 0
    ERROR = 1
    UNAUTHORISED_ACCESS = 2


class AppendPositionFlags(IntFlag):
    """Of AppendPosition: a follower that catches up by replay says so."""

    NONE = 0
    CATCHUP = 1


class ClusterComponentType(IntEnum):
    """Which component a cluster mark file belongs to."""

    UNKNOWN = 0
    CONSENSUS_MODULE = 1
    CONTAINER = 2
    BACKUP = 3
    STANDBY = 4


class RecordingState(IntEnum):
    """State of a catalog entry; only VALID entries are visible to clients."""

    INVALID = 0
    VALID = 1
    DELETED = 2


class RecordingLogEntryType(IntEnum):
    """Kind of an entry in recording.log; bit 31 beside it marks an invalid one."""

    TERM = 0
    SNAPSHOT = 1
    STANDBY_SNAPSHOT = 2


class CounterState(IntEnum):
    """State of a counter's metadata record."""

    RECLAIMED = -1
    UNUSED = 0
    ALLOCATED = 1


class ConsensusModuleState(IntEnum):
    """Value of counter 200."""

    INIT = 0
    ACTIVE = 1
    SUSPENDED = 2
    SNAPSHOT = 3
    QUITTING = 4
    TERMINATING = 5
    CLOSED = 6


ModuleState = ConsensusModuleState


class Role(IntEnum):
    """Value of counter 201, and of JoinLog.role."""

    FOLLOWER = 0
    CANDIDATE = 1
    LEADER = 2


class RefusedCertificate(IntEnum):
    """Value of counter 1131: whose certificate keeps two members without a link."""

    NONE = 0
    THEIRS = 1  # the peer's, by this member
    OURS = 2  # this member's, by the peer


class ClusterControlToggle(IntEnum):
    """Value of counter 202: what an operator asks the leader to do."""

    INACTIVE = 0
    NEUTRAL = 1
    SUSPEND = 2
    RESUME = 3
    SNAPSHOT = 4
    SHUTDOWN = 5
    ABORT = 6
    STANDBY_SNAPSHOT = 7


class NodeControlToggle(IntEnum):
    """Value of counter 233: what an operator asks this member to do."""

    INACTIVE = 0
    NEUTRAL = 1
    REPLICATE_STANDBY_SNAPSHOT = 2
    VALIDATE_RECORDING_LOG = 3


class ElectionState(IntEnum):
    """Value of counter 207; CLOSED means that no election runs."""

    INIT = 0
    CANVASS = 1
    NOMINATE = 2
    CANDIDATE_BALLOT = 3
    FOLLOWER_BALLOT = 4
    LEADER_LOG_REPLICATION = 5
    LEADER_REPLAY = 6
    LEADER_INIT = 7
    LEADER_READY = 8
    FOLLOWER_LOG_REPLICATION = 9
    FOLLOWER_REPLAY = 10
    FOLLOWER_CATCHUP_INIT = 11
    FOLLOWER_CATCHUP_AWAIT = 12
    FOLLOWER_CATCHUP = 13
    FOLLOWER_LOG_INIT = 14
    FOLLOWER_LOG_AWAIT = 15
    FOLLOWER_READY = 16
    CLOSED = 17


class ClusterBackupState(IntEnum):
    """Value of counter 208."""

    BACKUP_QUERY = 0
    SNAPSHOT_RETRIEVE = 1
    LIVE_LOG_RECORD = 2
    LIVE_LOG_REPLAY = 3
    UPDATE_RECORDING_LOG = 4
    BACKING_UP = 5
    RESET_BACKUP = 6
    CLOSED = 7
