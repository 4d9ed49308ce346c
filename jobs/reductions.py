"""What entries of the Log say of sessions, timers and leadership terms, reduced by Arrow.

It is said here alone: for the writer of Spark (:mod:`jobs.table_job`), for delta-rs (:mod:`jobs.delta_rs`),
and for :mod:`jobs.verify`. Rows may come in any order, and in any number of batches.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.schemas import OPENING_COLUMNS, PENDING, SESSIONS, SNAPSHOT, TERMS, TIMERS
from spark_connector.columns import Columns, arrow_schema
from spark_connector.schema import ROW_COLUMNS


@dataclass(frozen=True, slots=True)
class Reduction:
    """How entries become a row a key, in two steps.

    ``partial`` makes rows with ``parts`` of some entries, which have the length of each payload as ``bytes``
    in place of it; without it, entries are such rows. ``reduced`` makes rows with ``columns`` of all parts.
    """

    columns: Columns
    parts: Columns
    reduced: Callable[[pa.Table], pa.Table]
    partial: Callable[[pa.Table], pa.Table] | None = None

    def parts_of(self, entries: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The parts of each batch of ``entries``."""
        for batch in entries:
            rows = pa.Table.from_batches([batch])
            if "payload" in rows.column_names:
                rows = rows.append_column("bytes", pc.binary_length(rows["payload"])).drop_columns("payload")
            yield from _as(self.parts, rows if self.partial is None else self.partial(rows)).to_batches()

    def rows_of(self, parts: Iterable[pa.RecordBatch]) -> pa.Table:
        """One row a key of all ``parts``."""
        schema = arrow_schema(self.parts)
        whole = pa.Table.from_batches([part.select(schema.names).cast(schema) for part in parts], schema)
        return _as(self.columns, self.reduced(whole))


_OF_OPENING = ("correlationId", "responseStreamId", "responseChannel", "encodedPrincipal")
_OF_SESSION = {
    **dict.fromkeys(("openPosition", "openedAt", "openTermId", *_OF_OPENING), "first"),
    **dict.fromkeys(("messages", "bytes"), "sum"),
    "lastActivityAt": "max",
    **dict.fromkeys(("closePosition", "closedAt", "closeTermId", "closeReason"), "first"),
    "lastPosition": "max",
}


def _parts_of_sessions(entries: pa.Table) -> pa.Table:
    entries = entries.filter(pc.greater_equal(entries["clusterSessionId"], 0))
    kind, position, time = entries["entryType"], entries["position"], entries["timestamp"]
    is_open, is_close = pc.equal(kind, "SESSION_OPEN"), pc.equal(kind, "SESSION_CLOSE")
    is_in_log = pc.and_(is_open, pc.is_valid(time))  # else it stands for one that was purged
    said = {
        "clusterSessionId": entries["clusterSessionId"],
        "openPosition": pc.if_else(is_in_log, position, None),
        "openedAt": pc.if_else(is_open, time, None),
        "openTermId": pc.if_else(is_open, entries["leadershipTermId"], None),
        **{column: entries[column] for column in _OF_OPENING},
        "messages": pc.cast(pc.equal(kind, "SESSION_MESSAGE"), pa.int64()),
        "bytes": pc.fill_null(entries["bytes"], 0),
        "lastActivityAt": pc.if_else(is_close, None, time),
        "closePosition": pc.if_else(is_close, position, None),
        "closedAt": pc.if_else(is_close, time, None),
        "closeTermId": pc.if_else(is_close, entries["leadershipTermId"], None),
        "closeReason": entries["closeReason"],
        "lastPosition": position,
    }
    return _grouped(pa.table(said), ("clusterSessionId",), _OF_SESSION)


def _sessions(parts: pa.Table) -> pa.Table:
    rows = _grouped(parts, ("clusterSessionId",), _OF_SESSION)
    state = pc.if_else(pc.is_valid(rows["closePosition"]), "CLOSED", "OPEN")
    return rows.append_column("state", state)


SESSION_REDUCTION = Reduction(
    SESSIONS.columns,
    {name: column for name, column in SESSIONS.columns.items() if name != "state"},
    _sessions,
    _parts_of_sessions,
)


_BETWEEN_SNAPSHOTS = {
    **dict.fromkeys(("firedPosition", "firedAt", "firedTermId", "deadline", "pendingPosition"), "last"),
    "firings": "sum",
}


