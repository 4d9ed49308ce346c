"""The cluster's counters of one member, as Aeron's tools look for them."""

from collections.abc import Mapping, Sequence

from cluster.consensus.cluster_session import ClusterSession
from cluster.consensus.consumers import ConsumerTable
from cluster.consensus.context import NULL_VALUE, ConsensusModuleContext
from cluster.counters import COUNTERS_MAX, Counter, CountersFile
from cluster.log.kernel import as_python
from cluster.log.session_table import DROPPED_EGRESS, DROPPED_SESSION, DROPPED_TERM, MESSAGES, SessionTable
from cluster.member.measuring import measure
from cluster.protocol.counter_types import (
    CounterTypeId,
    bucket_parts,
    client_session_key,
    client_session_label,
    consumer_label,
    counter_key,
    part_label,
)
from cluster.protocol.enums import (
    ClusterControlToggle,
    ConsensusModuleState,
    ElectionState,
    NodeControlToggle,
    RefusedCertificate,
    Role,
)
from cluster.protocol.versions import PACKAGE_VERSION

# The file must have room for all the others.
SESSION_COUNTERS_MAX = COUNTERS_MAX * 3 // 4
CONSUMER_COUNTERS_MAX = 64


_measure = as_python(measure)
DROP_REASONS = {"term": DROPPED_TERM, "session": DROPPED_SESSION, "egress": DROPPED_EGRESS}


class Histogram:
    """Counters that kernels add to: a bucket each of ``BUCKETS_NS``, one for more, and the sum of all ns."""

    def __init__(self, file: CountersFile, counters: Sequence[Counter]) -> None:
        """The counters lie one after the other."""
        first = counters[0]
        assert [c.counter_id - first.counter_id for c in counters] == list(range(len(counters)))
        self.index = first.index  # of the first in ``CountersFile.words``
        self._file = file

    def count(self, duration_ns: int) -> None:
        _measure(self._file.words, self.index, duration_ns)


class MemberCounters:
    """One attribute a counter; each value is one aligned store that other processes see."""

    def __init__(self, file: CountersFile, context: ConsensusModuleContext) -> None:
        cluster_id = context.cluster_id
        types = CounterTypeId

        def allocate(type_id: CounterTypeId, value: int = 0):  # type: ignore[no-untyped-def]
            return file.allocate_cluster_counter(type_id, cluster_id, value)

        self.file = file
        self.module_state = allocate(types.CONSENSUS_MODULE_STATE, ConsensusModuleState.INIT)
        self.node_role = allocate(types.NODE_ROLE, Role.FOLLOWER)
        self.control_toggle = allocate(types.CONTROL_TOGGLE, ClusterControlToggle.INACTIVE)
        self.commit_position = allocate(types.COMMIT_POSITION)
        self.snapshot_count = allocate(types.SNAPSHOT_COUNT)
        self.election_state = allocate(types.ELECTION_STATE, ElectionState.INIT)
        self.errors = file.allocate_cluster_counter(
            types.CONSENSUS_MODULE_ERRORS, cluster_id, version=PACKAGE_VERSION
        )
        self.timed_out_clients = allocate(types.CLIENT_TIMEOUTS)
        self.max_cycle_time_ns = allocate(types.MAX_CYCLE_TIME)
        self.cycle_time_exceeded = file.allocate_cluster_counter(
            types.CYCLE_TIME_EXCEEDED, cluster_id, threshold_ns=context.cycle_threshold_ns
        )
        self.max_snapshot_duration_ns = allocate(types.MAX_SNAPSHOT_DURATION)
        self.snapshot_duration_exceeded = file.allocate_cluster_counter(
            types.SNAPSHOT_DURATION_EXCEEDED, cluster_id, threshold_ns=context.total_snapshot_threshold_ns
        )
        self.node_control_toggle = allocate(types.NODE_CONTROL_TOGGLE, NodeControlToggle.INACTIVE)
        self.election_count = allocate(types.ELECTION_COUNT)
        self.leadership_term_id = allocate(types.LEADERSHIP_TERM_ID, -1)
        self.leader_member_id = allocate(types.LEADER_MEMBER_ID, NULL_VALUE)
        self.awaited_members = allocate(types.AWAITED_MEMBERS)
        self.clock_offset_ns = allocate(types.CLOCK_OFFSET)
        self.time_offset_ns = allocate(types.CLUSTER_TIME_OFFSET)  # as this member led last
        self.log_room = allocate(types.LOG_ROOM, NULL_VALUE)
        self.standby_snapshots_received = (
            allocate(types.STANDBY_SNAPSHOTS_RECEIVED) if context.accept_standby_snapshots else None
        )
        self.certificate_end_ms = allocate(types.CERTIFICATE_END)  # 0: it speaks no TLS
        self.ingress_messages = allocate(types.INGRESS_MESSAGES)
        self.client_connections = allocate(types.CLIENT_CONNECTIONS)
        self.log_readers = allocate(types.LOG_READERS)
        self.cut_off_peers = allocate(types.CUT_OFF_PEERS)
        self.refusals = allocate(types.REFUSALS)

        def parts(type_id: CounterTypeId, names: Sequence[str]) -> list[Counter]:
            key = counter_key(cluster_id)
            return [file.allocate(type_id, key, part_label(type_id, cluster_id, name)) for name in names]

        self.sync_time = Histogram(file, parts(types.SYNC_TIME, bucket_parts()))
        self.commit_time = Histogram(file, parts(types.COMMIT_TIME, bucket_parts()))
        self.dropped_messages = parts(types.DROPPED_MESSAGES, [f"reason={why}" for why in DROP_REASONS])
        peers = [member_id for member_id in context.member_ids if member_id != context.member_id]
        names = [f"peer={peer}" for peer in peers]
        self.links_up = dict(zip(peers, parts(types.LINK_IS_UP, names), strict=True))
        self.link_queued_bytes = dict(zip(peers, parts(types.LINK_QUEUED_BYTES, names), strict=True))
        self.links_refused = dict(zip(peers, parts(types.LINK_REFUSED, names), strict=True))

    def show_table(self, table: SessionTable) -> None:
        """What kernels have counted of clients' messages, since this member began to lead."""
        self.ingress_messages.set(int(table.words[MESSAGES]))
        for counter, word in zip(self.dropped_messages, DROP_REASONS.values(), strict=True):
            counter.set(int(table.words[word]))

    def show_link(
        self, peer: int, *, is_up: bool, queued_bytes: int, refused: int = RefusedCertificate.NONE
    ) -> None:
        """How the link to another member is."""
        self.links_up[peer].set(is_up)
        self.link_queued_bytes[peer].set(queued_bytes)
        self.links_refused[peer].set(refused)


