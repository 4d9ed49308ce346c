"""How a member stands, beside its positions and states: what its counters, its log's files and its disk say.

Keys and values are those of a member in ``cluster status --json`` (docs/status.md). A member says the same of
itself, so that it can be read from afar.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from cluster.protocol.counter_types import BUCKETS_NS, part_of
from cluster.protocol.counter_types import CounterTypeId as Id
from cluster.protocol.enums import ClusterTimeUnit, RefusedCertificate, Role
from cluster.protocol.recording_log import SNAPSHOT
from cluster.reader.directory import DirectoryLog

LINK_COUNTERS = (Id.LINK_IS_UP, Id.LINK_QUEUED_BYTES, Id.LINK_REFUSED)  # as ``by_links`` takes them
REFUSED: dict[int, str] = {RefusedCertificate.THEIRS: "theirs", RefusedCertificate.OURS: "ours"}
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
_COUNTS = (
    "serviceLag", "clockOffsetMs", "elections", "errors", "timedOutClients", "maxCycleNs", "diskFree",
    "ingressMessages", "memberCount", "uptimeMs",
    "diskTotal", "logBytes", "logRoom", "snapshotPosition", "snapshotTimestamp", "replayBytes",
    "logBytesPerDay", "clusterTimeMs", "clusterTimeOffsetMs",
)  # fmt: skip
_LISTS = ("syncTimes", "commitTimes", "servicePositions", "serviceStandstillsMs")
OF_LINK: dict[str, type] = {
    "peer": int, "isUp": bool, "isConnecting": bool, "queuedBytes": int, "refusedCertificate": str
}  # fmt: skip
CONNECTING_MS = 5_000  # after a start: members that are started together do not listen all at once
KEYS: dict[str, type] = {
    **dict.fromkeys(_COUNTS, int), **dict.fromkeys((*_LISTS, "links"), list),
    "snapshotTime": str, "version": str,
}  # fmt: skip
_ERRORS = (Id.CONSENSUS_MODULE_ERRORS, Id.CONTAINER_ERRORS, Id.BACKUP_ERRORS)


def by_counters(types: Sequence[int], values: Sequence[int], now_ms: int | None) -> dict[str, Any]:
    """Of all allocated counters, by type and value; ``now_ms`` is the clock of the host where it lives."""
    value_of = dict(zip(types, values, strict=True))
    pairs = list(zip(types, values, strict=True))
    positions = [value for type_id, value in pairs if type_id == Id.SERVICE_POSITION]
    commit_position, offset_ns = value_of.get(Id.COMMIT_POSITION), value_of.get(Id.CLOCK_OFFSET)
    has_lag = commit_position is not None and positions
    return {
        "serviceLag": max(0, commit_position - min(positions)) if has_lag else None,  # type: ignore[operator]
        "servicePositions": positions,
        "serviceStandstillsMs": [
            ns // 1_000_000 for type_id, ns in pairs if type_id == Id.SERVICE_STANDSTILL
        ],
        **_cluster_time(value_of, now_ms),
        "clockOffsetMs": None if offset_ns is None else round(offset_ns / 1_000_000),
        "elections": value_of.get(Id.ELECTION_COUNT),
        "errors": sum(value for type_id, value in pairs if type_id in _ERRORS),
        "timedOutClients": value_of.get(Id.CLIENT_TIMEOUTS),
        "maxCycleNs": value_of.get(Id.MAX_CYCLE_TIME),
        **({"logRoom": room} if (room := value_of.get(Id.LOG_ROOM, -1)) >= 0 else {}),  # else without a bound
        "ingressMessages": value_of.get(Id.INGRESS_MESSAGES),
        "syncTimes": _bucket_counts(pairs, Id.SYNC_TIME),
        "commitTimes": _bucket_counts(pairs, Id.COMMIT_TIME),
        "memberCount": types.count(Id.LINK_IS_UP) + 1 if Id.INGRESS_MESSAGES in value_of else None,
    }


def _cluster_time(value_of: Mapping[int, int], now_ms: int | None) -> dict[str, int]:
    """Of a leader, who stamps it, unless it is of an earlier release."""
    offset_ns = value_of.get(Id.CLUSTER_TIME_OFFSET)
    if offset_ns is None or now_ms is None or value_of.get(Id.NODE_ROLE) != Role.LEADER:
        return {}
    offset_ms = round(offset_ns / 1_000_000)
    return {"clusterTimeMs": now_ms + offset_ms, "clusterTimeOffsetMs": offset_ms}


def _bucket_counts(pairs: Sequence[tuple[int, int]], type_id: Id) -> list[int] | None:
    """Of a histogram's counters, which lie in the order of ``bucket_parts``."""
    counts = [value for other_id, value in pairs if other_id == type_id]
    return counts[: len(BUCKETS_NS) + 1] or None


