"""The whole committed Log as a Delta table, one row an entry, appended exactly once.

Each batch is one commit that names query and batch, so a batch that is repeated after a crash is skipped.
Without its checkpoint the job goes on after what the table already holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.command import add_table, options_of, parser, run_main
from jobs.delta_rs import keep_log
from jobs.delta_table import append
from jobs.keeping import TableJob, keep_table
from jobs.log_table import DELTA_RS, SPARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from jobs.delta_table import Commit


def log_job() -> TableJob:
    """The table of the Log, as it is kept."""
    from jobs.schemas import LOG

    def update(entries: DataFrame, table: str, commit: Commit, found: list[dict[str, Any]]) -> None:
        append(entries, table, commit)

    return TableJob("log_to_delta", LOG, (), (), lambda entries: entries, update, progress="endPosition")


def main() -> None:
    made = parser(
        "log_to_delta",
        "Keep a Delta table of the committed Log, one row an entry, each exactly once.",
        "python -m jobs.log_to_delta --cluster-dir c1/member-0 --table delta/log",
    )
    add_table(made)
    made.add_argument(
        "--writer",
        choices=(SPARK, DELTA_RS),
        default=SPARK,
        help=f"who writes the table: {SPARK} (the default), or {DELTA_RS}, which needs no Spark and no Java; "
        "a table stays with the writer that made it",
    )
    options = options_of(made)
    if options.arguments.writer == DELTA_RS:
        keep_log("log_to_delta", options)
    else:
        keep_table(options, log_job)


if __name__ == "__main__":
    run_main(main)
