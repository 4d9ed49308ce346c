"""A member's metrics for Prometheus, from what ``status_document.look_at`` finds of it.

Series that alerts and dashboards go by are few and keep their names (docs/monitoring.md); every counter as it
is in the counters file comes on demand.
"""

import platform
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder, generate_latest

from cluster.cli.verdict import Member, why_not_ready
from cluster.protocol.counter_types import BUCKETS_NS, PARTS, part_of
from cluster.protocol.counter_types import CounterTypeId as Id

NS, MS = 1e-9, 1e-3

# Gauges of a member's document: series, key, how many of its unit are one of the key's, and what it is.
OF_MEMBER: dict[str, tuple[str, float, str]] = {
    "cluster_leadership_term": ("leadershipTermId", 1, "Leadership term id."),
    "cluster_commit_position_bytes": ("commitPosition", 1, "Commit position, as far as the member knows it."),
    "cluster_append_position_bytes": ("appendPosition", 1, "Position up to which the log is recorded here."),
    "cluster_service_lag_bytes": ("serviceLag", 1, "How far the slowest service lags in the log."),
    "cluster_sessions": ("sessions", 1, "Open client sessions."),
    "cluster_clock_offset_seconds": ("clockOffsetMs", MS, "Clock offset from a majority; positive: ahead."),
    "cluster_disk_free_bytes": ("diskFree", 1, "Free space on the member's file system."),
    "cluster_disk_size_bytes": ("diskTotal", 1, "Size of the member's file system."),
    "cluster_log_bytes": ("logBytes", 1, "Bytes of log kept."),
    "cluster_replay_bytes": ("replayBytes", 1, "Bytes of log that a start would replay."),
}  # fmt: skip

# Of counters: series, type, how many of its unit are one of the counter's, and what it is.
GAUGES: dict[str, tuple[Id, float, str]] = {
    "cluster_election_state": (Id.ELECTION_STATE, 1, "Aeron's ElectionState; 17 is CLOSED."),
    "cluster_module_state": (Id.CONSENSUS_MODULE_STATE, 1, "Aeron's ConsensusModule.State; 1 is ACTIVE."),
    "cluster_log_room_bytes": (Id.LOG_ROOM, 1, "Bytes of log left before the leader refuses input, or -1."),
    "cluster_turn_gap_max_seconds": (Id.MAX_CYCLE_TIME, NS, "Longest gap between two turns."),
    "cluster_snapshot_duration_max_seconds": (Id.MAX_SNAPSHOT_DURATION, NS, "Longest snapshot duration."),
    "cluster_connections": (Id.CLIENT_CONNECTIONS, 1, "Client connections."),
    "cluster_readers": (Id.LOG_READERS, 1, "Readers of the log over the network."),
    "cluster_link_up": (Id.LINK_IS_UP, 1, "Whether the link to another member is up, and not silent."),
    "cluster_link_queued_bytes": (Id.LINK_QUEUED_BYTES, 1, "Bytes queued for another member."),
    "cluster_service_standstill_seconds": (Id.SERVICE_STANDSTILL, NS, "How long a service has hung, else 0."),
    "cluster_service_turn_max_seconds": (Id.CONTAINER_MAX_CYCLE_TIME, NS, "Longest turn of a service."),
}  # fmt: skip
COUNTERS: dict[str, tuple[Id, str]] = {
    "cluster_elections": (Id.ELECTION_COUNT, "Elections that the member has taken part in."),
    "cluster_client_timeouts": (Id.CLIENT_TIMEOUTS, "Sessions closed because the client was silent."),
    "cluster_turn_gaps_exceeded": (Id.CYCLE_TIME_EXCEEDED, "Turns that came later than cycle_threshold."),
    "cluster_snapshots": (Id.SNAPSHOT_COUNT, "Snapshots taken."),
    "cluster_service_turns_exceeded": (Id.CONTAINER_CYCLE_TIME_EXCEEDED, "Service turns over the threshold."),
    "cluster_messages": (Id.INGRESS_MESSAGES, "Client messages taken while leading."),
    "cluster_dropped_messages": (Id.DROPPED_MESSAGES, "Client messages dropped, by reason."),
    "cluster_refusals": (Id.REFUSALS, "Requests refused: unauthenticated or unauthorized."),
    "cluster_cut_off_peers": (Id.CUT_OFF_PEERS, "Connections cut off because of what they sent."),
    "cluster_errors": (Id.CONSENSUS_MODULE_ERRORS, "Errors of the member."),
    "cluster_service_errors": (Id.CONTAINER_ERRORS, "Errors of a service."),
}  # fmt: skip


