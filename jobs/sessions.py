"""Cluster sessions as a Delta table: who was connected, from when to when, and how much they sent.

One row a cluster session. A service's messages to its own cluster carry negative session ids, open no
session, and have no row.
"""

from contextlib import closing

from jobs.command import run_main
from jobs.keeping import run_table
from jobs.schemas import SESSIONS
from jobs.table_job import Found, FromSnapshots, TableJob
from spark_connector.log import open_reader
from spark_connector.options.cluster_options import SourceOptions
from spark_connector.options.places import EARLIEST

LOG_COLUMNS = (
    "position",
    "leadershipTermId",
    "entryType",
    "timestamp",
    "clusterSessionId",
    "correlationId",
    "payload",
    "responseStreamId",
    "responseChannel",
    "encodedPrincipal",
    "closeReason",
)
ENTRY_TYPES = ("SESSION_MESSAGE", "SESSION_OPEN", "SESSION_CLOSE")

# What the entries of a batch add to a session that the table knows. A session opens and closes once, so the
# first value that is known stays; closed is final, whatever the order of the batches that have it.
ON_MATCH = {
    column: f"coalesce(t.{column}, s.{column})" for column in SESSIONS.columns if column != SESSIONS.key
} | {
    "state": "CASE WHEN t.state = 'CLOSED' THEN t.state ELSE s.state END",
    "messages": "t.messages + s.messages",
    "bytes": "t.bytes + s.bytes",
    "lastActivityAt": "greatest(t.lastActivityAt, s.lastActivityAt)",
    "lastPosition": "greatest(t.lastPosition, s.lastPosition)",
}


def opened_before(source: dict[str, str]) -> Found:
    """The sessions whose opening was purged, as SESSION_OPEN entries without a timestamp.

    They are those of the first snapshot that the log still reaches. ``position`` is where the opening ended.
    Empty when the log has its beginning, and when ``source`` starts elsewhere. Raises NotAClusterDirectory,
    LogDamaged, and TimedOut when no member answers.
    """
    from spark_connector.snapshots.snapshot_copies import snapshots_of
    from spark_connector.snapshots.snapshot_rows import sessions_of_first_snapshot

    options = SourceOptions.parse(source)
    if options.starting_offsets not in (None, EARLIEST):
        return []
    start = open_reader(options).start_position
    if start == 0:
        return []
    with closing(snapshots_of(options)) as snapshots:
        found = sessions_of_first_snapshot(snapshots, start)
    kept = ("clusterSessionId", "correlationId", "responseStreamId", "responseChannel", "encodedPrincipal")
    return [
        {"entryType": "SESSION_OPEN", "position": row["openedLogPosition"], **{k: row.get(k) for k in kept}}
        for row in found
        if row["openedLogPosition"] <= start
    ]


def sessions_job() -> TableJob:
    """The table of sessions, as it is kept."""
    from jobs.reductions import SESSION_REDUCTION

    return TableJob(
        "sessions",
        SESSIONS,
        LOG_COLUMNS,
        ENTRY_TYPES,
        SESSION_REDUCTION,
        on_match=lambda found: (ON_MATCH, None),
        from_snapshots=_from_snapshots,
    )


def _from_snapshots(source: dict[str, str]) -> FromSnapshots:
    return lambda is_first, end: opened_before(source) if is_first else []


def main() -> None:
    run_table(
        "sessions",
        "Keep a Delta table of cluster sessions: opened and closed, by whom, messages, bytes, last activity.",
        "python -m jobs.sessions --dir c1/member-0 --table delta/sessions",
        sessions_job,
    )


if __name__ == "__main__":
    run_main(main)