def by_label(label: str) -> dict[str, str]:
    """Of the label of counter 212: the version that runs."""
    version = label.partition(" version=")[2].partition(" ")[0]
    return {"version": version} if version else {}


def by_links(
    are_up: Mapping[str, int], queued: Mapping[str, int], refused: Mapping[str, int], *, uptime_ms: int
) -> dict[str, Any]:
    """Of the counters of links by their labels: whether each is up, and how many bytes wait on each."""
    is_young = uptime_ms < CONNECTING_MS
    waiting = {part_of(label)[1]: count for label, count in queued.items()}
    whose = {part_of(label)[1]: REFUSED.get(value, "") for label, value in refused.items()}
    peers = {part_of(label)[1]: is_up for label, is_up in are_up.items()}
    links = [
        {
            "peer": int(peer),
            "isUp": bool(is_up),
            "isConnecting": is_young and not is_up,
            "queuedBytes": waiting.get(peer, 0),
            "refusedCertificate": whose.get(peer, ""),
        }
        for peer, is_up in peers.items()
    ]
    return {"links": links} if links else {}


def by_log(log: DirectoryLog, end: int, now_ms: int) -> dict[str, Any]:
    """Of the log's files, where it is recorded up to ``end`` by now. Raises ClusterError."""
    snapshots = [entry for entry in log.state.log_entries if entry.entry_type is SNAPSHOT]
    last = max(snapshots, key=lambda entry: entry.log_position, default=None)
    return {
        "logBytes": end - log.start_position,
        "snapshotPosition": None if last is None else last.log_position,
        "snapshotTimestamp": None if last is None else last.timestamp,
        "snapshotTime": None if last is None else _iso(last.timestamp, log.time_unit),
        "replayBytes": end - (log.start_position if last is None else last.log_position),
        "logBytesPerDay": _bytes_per_day(log, end, now_ms),
    }


def _bytes_per_day(log: DirectoryLog, end: int, now_ms: int) -> int | None:
    """How fast the log grows: since the newest term or snapshot of at least an hour ago, else the oldest."""
    per_second = log.time_unit.per_second
    marks = sorted(
        (
            entry.timestamp * 1_000 // per_second,
            entry.log_position if entry.entry_type is SNAPSHOT else entry.term_base_log_position,
        )
        for entry in log.state.log_entries
    )
    since = [mark for mark in marks if mark[0] <= now_ms - HOUR_MS][-1:] or marks[:1]
    if not since or now_ms <= since[0][0]:
        return None
    begun_ms, position = since[0]
    return (end - position) * DAY_MS // (now_ms - begun_ms)


def by_disk(directory: str) -> dict[str, int]:
    """Of the file system that holds the directory."""
    usage = shutil.disk_usage(directory)
    return {"diskFree": usage.free, "diskTotal": usage.total}


def standing_text(standing: dict[str, Any]) -> str:
    """As a member says it of itself."""
    return json.dumps(standing)


def said_of_itself(text: str) -> dict[str, Any]:
    """What a member says of itself, of the keys and the types that are known; of an older one nothing."""
    try:
        said = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    said = said if isinstance(said, dict) else {}
    known = {key: said[key] for key, kind in KEYS.items() if isinstance(said.get(key), kind)}
    return {key: value for key, value in known.items() if _is_well_formed(key, value)}


def _is_well_formed(key: str, value: Any) -> bool:
    """Whether the elements of a list are what they should be."""
    if key == "links":
        return all(
            isinstance(link, dict)
            and link.keys() == OF_LINK.keys()
            and all(type(link[name]) is kind for name, kind in OF_LINK.items())
            for link in value
        )
    return key not in _LISTS or all(isinstance(count, int) for count in value)


def _iso(timestamp: int, unit: ClusterTimeUnit) -> str:
    """A cluster time in ISO 8601."""
    at = datetime.fromtimestamp(timestamp / unit.per_second, UTC)
    return at.isoformat(timespec="milliseconds")
