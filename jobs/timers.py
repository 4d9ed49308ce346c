"""Timers as a Delta table: one row a correlation id, with its latest firing.

The Log says that a timer fired, not that it was scheduled: a timer that is still pending stands in snapshots
only, so ``state`` is always ``FIRED`` and ``deadline`` unknown until snapshots are read. An id that is
scheduled again after firing keeps its row; ``firings`` counts.
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
    "position BIGINT, leadershipTermId BIGINT, timestamp TIMESTAMP, correlationId BIGINT, entryType STRING"
)
ENTRY_TYPES = "TIMER"

TABLE_COLUMNS = (
    "correlationId BIGINT, state STRING, deadline TIMESTAMP, "
    "firedPosition BIGINT, firedAt TIMESTAMP, firedTermId BIGINT, firings BIGINT, lastPosition BIGINT"
)

ON_MATCH = {
    **{
        column: f"CASE WHEN s.lastPosition > t.lastPosition THEN s.{column} ELSE t.{column} END"
        for column in ("state", "deadline", "firedPosition", "firedAt", "firedTermId")
    },
    "firings": "t.firings + s.firings",
    "lastPosition": "greatest(t.lastPosition, s.lastPosition)",
}


def timers(entries: DataFrame) -> DataFrame:
    """One row per timer that fired in ``entries``, with the columns of ``TABLE_COLUMNS``."""
    from pyspark.sql import functions as f

    fired = f.struct(
        f.col("position").alias("firedPosition"),
        f.col("timestamp").alias("firedAt"),
        f.col("leadershipTermId").alias("firedTermId"),
    )
    per_timer = (
        entries.where(f.col("entryType") == "TIMER")
        .groupBy("correlationId")
        .agg(f.max(fired).alias("last"), f.count("*").alias("firings"))
    )
    return per_timer.select(
        "correlationId",
        f.lit("FIRED").alias("state"),
        f.lit(None).cast("timestamp").alias("deadline"),
        "last.*",
        "firings",
        f.col("last.firedPosition").alias("lastPosition"),
    )


def keep_timers(spark: SparkSession, options: JobOptions) -> None:
    """Bring ``options.table`` up to what the Log has."""
    known_to = open_table(spark, options.table, TABLE_COLUMNS, cluster_by="correlationId")
    source = starting_at({"entryTypes": ENTRY_TYPES} | options.source, known_to)
    entries = beyond(read_log(spark, source, LOG_COLUMNS), known_to)

    def on_batch(batch: DataFrame, batch_id: int) -> None:
        merge(
            timers(batch), options.table, "correlationId", ON_MATCH, (f"timers-{query_id(batch)}", batch_id)
        )

    run_batches(entries, "timers", options, on_batch)


def main() -> None:
    made = parser(
        "timers",
        "Keep a Delta table of the timers that fired: when, at which position, in which leadership term.",
        "python -m jobs.timers --cluster-dir c1/member-0 --table delta/timers",
    )
    add_table(made)
    options = options_of(made)
    keep_timers(start("timers", options), options)


if __name__ == "__main__":
    run_main(main)
