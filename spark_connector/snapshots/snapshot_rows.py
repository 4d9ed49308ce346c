"""What members keep in snapshots, a row a record, members compared; without Spark.

The snapshots that all members have of one service at one log position are read record by record, side by
side. So a row can say whether the members have the same record in its place.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from cluster import ClusterError, DataLoss, NotAClusterDirectory
from cluster.protocol import decode
from cluster.protocol.enums import ClusterTimeUnit
from cluster.protocol.recording_log import CONSENSUS_MODULE_SERVICE_ID
from spark_connector.columns import Columns

if TYPE_CHECKING:
    from cluster.archive.snapshot_archive import SnapshotImage
    from cluster.reader.snapshots import StoredSnapshot
    from spark_connector.snapshots.snapshot_copies import Snapshots

SERVICE_STATE = "SERVICE_STATE"
# What is of a member's own recordings, or of the answers that it happens to keep.
OF_ONE_MEMBER = frozenset({"SNAPSHOT_ANSWER", "SNAPSHOT_RECORDING", "SNAPSHOT_CHECKSUM"})

SNAPSHOT_COLUMNS: Columns = {
    "memberId": ("INT", "the member, by its mark file"),
    "directory": ("STRING", "its directory or, over the network, its endpoint"),
    "serviceId": ("INT", "whose snapshot it is: -1 the consensus module, else a service"),
    "recordingId": ("BIGINT", "the recording in the archive of the member"),
    "leadershipTermId": ("BIGINT", "the leadership term in which it was taken"),
    "logPosition": ("BIGINT", "the position in the log after the entry that asked for it"),
    "clusterTime": ("BIGINT", "the time of that entry, in the time unit of the cluster"),
    "recordIndex": ("INT", "place of the record in its snapshot, from 0"),
    "recordType": ("STRING", "what the record is; SERVICE_STATE is a message of the service itself"),
    "membersAgree": (
        "BOOLEAN",
        "whether all members that have this snapshot have this record in its place; null where only one "
        "has it, and for records that are of one member only",
    ),
    "record": ("BINARY", "the record as it is stored"),
    "mark": ("STRING", "SNAPSHOT_MARKER: BEGIN or END"),
    "timeUnit": ("STRING", "SNAPSHOT_MARKER: the time unit of the cluster"),
    "appVersion": ("INT", "SNAPSHOT_MARKER: the version of the application"),
    "clusterSessionId": ("BIGINT", "sessions, and messages of services that are not in the log yet"),
    "correlationId": ("BIGINT", "CLUSTER_SESSION: of its connect request; TIMER: the id of the timer"),
    "deadline": ("BIGINT", "TIMER: when it is due, in cluster time"),
    "openedLogPosition": ("BIGINT", "CLUSTER_SESSION: where in the log it was opened"),
    "closeReason": ("STRING", "CLUSTER_SESSION: why it is being closed"),
    "responseStreamId": ("INT", "sessions: where answers go"),
    "responseChannel": ("STRING", "sessions: where answers go"),
    "encodedPrincipal": ("BINARY", "sessions: who it is"),
    "nextSessionId": ("BIGINT", "CONSENSUS_MODULE: the id of the next session"),
    "nextServiceSessionId": ("BIGINT", "PENDING_MESSAGE_TRACKER: the id of the next message of the service"),
    "logServiceSessionId": ("BIGINT", "PENDING_MESSAGE_TRACKER: the id of its last message in the log"),
    "committedMessages": ("BIGINT", "SNAPSHOT_SESSION: messages of the session in the log"),
    "committedPosition": ("BIGINT", "SNAPSHOT_SESSION: the position after the last of them"),
}
_FIELDS = tuple(SNAPSHOT_COLUMNS)[tuple(SNAPSHOT_COLUMNS).index("mark") :]


def _snake(name: str) -> str:
    return re.sub("(?<=.)([A-Z])", lambda match: f"_{match[1]}", name).lower()


_ATTRIBUTES = {name: _snake(name) for name in _FIELDS}


def snapshot_rows(found: tuple[StoredSnapshot, ...], snapshots: Snapshots) -> Iterator[dict[str, Any]]:
    """The records of one service's snapshots at one position, which were ``found`` among ``snapshots``, each
    with the columns that it has.

    Raises as ``snapshots.opened``, LogDamaged, RemoteProtocolError.
    """
    with ExitStack() as opened:
        yield from _rows(found, [opened.enter_context(snapshots.opened(one)) for one in found])


def _rows(found: tuple[StoredSnapshot, ...], images: list[SnapshotImage]) -> Iterator[dict[str, Any]]:
    places = [
        {
            "memberId": snapshot.member_id,
            "directory": snapshot.directory,
            "serviceId": snapshot.service_id,
            "recordingId": snapshot.recording_id,
            "leadershipTermId": snapshot.leadership_term_id,
            "logPosition": snapshot.log_position,
            "clusterTime": snapshot.timestamp,
        }
        for snapshot in found
    ]
    is_after_end = [False for _ in found]
    for index, records in enumerate(zip_longest(*images)):
        agree = len(set(records)) == 1 if len(records) > 1 else None
        for number, record in enumerate(records):
            if record is None:
                continue
            is_own = is_after_end[number] and found[number].service_id != CONSENSUS_MODULE_SERVICE_ID
            fields = {"recordType": SERVICE_STATE} if is_own else _fields(record)
            is_after_end[number] |= fields.get("mark") == "END"
            agrees = None if fields["recordType"] in OF_ONE_MEMBER else agree
            yield {
                **places[number],
                "recordIndex": index,
                "membersAgree": agrees,
                "record": record,
                **fields,
            }


def sessions_of_first_snapshot(snapshots: Snapshots, position: int) -> list[dict[str, Any]]:
    """The sessions in the first snapshot at or after ``position``, a row each, by id.

    Their columns are those of CLUSTER_SESSION, and ``encodedPrincipal`` of a service's CLIENT_SESSION. Empty
    without such a snapshot. Raises LogDamaged, and TimedOut when no member answers.
    """
    found = snapshots.listed(position - 1)
    first = [one for one in found if one.log_position == found[0].log_position]
    opened: dict[int, dict[str, Any]] = {}
    principals: dict[int, Any] = {}
    for service_id in sorted({one.service_id for one in first}):
        for row in _rows_of_any([one for one in first if one.service_id == service_id], snapshots):
            if row["recordType"] == "CLUSTER_SESSION":
                opened[row["clusterSessionId"]] = row
            elif row["recordType"] == "CLIENT_SESSION":
                principals[row["clusterSessionId"]] = row["encodedPrincipal"]
    return [{**opened[one], "encodedPrincipal": principals.get(one)} for one in sorted(opened)]


@dataclass(frozen=True, slots=True)
class PendingTimer:
    """A timer that a snapshot has; ``deadline`` is None for one beyond the times that Python has."""

    correlation_id: int
    deadline: dt.datetime | None


def pending_timers(snapshots: Snapshots, after: int, end: int) -> Iterator[tuple[int, list[PendingTimer]]]:
    """The snapshots with log positions beyond ``after`` up to ``end``, in their order, and their timers.

    One that several members have is read once, of the first that has it whole. One that is deleted meanwhile
    is left out. Raises LogDamaged where no copy is whole, and TimedOut when no member answers.
    """
    found = [one for one in snapshots.listed(after) if one.service_id == CONSENSUS_MODULE_SERVICE_ID]
    for position in sorted({one.log_position for one in found if one.log_position <= end}):
        rows = _rows_of_any([one for one in found if one.log_position == position], snapshots)
        if rows:
            per_second = ClusterTimeUnit[rows[0]["timeUnit"]].per_second
            timers = [row for row in rows if row["recordType"] == "TIMER"]
            yield (
                position,
                [PendingTimer(row["correlationId"], _as_time(row["deadline"], per_second)) for row in timers],
            )


def _rows_of_any(copies: list[StoredSnapshot], snapshots: Snapshots) -> list[dict[str, Any]]:
    """The records of the first copy that is whole; none where all were deleted after they were listed."""
    failed = None
    for copy in copies:
        try:
            return list(snapshot_rows((copy,), snapshots))
        except (NotAClusterDirectory, DataLoss):
            continue
        except ClusterError as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return []


def _as_time(value: int, per_second: int) -> dt.datetime | None:
    try:
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(
            microseconds=value * 1_000_000 // per_second
        )
    except OverflowError:
        return None


def _fields(record: bytes) -> dict[str, Any]:
    """The type of a record that is the cluster's, and what it has for the columns."""
    message = decode(record)
    if message is None:
        return {"recordType": "UNKNOWN"}
    kind = _snake(type(message).__name__).upper()
    fields: dict[str, Any] = {"recordType": "SESSION_MESSAGE" if kind == "SESSION_MESSAGE_HEADER" else kind}
    for name, attribute in _ATTRIBUTES.items():
        value = getattr(message, attribute, None)
        fields[name] = value.name if isinstance(value, Enum) else value
    return fields
