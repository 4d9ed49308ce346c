"""The whole committed Log as a Delta table, one row an entry, appended exactly once.

Spark writes the batch number into Delta's own commit, so a batch that is repeated after a crash is skipped
there. Without its checkpoint the job goes on behind what the table already holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.command import add_table, options_of, parser, run_main
from jobs.merge import create_table, high_water
from jobs.session import spark_session
from jobs.streaming import read_log, run, starting_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.command import JobOptions

# Readers skip files by these columns; payloads and the rest need no statistics.
PROPERTIES = {
    "delta.dataSkippingStatsColumns": "position,endPosition,leadershipTermId,timestamp,clusterSessionId",
}


def log_to_delta(spark: SparkSession, options: JobOptions) -> None:
    """Append to ``options.table`` what the Log has beyond it."""
    rows = read_log(spark, options.source)
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in rows.schema.fields)
    create_table(spark, options.table, columns, properties=PROPERTIES)
    source = starting_at(options.source, high_water(spark, options.table, "endPosition"))
    rows = read_log(spark, source)
    writer = rows.writeStream.queryName("log_to_delta").format("delta").outputMode("append")
    run(writer.option("path", options.table), options)


def main() -> None:
    made = parser(
        "log_to_delta",
        "Keep a Delta table of the committed Log, one row an entry, each exactly once.",
        "python -m jobs.log_to_delta --cluster-dir c1/member-0 --table delta/log",
    )
    add_table(made)
    options = options_of(made)
    log_to_delta(spark_session("log_to_delta", options.master, options.settings), options)


if __name__ == "__main__":
    run_main(main)
