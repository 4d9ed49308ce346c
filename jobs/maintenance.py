"""Upkeep of Delta tables: many small files made into few (OPTIMIZE), files of old versions deleted (VACUUM).

Of two commits that exclude each other, one of a job and one of this, the later one is made again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cluster import ConfigurationError
from jobs.command import run_main, say
from jobs.delta_table import delta_table, retried
from jobs.upkeep import parser, session_of, tables_meant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOURS_MIN = 168.0  # what Delta itself allows: longer than any reader or writer of an old version takes


def maintain(spark: SparkSession, table: str, retained_hours: float, report: Callable[[str], None]) -> None:
    """Compact the files of ``table``, clustered by its key, and delete those of versions that are too old."""
    (optimized,) = retried(lambda: delta_table(spark, table).optimize().executeCompaction().collect())
    metrics = optimized.metrics
    delta_table(spark, table).vacuum(retained_hours)
    report(
        f"{table}: {metrics.numFilesRemoved} files made into {metrics.numFilesAdded}, "
        f"versions older than {retained_hours:g} hours deleted"
    )


def retained(text: str) -> float:
    """Hours, checked. Raises ConfigurationError for fewer than Delta allows."""
    hours = float(text) if text.replace(".", "", 1).isdecimal() else -1
    if hours < HOURS_MIN:
        raise ConfigurationError(
            f"--retain-hours is {text!r}; expected {HOURS_MIN:g} at least: versions that streams, queries "
            "and as_of still read would go"
        )
    return hours


def main() -> None:
    made = parser(
        "maintenance",
        "Compact the small files of Delta tables, and delete the files of old versions.",
        "python -m jobs.maintenance --tables delta/all",
    )
    made.add_argument(
        "--retain-hours",
        metavar="N",
        default=f"{HOURS_MIN:g}",
        help="how many hours old versions are kept (default: %(default)s)",
    )
    given = made.parse_args()
    hours = retained(given.retain_hours)
    spark = session_of("maintenance", given)
    for table in tables_meant(spark, given):
        maintain(spark, table, hours, say)


if __name__ == "__main__":
    run_main(main)
