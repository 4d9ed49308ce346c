"""What entries of the Log say of sessions, timers and leadership terms, reduced by Arrow alone.

The rows are those of the Spark transforms (``jobs.sessions``, ``jobs.timers``, ``jobs.terms``): the tests
compare them. Entries come in the order of the Log; those that stand for snapshots come last.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.schemas import OPENING_COLUMNS, PENDING, SESSIONS, SNAPSHOT, TERMS, TIMERS, TableLayout
from spark_connector.columns import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIRST = pc.ScalarAggregateOptions(skip_nulls=False)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)


def sessions(entries: Iterable[pa.RecordBatch]) -> pa.Table:
    """One row per cluster session, as ``jobs.sessions.sessions`` makes them; of ``without_payloads``."""
    whole = pa.Table.from_batches(list(entries), _SESSION_ENTRIES)
    kind = whole["entryType"]
    is_message, is_close = pc.equal(kind, "SESSION_MESSAGE"), pc.equal(kind, "SESSION_CLOSE")
    counted = whole.select(["clusterSessionId", "bytes", "position"])
    counted = counted.append_column("messages", pc.cast(is_message, pa.int64()))
    counted = counted.append_column("activity", pc.if_else(is_close, None, whole["timestamp"]))
    per_session = _grouped(
        counted,
        ["clusterSessionId"],
        messages=("messages", "sum"),
        bytes=("bytes", "sum"),
        lastActivityAt=("activity", "max"),
        lastPosition=("position", "max"),
    )
    is_purged = pc.is_null(whole["timestamp"])  # it stands for an opening that is not in the Log any more
    opening = whole.append_column("openPosition", pc.if_else(is_purged, None, whole["position"]))
    opened = _firsts(
        opening.filter(pc.equal(kind, "SESSION_OPEN")),
        openPosition="openPosition",
        openedAt="timestamp",
        openTermId="leadershipTermId",
        **{name: name for name in _OF_OPENING},
    )
    closed = _firsts(
        whole.filter(is_close),
        closePosition="position",
        closedAt="timestamp",
        closeTermId="leadershipTermId",
        closeReason="closeReason",
    )
    rows = per_session.join(opened, "clusterSessionId").join(closed, "clusterSessionId")
    state = pc.if_else(pc.is_valid(rows["closePosition"]), "CLOSED", "OPEN")
    return _as(SESSIONS, rows.append_column("state", state))


_OF_OPENING = ("correlationId", "responseStreamId", "responseChannel", "encodedPrincipal")
_SESSION_ENTRIES = pa.schema(
    [
        ("position", pa.int64()),
        ("leadershipTermId", pa.int64()),
        ("entryType", pa.string()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("clusterSessionId", pa.int64()),
        ("correlationId", pa.int64()),
        ("responseStreamId", pa.int32()),
        ("responseChannel", pa.string()),
        ("encodedPrincipal", pa.binary()),
        ("closeReason", pa.string()),
        ("bytes", pa.int64()),
    ]
)


def without_payloads(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The entries of sessions, with the length of each payload in place of it."""
    batch = batch.filter(pc.greater_equal(batch["clusterSessionId"], 0))
    length = pc.fill_null(pc.cast(pc.binary_length(batch["payload"]), pa.int64()), 0)
    return batch.append_column("bytes", length).select(_SESSION_ENTRIES.names)


def _firsts(rows: pa.Table, **columns: str) -> pa.Table:
    """The first row of each session, its columns by their new names."""
    return _grouped(
        rows, ["clusterSessionId"], **{name: (source, "first") for name, source in columns.items()}
    )