# Of a backup's counters, as above.
BACKUP_GAUGES: dict[str, tuple[Id, float, str]] = {
    "cluster_backup_state": (Id.BACKUP_STATE, 1, "Aeron's ClusterBackupState; 5 is BACKING_UP."),
    "cluster_backup_position_bytes": (Id.BACKUP_LIVE_LOG_POSITION, 1, "Position that the copy has reached."),
    "cluster_backup_committed_bytes": (Id.BACKUP_MEMBERS_COMMIT_POSITION, 1, "The members' commit position."),
}  # fmt: skip
BACKUP_COUNTERS: dict[str, tuple[Id, str]] = {
    "cluster_backup_snapshots": (Id.BACKUP_SNAPSHOTS_RETRIEVED, "Snapshots fetched."),
    "cluster_backup_errors": (Id.BACKUP_ERRORS, "Errors of the backup."),
}

HISTOGRAMS: dict[str, tuple[Id, str]] = {
    "cluster_sync_seconds": (Id.SYNC_TIME, "Time to sync the log to disk."),
    "cluster_commit_seconds": (Id.COMMIT_TIME, "Time from a leader's write to the commit, sampled."),
}

# Times since the epoch: series, key, and what it is.
TIMES: dict[str, tuple[str, str]] = {
    "cluster_snapshot_time_seconds": ("snapshotTime", "When the last snapshot was taken."),
    "cluster_certificate_end_seconds": ("certificateEnds", "When the TLS certificate expires."),
}

_SERVICE = re.compile(r" serviceId=(\d+)")


def metrics_text(
    member: Member,
    facts: Mapping[str, str],
    limits: Mapping[str, int],
    pid: int | None,
    accept: str = "",
    *,
    has_all: bool = False,
) -> tuple[bytes, str]:
    """The text for one member, and its content type: OpenMetrics where ``accept`` says so.

    ``facts`` name the member, ``limits`` are the most that there may be of a series, ``pid`` is its process.
    ``has_all``: each counter, too.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected([*_families(member, facts, limits), *(_every(member) if has_all else ())]))
    if pid is not None:
        ProcessCollector(pid=lambda: pid, registry=registry)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def backup_metrics_text(backup: Member) -> str:
    """The text for a backup or a standby."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected([*_of_backup(backup)]))
    return generate_latest(registry).decode()


def _of_backup(backup: Member) -> Iterator[Metric]:
    yield _gauge("cluster_backup_up", "Whether the backup runs.", backup["isAlive"])
    yield _gauge("cluster_backup_log_bytes", "Bytes of log in the copy.", backup.get("logBytes", 0))
    snapshot = TIMES["cluster_snapshot_time_seconds"]
    yield from _of_times(backup, {"cluster_backup_snapshot_time_seconds": snapshot})
    if backup["isAlive"]:
        next_query = "nextQuery", "When it queries the members next, once it was level."
        yield from _of_times(backup, {"cluster_backup_next_query_time_seconds": next_query})
        yield from _of_counters(backup["counters"], BACKUP_GAUGES, BACKUP_COUNTERS, {})


