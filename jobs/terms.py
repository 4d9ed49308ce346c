"""Leadership terms as a Delta table: who led, from which position, for how many bytes and how long.

One row a leadership term. A term ends with its last entry; the newest one goes on, and its row grows with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.command import run_main
from jobs.delta_table import read
from jobs.keeping import run_table
from jobs.schemas import OPENING_COLUMNS, TERMS
from jobs.table_job import TableJob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOG_COLUMNS = (
    "position",
    "endPosition",
    "leadershipTermId",
    "entryType",
    "timestamp",
    "termBaseLogPosition",
    "leaderMemberId",
    "logSessionId",
    "timeUnit",
    "appVersion",
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
    """``known``, rows of the table, brought up to ``entries``: every term whole, with the table's columns.

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


def terms_job() -> TableJob:
    """The table of leadership terms, as it is kept."""
    from jobs import reductions

    def rows(entries: DataFrame) -> DataFrame:
        none = entries.sparkSession.createDataFrame([], TERMS.schema)
        return terms(none, entries).select(*TERMS.schema.names)

    def merged(entries: DataFrame, table: str) -> DataFrame:
        # One row a term is little; collected, it is not computed again when MERGE reads its source twice.
        spark = entries.sparkSession
        updated = terms(read(spark, table), entries).select(*TERMS.schema.names).collect()
        return spark.createDataFrame(updated, TERMS.schema)

    return TableJob(
        "terms",
        TERMS,
        rows,
        LOG_COLUMNS,
        reduced=lambda entries, known: reductions.terms(known(), entries),
        on_match=lambda found: (ON_MATCH, None),
        merged=merged,
    )


def main() -> None:
    run_table(
        "terms",
        "Keep a Delta table of leadership terms: leader, base position, length, duration.",
        "python -m jobs.terms --dir c1/member-0 --table delta/leadership_terms",
        terms_job,
    )


if __name__ == "__main__":
    run_main(main)