def timers(entries: Iterable[pa.RecordBatch]) -> pa.Table:
    """One row per timer that fires or is pending in a snapshot, as ``jobs.timers.timers`` makes them."""
    whole = pa.Table.from_batches(list(entries))
    kind = whole["entryType"]
    taken = np.unique(whole.filter(pc.equal(kind, SNAPSHOT))["position"].to_numpy())
    before = np.concatenate([[-1], taken])  # by the snapshots that are not after an entry
    position = whole["position"].to_numpy()
    whole = whole.append_column("snapshot", pa.array(before[np.searchsorted(taken, position, side="right")]))
    # First what happened to a timer between two snapshots, then the latest of that, and all firings.
    keys = ["correlationId", "snapshot"]
    fired = _grouped(
        whole.filter(pc.equal(kind, "TIMER")),
        keys,
        firedPosition=("position", "last"),
        firedAt=("timestamp", "last"),
        firedTermId=("leadershipTermId", "last"),
        firings=("position", "count"),
    )
    pending = _grouped(
        whole.filter(pc.equal(kind, PENDING)),
        keys,
        deadline=("timestamp", "max"),
        pendingPosition=("position", "max"),
    )
    between = fired.join(pending, keys, join_type="full outer").sort_by([(key, "ascending") for key in keys])
    between = between.set_column(
        between.column_names.index("firings"), "firings", pc.fill_null(between["firings"], 0)
    )
    per_timer = _grouped(
        between,
        ["correlationId"],
        firedPosition=("firedPosition", "max"),
        firedAt=("firedAt", "last valid"),
        firedTermId=("firedTermId", "last valid"),
        firings=("firings", "sum"),
        pendingPosition=("pendingPosition", "max"),
        snapshot=("snapshot", "last"),
        since=("firings", "last"),
        deadline=("deadline", "last"),
    )
    is_fired = pc.greater(per_timer["since"], 0)
    is_due = pc.less_equal(per_timer["deadline"], per_timer["firedAt"])
    is_that = pc.fill_null(pc.and_(pc.equal(per_timer["since"], 1), is_due), False)
    is_newest = pc.equal(per_timer["snapshot"], int(before[-1]))
    rows = per_timer.drop_columns(["deadline"]).append_column(
        "deadline", pc.if_else(pc.or_(pc.invert(is_fired), is_that), per_timer["deadline"], None)
    )
    state = pc.if_else(is_fired, "FIRED", pc.if_else(is_newest, "SCHEDULED", "CANCELLED"))
    rows = rows.append_column("state", state).append_column("lastPosition", rows["firedPosition"])
    return _as(TIMERS, rows)


def terms(known: pa.Table, entries: Iterable[pa.RecordBatch]) -> pa.Table:
    """``known``, rows of the table, brought up to ``entries``, as ``jobs.terms.terms`` makes them."""
    whole = pa.Table.from_batches(list(entries))
    found: dict[int, dict[str, Any]] = {row["leadershipTermId"]: row for row in known.to_pylist()}
    counted = _grouped(
        whole,
        ["leadershipTermId"],
        endPosition=("endPosition", "max"),
        endedAt=("timestamp", "max"),
        entries=("position", "count"),
        lastPosition=("position", "max"),
    )
    for row in counted.to_pylist():
        term = found.setdefault(
            row["leadershipTermId"], row | dict.fromkeys(OPENING_COLUMNS) | {"entries": 0}
        )
        term["entries"] += row["entries"]
        for column in ("endPosition", "endedAt", "lastPosition"):
            term[column] = max(term[column], row[column])
    openings = whole.filter(pc.equal(whole["entryType"], "NEW_LEADERSHIP_TERM"))
    for row in openings.to_pylist():
        row |= {"startPosition": row["position"], "startedAt": row["timestamp"]}
        found[row["leadershipTermId"]] |= {column: row[column] for column in OPENING_COLUMNS}
    for term_id, term in found.items():
        base, started_at = term["termBaseLogPosition"], term["startedAt"]
        term["state"] = "CURRENT" if term_id == max(found) else "ENDED"
        term["length"] = None if base is None else term["endPosition"] - base
        term["durationMs"] = None if started_at is None else _ms(term["endedAt"]) - _ms(started_at)
    return pa.Table.from_pylist(list(found.values()), arrow_schema(TERMS.columns))


def _ms(time: dt.datetime) -> int:
    return (time - _EPOCH) // _MILLISECOND


def _grouped(rows: pa.Table, keys: Sequence[str], **columns: tuple[str, str]) -> pa.Table:
    """By new name the column and its aggregate; "first" and "last" take the row, "last valid" a value."""
    wanted = []
    for source, kind in columns.values():
        options = _FIRST if kind in ("first", "last") else None
        wanted.append((source, kind.removesuffix(" valid"), options))
    made = rows.group_by(list(keys), use_threads=False).aggregate(wanted)
    values = [made.column(name) for name in keys]
    results = [column for index, column in enumerate(made.columns) if made.column_names[index] not in keys]
    return pa.table(dict(zip([*keys, *columns], [*values, *results], strict=True)))


def _as(layout: TableLayout, rows: pa.Table) -> pa.Table:
    schema = arrow_schema(layout.columns)
    return rows.select(schema.names).cast(schema)