class _Collected:
    """A collector of what is there already."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def _families(member: Member, facts: Mapping[str, str], limits: Mapping[str, int]) -> Iterator[Metric]:
    facts = {**facts, "python": platform.python_version()}
    build = GaugeMetricFamily("cluster_build_info", "Version that runs; always 1.", labels=list(facts))
    build.add_metric(list(facts.values()), 1)
    yield build
    yield _gauge("cluster_member_up", "Whether the member takes turns.", member["isAlive"])
    yield _gauge(
        "cluster_member_ready", "Whether the member takes part (/readyz).", not why_not_ready(member)
    )
    if member["isAlive"]:
        leader = member.get("leaderMemberId")
        yield _gauge(
            "cluster_has_leader", "Whether the member knows a leader.", leader is not None and leader >= 0
        )
        yield _gauge("cluster_leading", "Whether the member leads.", member.get("role") == "LEADER")
        yield _gauge(
            "cluster_awaited_members", "Members it waits for before it takes part.", len(member["waitsFor"])
        )
        yield from _of_counters(member["counters"], GAUGES, COUNTERS, HISTOGRAMS)
    for name, (key, scale, text) in OF_MEMBER.items():
        if (value := member.get(key)) is not None:
            yield _gauge(name, text, value * scale)
    for name, limit in limits.items():
        yield _gauge(f"{name}_limit", f"Upper limit of {name}.", limit)
    yield from _of_times(member, TIMES)
    groups = GaugeMetricFamily(
        "cluster_group_lag_bytes", "How far a consumer group is below the commit position.", labels=["group"]
    )
    for group in member.get("consumers", ()):
        groups.add_metric([group["group"]], group["bytesBehind"])
    yield groups


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, float(value))


def _of_times(member: Member, times: Mapping[str, tuple[str, str]]) -> Iterator[Metric]:
    for name, (key, text) in times.items():
        if time := member.get(key):
            yield _gauge(name, text, datetime.fromisoformat(time).timestamp())


def _of_counters(
    found: list[dict[str, Any]],
    gauges: Mapping[str, tuple[Id, float, str]],
    counters: Mapping[str, tuple[Id, str]],
    histograms: Mapping[str, tuple[Id, str]],
) -> Iterator[Metric]:
    for name, (type_id, scale, text) in gauges.items():
        yield _family(GaugeMetricFamily, name, text, found, type_id, scale)
    for name, (type_id, text) in counters.items():
        yield _family(CounterMetricFamily, name, text, found, type_id, 1)
    for name, (type_id, text) in histograms.items():
        yield from _histogram(name, text, [c for c in found if c["typeId"] == type_id])


def _family(
    kind: Any, name: str, text: str, counters: list[dict[str, Any]], type_id: Id, scale: float
) -> Metric:
    """All counters of a type, apart by what their labels name."""
    found = [(_part(counter), counter["value"]) for counter in counters if counter["typeId"] == type_id]
    family: Metric = kind(name, text, labels=[label for label in {part[0] for part, _ in found} if label])
    for (label, value), count in found:
        family.add_metric([value] if label else [], count * scale)  # type: ignore[attr-defined]
    return family


def _part(counter: dict[str, Any]) -> tuple[str, str]:
    """Name and value of the label that only this counter of its type has; empty for a single one."""
    if counter["typeId"] in PARTS:
        return part_of(counter["label"])
    service = _SERVICE.search(counter["label"])
    return ("", "") if service is None else ("service", service[1])


def _histogram(name: str, text: str, counters: list[dict[str, Any]]) -> Iterator[Metric]:
    """Of the counters of a histogram, in any order; nothing where the member has none."""
    values = {part_of(counter["label"])[1]: counter["value"] for counter in counters}
    if not values:
        return
    buckets, count = [], 0
    for bound in (*BUCKETS_NS, "inf"):
        count += values[str(bound)]
        buckets.append(("+Inf" if bound == "inf" else repr(int(bound) / 1e9), count))
    yield HistogramMetricFamily(name, text, buckets, values["ns"] * NS)


def _every(member: Member) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "cluster_counter", "A counter as it is in the counters file.", labels=["id", "type", "label"]
    )
    for counter in member.get("counters", ()):
        family.add_metric([str(counter["id"]), str(counter["typeId"]), counter["label"]], counter["value"])
    yield family
