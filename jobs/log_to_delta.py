"""The whole committed Log as a Delta table, one row an entry, appended exactly once.

Spark writes the batch number into Delta's own commit, so a batch that is repeated after a crash is skipped
there. Without its checkpoint the job goes on after what the table already holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.command import add_table, options_of, parser, run_main, start
from jobs.merge import beyond, open_table
from jobs.streaming import read_log, run, starting_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# Readers skip files by these columns; payloads and the rest need no statistics.
PROPERTIES = {
    "delta.dataSkippingStatsColumns": "position,endPosition,leadershipTermId,timestamp,clusterSessionId",
}


def appending(spark: SparkSession, source: dict[str, str], table: str) -> DataStreamWriter:
    """The write of the Log after what ``table`` holds; the checkpoint and the trigger are the caller's."""
    schema = read_log(spark, source).schema
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
    known_to = open_table(spark, table, columns, properties=PROPERTIES, progress="endPosition")
    entries = beyond(read_log(spark, starting_at(source, known_to)), known_to, "endPosition")
    writer = entries.writeStream.queryName("log_to_delta").format("delta").outputMode("append")
    return writer.option("path", table)


def main() -> None:
    made = parser(
        "log_to_delta",
        "Keep a Delta table of the committed Log, one row an entry, each exactly once.",
        "python -m jobs.log_to_delta --cluster-dir c1/member-0 --table delta/log",
    )
    add_table(made)
    options = options_of(made)
    run(appending(start("log_to_delta", options), options.source, options.table), options)


if __name__ == "__main__":
    run_main(main)
