"""Cluster sessions as a Delta table: who was connected, from when to when, and how much they sent.

One row a cluster session. A service's messages to its own cluster carry negative session ids, open no
session, and have no row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.command import add_table, options_of, parser, run_main, start
from jobs.merge import beyond, merge, open_table, query_id
from jobs.streaming import read_log, run_batches, starting_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from jobs.command import JobOptions

LOG_COLUMNS = (
    "position BIGINT, leadershipTermId BIGINT, entryType STRING, timestamp TIMESTAMP, "
    "clusterSessionId BIGINT, correlationId BIGINT, payload BINARY, responseStreamId INT, "
    "responseChannel STRING, encodedPrincipal BINARY, closeReason STRING"
)
ENTRY_TYPES = "SESSION_MESSAGE,SESSION_OPEN,SESSION_CLOSE"

TABLE_COLUMNS = (
    "clusterSessionId BIGINT, state STRING, openPosition BIGINT, openedAt TIMESTAMP, openTermId BIGINT, "
    "correlationId BIGINT, responseStreamId INT, responseChannel STRING, encodedPrincipal BINARY, "
    "messages BIGINT, bytes BIGINT, lastActivityAt TIMESTAMP, "
    "closePosition BIGINT, closedAt TIMESTAMP, closeTermId BIGINT, closeReason STRING, lastPosition BIGINT"
)

# What the entries of a batch add to a session that the table knows. A session opens and closes once, so the
# first value that is known stays; closed is final, whatever the order of the batches that have it.
ON_MATCH = {
    "state": "CASE WHEN t.state = 'CLOSED' THEN t.state ELSE s.state END",
    **{
        column: f"coalesce(t.{column}, s.{column})"
        for column in (
            "openPosition",
            "openedAt",
            "openTermId",
            "correlationId",
            "responseStreamId",
            "responseChannel",
            "encodedPrincipal",
            "closePosition",
            "closedAt",
            "closeTermId",
            "closeReason",
        )
    },
    "messages": "t.messages + s.messages",
    "bytes": "t.bytes + s.bytes",
    "lastActivityAt": "coalesce(s.lastActivityAt, t.lastActivityAt)",
    "lastPosition": "greatest(t.lastPosition, s.lastPosition)",
}


def sessions(entries: DataFrame) -> DataFrame:
    """One row per cluster session in ``entries``, with the columns of ``TABLE_COLUMNS``.

    ``bytes`` counts payloads; ``lastActivityAt`` is the time of the last message, or of the opening.
    """
    from pyspark.sql import functions as f

    kind = f.col("entryType")
    opening = [
        f.col("position").alias("openPosition"),
        f.col("timestamp").alias("openedAt"),
        f.col("leadershipTermId").alias("openTermId"),
        *(f.col(c) for c in ("correlationId", "responseStreamId", "responseChannel", "encodedPrincipal")),
    ]
    closing = [
        f.col("position").alias("closePosition"),
        f.col("timestamp").alias("closedAt"),
        f.col("leadershipTermId").alias("closeTermId"),
        f.col("closeReason"),
    ]
    message = kind == "SESSION_MESSAGE"
    per_session = (
        entries.where(f.col("clusterSessionId") >= 0)
        .groupBy("clusterSessionId")
        .agg(
            f.min(f.when(kind == "SESSION_OPEN", f.struct(*opening))).alias("opened"),
            f.min(f.when(kind == "SESSION_CLOSE", f.struct(*closing))).alias("closed"),
            f.count_if(message).alias("messages"),
            f.sum(f.when(message, f.octet_length("payload")).otherwise(0)).alias("bytes"),
            f.max(f.when(kind != "SESSION_CLOSE", f.col("timestamp"))).alias("lastActivityAt"),
            f.max("position").alias("lastPosition"),
        )
    )
    state = f.when(f.col("closed").isNotNull(), "CLOSED").otherwise("OPEN").alias("state")
    columns = [column.strip().split(" ")[0] for column in TABLE_COLUMNS.split(",")]
    return per_session.select("*", "opened.*", "closed.*", state).select(*columns)


def keep_sessions(spark: SparkSession, options: JobOptions) -> None:
    """Bring ``options.table`` up to what the Log has."""
    known_to = open_table(spark, options.table, TABLE_COLUMNS, cluster_by="clusterSessionId")
    source = starting_at({"entryTypes": ENTRY_TYPES} | options.source, known_to)
    entries = beyond(read_log(spark, source, LOG_COLUMNS), known_to)

    def on_batch(batch: DataFrame, batch_id: int) -> None:
        transaction = (f"sessions-{query_id(batch)}", batch_id)
        merge(sessions(batch), options.table, "clusterSessionId", ON_MATCH, transaction)

    run_batches(entries, "sessions", options, on_batch)


def main() -> None:
    made = parser(
        "sessions",
        "Keep a Delta table of cluster sessions: opened and closed, by whom, messages, bytes, last activity.",
        "python -m jobs.sessions --cluster-dir c1/member-0 --table delta/sessions",
    )
    add_table(made)
    options = options_of(made)
    keep_sessions(start("sessions", options), options)


if __name__ == "__main__":
    run_main(main)