def _timers(entries: pa.Table) -> pa.Table:
    entries = entries.sort_by("position")
    kind, position, time = entries["entryType"], entries["position"], entries["timestamp"]
    is_firing, is_pending = pc.equal(kind, "TIMER"), pc.equal(kind, PENDING)
    taken = np.unique(position.filter(pc.equal(kind, SNAPSHOT)).to_numpy())
    before = np.concatenate([[-1], taken])  # by the snapshots that are not after an entry
    said = pa.table(
        {
            "correlationId": entries["correlationId"],
            "snapshot": before[np.searchsorted(taken, position.to_numpy(), side="right")],
            "firedPosition": pc.if_else(is_firing, position, None),
            "firedAt": pc.if_else(is_firing, time, None),
            "firedTermId": pc.if_else(is_firing, entries["leadershipTermId"], None),
            "firings": pc.cast(is_firing, pa.int64()),
            "deadline": pc.if_else(is_pending, time, None),
            "pendingPosition": pc.if_else(is_pending, position, None),
        }
    ).filter(pc.or_(is_firing, is_pending))
    # First what happened to a timer between two snapshots, then the latest of that, and all firings.
    between = _grouped(said, ("correlationId", "snapshot"), _BETWEEN_SNAPSHOTS).sort_by("snapshot")
    rows = between.append_column("since", between["firings"])
    rows = _grouped(rows, ("correlationId",), _BETWEEN_SNAPSHOTS | {"snapshot": "last", "since": "last"})
    is_fired = pc.greater(rows["since"], 0)
    is_due = pc.and_(pc.equal(rows["since"], 1), pc.less_equal(rows["deadline"], rows["firedAt"]))
    is_of_latest = pc.equal(rows["pendingPosition"], rows["snapshot"])
    is_known = pc.and_(is_of_latest, pc.or_kleene(pc.invert(is_fired), is_due))
    is_newest = pc.equal(rows["snapshot"], int(before[-1]))
    state = pc.if_else(is_fired, "FIRED", pc.if_else(is_newest, "SCHEDULED", "CANCELLED"))
    deadline = pc.if_else(is_known, rows["deadline"], None)
    rows = rows.drop_columns("deadline").append_column("deadline", deadline)
    return rows.append_column("state", state).append_column("lastPosition", rows["firedPosition"])


_OF_TIMER = ("position", "leadershipTermId", "timestamp", "correlationId", "entryType")
TIMER_REDUCTION = Reduction(TIMERS.columns, {name: ROW_COLUMNS[name] for name in _OF_TIMER}, _timers)

_OF_TERM = {
    **dict.fromkeys(OPENING_COLUMNS, "first"),
    **dict.fromkeys(("endPosition", "endedAt", "lastPosition"), "max"),
    "entries": "sum",
}


def _parts_of_terms(entries: pa.Table) -> pa.Table:
    is_opening = pc.equal(entries["entryType"], "NEW_LEADERSHIP_TERM")
    said = {
        "leadershipTermId": entries["leadershipTermId"],
        **{column: entries[column] for column in OPENING_COLUMNS[:-2]},
        "startPosition": pc.if_else(is_opening, entries["position"], None),
        "startedAt": pc.if_else(is_opening, entries["timestamp"], None),
        "endPosition": entries["endPosition"],
        "endedAt": entries["timestamp"],
        "lastPosition": entries["position"],
        "entries": pa.repeat(1, len(entries)),
    }
    return _grouped(pa.table(said), ("leadershipTermId",), _OF_TERM)


def _terms(parts: pa.Table) -> pa.Table:
    rows = _grouped(parts, ("leadershipTermId",), _OF_TERM)
    term = rows["leadershipTermId"]
    state = pc.if_else(pc.equal(term, pc.max(term)), "CURRENT", "ENDED")
    length = pc.subtract(rows["endPosition"], rows["termBaseLogPosition"])
    duration = pc.milliseconds_between(rows["startedAt"], rows["endedAt"])
    made = {"state": state, "length": length, "durationMs": duration}
    for name, column in made.items():
        rows = rows.append_column(name, column)
    return rows


TERM_REDUCTION = Reduction(
    TERMS.columns,
    {name: column for name, column in TERMS.columns.items() if name in {"leadershipTermId", *_OF_TERM}},
    _terms,
    _parts_of_terms,
)


def _grouped(rows: pa.Table, keys: tuple[str, ...], aggregates: Mapping[str, str]) -> pa.Table:
    """One row for each value of ``keys``, in any order; NULLs count for no aggregate."""
    made = rows.group_by(list(keys), use_threads=False).aggregate([*aggregates.items()])
    return made.rename_columns({f"{column}_{kind}": column for column, kind in aggregates.items()})


def _as(columns: Columns, rows: pa.Table) -> pa.Table:
    schema = arrow_schema(columns)
    return rows.select(schema.names).cast(schema)