class SessionCounters:
    """Counter 241 of each open client session, made and freed as sessions come and go (S-171)."""

    __slots__ = ("_cluster_id", "_counters", "_file")

    def __init__(self, file: CountersFile, cluster_id: int) -> None:
        self._file = file
        self._cluster_id = cluster_id
        self._counters: dict[int, Counter] = {}

    def update(self, sessions: Mapping[int, ClusterSession]) -> None:
        """Make and free counters as sessions come and go; those beyond SESSION_COUNTERS_MAX have none."""
        if self._counters.keys() == sessions.keys():
            return
        for session_id in [session_id for session_id in self._counters if session_id not in sessions]:
            self._file.free(self._counters.pop(session_id))
        for session_id, session in sessions.items():
            if session_id not in self._counters and len(self._counters) < SESSION_COUNTERS_MAX:
                self._counters[session_id] = self._file.allocate(
                    CounterTypeId.CLIENT_SESSION,
                    client_session_key(self._cluster_id, session_id),
                    client_session_label("", session.response_channel, session_id),
                    session_id,
                )


class ConsumerCounters:
    """Counter 1115 of each consumer group: its position, as the member has processed it."""

    __slots__ = ("_changes", "_cluster_id", "_counters", "_file")

    def __init__(self, file: CountersFile, cluster_id: int) -> None:
        self._file = file
        self._cluster_id = cluster_id
        self._counters: dict[str, Counter] = {}
        self._changes = 0

    def update(self, consumers: ConsumerTable) -> None:
        """Make and free counters as groups come and go; those beyond CONSUMER_COUNTERS_MAX have none."""
        if consumers.changes == self._changes:
            return
        self._changes = consumers.changes
        positions = consumers.positions()
        for group in self._counters.keys() - positions.keys():
            self._file.free(self._counters.pop(group))
        for group, position in positions.items():
            if (counter := self._counters.get(group)) is not None:
                counter.set(position)
            elif len(self._counters) < CONSUMER_COUNTERS_MAX:
                key, label = counter_key(self._cluster_id), consumer_label(self._cluster_id, group)
                counter_type = CounterTypeId.CONSUMER_POSITION
                self._counters[group] = self._file.allocate(counter_type, key, label, position)


class DutyCycleStallTracker:
    """Gaps between cycles: the largest, and how many were above a threshold (counters 216 and 217)."""

    __slots__ = ("_counters", "_max_ns", "_threshold_ns", "last_ns")

    def __init__(self, counters: MemberCounters, threshold_ns: int) -> None:
        self._counters = counters
        self._threshold_ns = threshold_ns
        self.last_ns: int | None = None  # when a cycle began last
        self._max_ns = 0

    def update(self, now_ns: int) -> None:
        """Begin to measure."""
        self.last_ns = now_ns

    def measure_and_update(self, now_ns: int) -> int:
        """A cycle begins; returns the gap before it. One of exactly the threshold is not too long (C-4)."""
        gap_ns = 0 if self.last_ns is None else now_ns - self.last_ns
        self.measure(gap_ns)
        self.last_ns = now_ns
        return gap_ns

    def measure(self, gap_ns: int) -> None:
        """There was this gap."""
        if gap_ns > self._max_ns:
            self._max_ns = gap_ns
            self._counters.max_cycle_time_ns.set(gap_ns)
        if gap_ns > self._threshold_ns:
            self._counters.cycle_time_exceeded.get_and_add(1)
