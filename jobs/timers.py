"""Timers as a Delta table: one row a correlation id, with its latest firing.

The Log says that a timer fired, not that it was scheduled, so ``state`` is always ``FIRED`` and ``deadline``
unknown: ``spark_connector.replay_service`` has them, and format ``cluster-snapshot`` those that are pending.
An id that is scheduled again after firing keeps its row; ``firings`` counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.command import parser, run_main
from jobs.delta_table import merge
from jobs.keeping import TableJob, run_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from jobs.delta_table import Commit

LOG_COLUMNS = ("position", "leadershipTermId", "timestamp", "correlationId", "entryType")
ENTRY_TYPES = ("TIMER",)

ON_MATCH = {
    **{
        column: f"CASE WHEN s.lastPosition > t.lastPosition THEN s.{column} ELSE t.{column} END"
        for column in ("state", "deadline", "firedPosition", "firedAt", "firedTermId")
    },
    "firings": "t.firings + s.firings",
    "lastPosition": "greatest(t.lastPosition, s.lastPosition)",
}


def timers(entries: DataFrame) -> DataFrame:
    """One row per timer that fired in ``entries``, with the columns of its table."""
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


def timers_job() -> TableJob:
    """The table of timers, as it is kept."""
    from jobs.schemas import TIMERS

    def update(entries: DataFrame, table: str, commit: Commit) -> None:
        merge(timers(entries), table, TIMERS.key, ON_MATCH, commit)

    return TableJob("timers", TIMERS, LOG_COLUMNS, ENTRY_TYPES, timers, update)


def main() -> None:
    made = parser(
        "timers",
        "Keep a Delta table of the timers that fired: when, at which position, in which leadership term.",
        "python -m jobs.timers --cluster-dir c1/member-0 --table delta/timers",
    )
    run_table(made, timers_job)


if __name__ == "__main__":
    run_main(main)
