"""Leadership terms as a Delta table: who led, from which position, for how many bytes and how long.

One row a leadership term. A term ends with its last entry; the newest one goes on, and its row grows with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.command import add_table, options_of, parser, run_main, start
from jobs.merge import beyond, merge, name_of, open_table, query_id
from jobs.streaming import read_log, run_batches, starting_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from jobs.command import JobOptions

LOG_COLUMNS = (
    "position BIGINT, endPosition BIGINT, leadershipTermId BIGINT, entryType STRING, timestamp TIMESTAMP, "
    "termBaseLogPosition BIGINT, leaderMemberId INT, logSessionId INT, timeUnit STRING, appVersion INT"
)

TABLE_COLUMNS = (
    "leadershipTermId BIGINT, state STRING, leaderMemberId INT, termBaseLogPosition BIGINT, "
    "logSessionId INT, timeUnit STRING, appVersion INT, startPosition BIGINT, startedAt TIMESTAMP, "
    "endPosition BIGINT, endedAt TIMESTAMP, length BIGINT, durationMs BIGINT, entries BIGINT, "
    "lastPosition BIGINT"
)

OPENING_COLUMNS = (
    "leaderMemberId",
    "termBaseLogPosition",
    "logSessionId",
    "timeUnit",
    "appVersion",
    "startPosition",
    "startedAt",
)

ON_MATCH = {
    column: f"s.{column}"
    for column in (
        "state",
        *OPENING_COLUMNS,
        "endPosition",
        "endedAt",
        "length",
        "durationMs",
        "entries",
        "lastPosition",
    )
}


def partial_terms(entries: DataFrame) -> DataFrame:
    """What ``entries`` say of each leadership term: its opening when among them, its end so far, a count."""
    from pyspark.sql import functions as f

    opening = f.struct(
        *(f.col(column) for column in OPENING_COLUMNS[:-2]),
        f.col("position").alias("startPosition"),
        f.col("timestamp").alias("startedAt"),
    )
    return (
        entries.groupBy("leadershipTermId")
        .agg(
            f.max(f.when(f.col("entryType") == "NEW_LEADERSHIP_TERM", opening)).alias("opening"),
            f.max("endPosition").alias("endPosition"),
            f.max("timestamp").alias("endedAt"),
            f.count("*").alias("entries"),
            f.max("position").alias("lastPosition"),
        )
        .select("leadershipTermId", "opening.*", "endPosition", "endedAt", "entries", "lastPosition")
    )


def terms(known: DataFrame, entries: DataFrame) -> DataFrame:
    """``known``, rows of the table, brought up to ``entries``: every term whole, with ``TABLE_COLUMNS``.

    A term is ``CURRENT`` while none is newer. Both its length and its duration reach from its beginning to
    the end of its last entry; the beginning is unknown where the log's head was purged.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    updates = partial_terms(entries)
    newest = f.max("leadershipTermId").over(Window.partitionBy())
    return (
        known.select(*updates.columns)
        .unionByName(updates)
        .groupBy("leadershipTermId")
        .agg(
            *(f.max(column).alias(column) for column in OPENING_COLUMNS),
            f.max("endPosition").alias("endPosition"),
            f.max("endedAt").alias("endedAt"),
            f.sum("entries").alias("entries"),
            f.max("lastPosition").alias("lastPosition"),
        )
        .withColumn("state", f.when(f.col("leadershipTermId") == newest, "CURRENT").otherwise("ENDED"))
        .withColumn("length", f.col("endPosition") - f.col("termBaseLogPosition"))
        .withColumn("durationMs", f.unix_millis("endedAt") - f.unix_millis("startedAt"))
    )


def keep_terms(spark: SparkSession, options: JobOptions) -> None:
    """Bring ``options.table`` up to what the Log has."""
    known_to = open_table(spark, options.table, TABLE_COLUMNS)
    entries = beyond(read_log(spark, starting_at(options.source, known_to), LOG_COLUMNS), known_to)

    def on_batch(batch: DataFrame, batch_id: int) -> None:
        # One row a term is little; collected, it is not computed again when MERGE reads its source twice.
        known = batch.sparkSession.table(name_of(options.table))
        updated = batch.sparkSession.createDataFrame(
            terms(known, batch).select(*known.columns).collect(), known.schema
        )
        transaction = (f"terms-{query_id(batch)}", batch_id)
        merge(updated, options.table, "leadershipTermId", ON_MATCH, transaction)

    run_batches(entries, "terms", options, on_batch)


def main() -> None:
    made = parser(
        "terms",
        "Keep a Delta table of leadership terms: leader, base position, length, duration.",
        "python -m jobs.terms --cluster-dir c1/member-0 --table delta/leadership_terms",
    )
    add_table(made)
    options = options_of(made)
    keep_terms(start("terms", options), options)


if __name__ == "__main__":
    run_main(main)
