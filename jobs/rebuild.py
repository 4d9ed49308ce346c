"""Tables made again from the Log, as far as they go: after a mistake in them, or for a column that is new.

A table is overwritten in one commit, so readers see the old rows and then the new ones, and its history
stays. It goes exactly as far in the Log as before, so its job goes on over its checkpoint. The job must not
run meanwhile; if it did, that is an error, and another rebuild makes it good.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cluster import ClusterError, PositionToken
from jobs.command import add_log, check_reads_all, run_main, say, source_of
from jobs.delta_table import latest_version, overwrite
from jobs.history import check_log, newest_version
from jobs.keeping import with_entries
from jobs.table_job import TableJob
from jobs.upkeep import parser, session_of, tables_meant
from spark_connector.log import SourceLog
from spark_connector.options.cluster_options import SourceOptions
from spark_connector.schema import ROW_COLUMNS, ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rebuild(spark: SparkSession, table: str, job: TableJob, source: dict[str, str]) -> PositionToken:
    """Make the rows of ``table`` again; returns how far in the Log it goes.

    Raises DataLoss when the Log's beginning was purged, so that the table has what is nowhere else, and
    ClusterError when another commit came between, ConfigurationError for a table of another log.
    """
    before = latest_version(spark, table)
    newest = newest_version(spark, table)
    log = SourceLog(SourceOptions.parse(source))
    check_log(spark, table, log)
    end = json.dumps({"position": newest.position, "cluster": newest.cluster})
    wanted = source | {"startingOffsets": json.dumps({"position": 0}), "endingOffsets": end}
    if job.entry_types:
        wanted |= {"entryTypes": ",".join(job.entry_types)}
    reader = spark.read.format("cluster").options(**wanted).schema(ddl(job.columns or ROW_COLUMNS))
    token = PositionToken(newest.cluster, newest.position, log.term_before(newest.position))
    found = job.from_snapshots(source)(False, newest.position) if job.from_snapshots else []
    overwrite(job.rows(with_entries(reader.load(), found, job)), table, token.to_text())
    if latest_version(spark, table) != before + 1:
        raise ClusterError(
            f"table {table} was written to while it was rebuilt: stop its job, and rebuild again"
        )
    return token


def main() -> None:
    made = parser(
        "rebuild",
        "Replace the rows of Delta tables by those of the Log, as far as the tables have come.",
        "python -m jobs.rebuild --dir c1/member-0 --tables delta/all",
    )
    add_log(made)
    given = made.parse_args()
    source = source_of(given)
    check_reads_all(source, from_begin=True)
    spark = session_of("rebuild", given)
    for table, job in tables_meant(spark, given).items():
        say(f"{table}: rebuilt up to log position {rebuild(spark, table, job, source).position:,}")


if __name__ == "__main__":
    run_main(main)
