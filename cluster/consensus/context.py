"""What is configured of a consensus module (Aeron: ConsensusModule.Context, aeron.cluster.*).

All durations are nanoseconds of a monotonic clock; only the log speaks cluster time.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from cluster.protocol import NULL_POSITION as NULL_POSITION
from cluster.protocol import NULL_VALUE as NULL_VALUE
from cluster.protocol.enums import ClusterTimeUnit
from cluster.protocol.versions import DEFAULT_APP_VERSION

MS = 1_000_000
SECOND = 1_000_000_000
DAY = 86_400 * SECOND


@dataclass(slots=True)
class ConsensusModuleContext:
    """Aeron's properties under Aeron's names, with Aeron's defaults unless the line says why not.

    Its fields are keys of a member's configuration under the same names, or follow from them. Those that a
    reload may change are read where they are used; no others change. The class attributes are no keys: they
    are the same for every member.
    """

    member_id: int = 0
    member_ids: tuple[int, ...] = (0,)
    ingress_endpoints: str = ""  # ``id=endpoint`` of all members, as clients get it
    tcp_ingress_endpoints: str = ""  # for clients that came by ``tcp:``; empty where not all are known
    member_endpoints: str = ""  # the members string, as backups get it
    cluster_id: int = 0
    appointed_leader_id: int = NULL_VALUE
    may_lead: bool = True  # False: it votes and follows, and never stands
    hears_clocks: bool = True  # of the others; False: they report none, and it stamps by its own as they do
    service_count: int = 1
    is_standby: bool = False  # it takes snapshots that are for standbys, too
    accept_standby_snapshots: bool = False
    response_channel_length_max: int = 1024
    request_length_max: int = 16 * 1024
    connection_sessions_max: int = 8
    supervised_bytes_max: int = 4 * 1024 * 1024
    lanes_max: int = 16 * 1024
    lane_retention_ns: int = 7 * DAY
    consumers_max: int = 1024
    consumer_retention_ns: int = 7 * DAY
    max_sessions: int = 1024  # Aeron: 10; a Spark job opens one for each of its tasks
    app_version: int = DEFAULT_APP_VERSION
    time_unit: ClusterTimeUnit = ClusterTimeUnit.MILLIS

    session_timeout_ns: int = 10 * SECOND
    # A leader's clock is kept so near to those of a majority (Aeron: no bound).
    clock_skew_max_ns: int = 1 * SECOND
    leader_heartbeat_timeout_ns: int = 10 * SECOND
    leader_heartbeat_interval_ns: int = 200 * MS
    startup_canvass_timeout_ns: int = 60 * SECOND
    election_timeout_ns: int = 1 * SECOND
    election_status_interval_ns: int = 100 * MS
    termination_timeout_ns: int = 10 * SECOND
    cycle_threshold_ns: int = 100 * MS

    # Segments older than the n-th last snapshot are deleted; 0 keeps all, as Aeron does.
    log_retained_snapshots: int = 0
    consumer_hold_bytes: int = 16 * 1024 * 1024 * 1024  # of the log that consumer groups keep at most
    # What the log may take of the disk, and what of the disk stays free; 0 bounds nothing, as in Aeron. auto:
    # ``DiskSpace.reserve``, and what nobody asked for is not done for it (``room.py``).
    log_bytes_max: int = 0
    disk_free_min: int | Literal["auto"] = "auto"
    # When the leader takes a snapshot by itself; 0 is never, as in Aeron: a service may have none to take.
    snapshot_every_bytes: int = 0
    snapshot_every_ns: int = 0
    log_term_length: int = 64 * 1024 * 1024  # of a new log; an existing one keeps its own
    log_mtu: int = 1408

    slow_tick_interval_ns: ClassVar[int] = 10 * MS
    mark_file_update_interval_ns: ClassVar[int] = 1 * SECOND
    total_snapshot_threshold_ns: ClassVar[int] = 1 * SECOND
    log_channel: ClassVar[str] = "aeron:udp?term-length=64m"
    timer_limit_per_poll: ClassVar[int] = 20
    service_message_limit_per_poll: ClassVar[int] = 20
    replay_limit_per_poll: ClassVar[int] = 4 * 1024 * 1024  # bytes of log processed in one turn of a catch-up

    # Bytes that a leader appends beyond the commit position before it takes no more input: what a majority
    # cannot keep up with is not taken on (Aeron: the window of the log publication, half a term).
    uncommitted_bytes_max: ClassVar[int] = 32 * 1024 * 1024

    def __post_init__(self) -> None:
        assert self.member_id in self.member_ids
        assert self.member_ids == tuple(sorted(set(self.member_ids)))
        assert self.startup_canvass_timeout_ns // self.leader_heartbeat_timeout_ns >= 2
        assert self.leader_heartbeat_interval_ns < self.leader_heartbeat_timeout_ns

    @property
    def quorum_threshold(self) -> int:
        """How many members are a majority (ClusterMember.quorumThreshold)."""
        return len(self.member_ids) // 2 + 1

    @property
    def link_timeout_ns(self) -> int:
        """How long a link may be silent: a leader that was replaced hears over it who leads now."""
        return 2 * self.leader_heartbeat_timeout_ns

    @property
    def lease_ns(self) -> int:
        """How long a silent leader can be sure of its followers: their timeout less an interval."""
        return max(self.election_timeout_ns - self.leader_heartbeat_interval_ns, self.cycle_threshold_ns)

    def cluster_duration(self, duration_ns: int) -> int:
        """The duration in units of cluster time, rounded up."""
        return -(-duration_ns * self.time_unit.per_second // SECOND)
