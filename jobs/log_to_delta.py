"""The whole committed Log as a Delta table, one row an entry, appended exactly once.

Each batch is one commit that names query and batch, so a batch that is repeated after a crash is skipped.
Without its checkpoint the job goes on after what the table already holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.command import parser, run_main
from jobs.delta_rs import ArrowJob
from jobs.delta_table import append
from jobs.keeping import TableJob, run_table
from jobs.schemas import LOG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from jobs.delta_table import Commit


def log_job() -> TableJob:
    """The table of the Log, as it is kept."""

    def update(entries: DataFrame, table: str, commit: Commit, found: list[dict[str, Any]]) -> None:
        append(entries, table, commit)

    return TableJob("log_to_delta", LOG, (), (), lambda entries: entries, update, progress="endPosition")


def log_arrow_job() -> ArrowJob:
    """The same without Spark."""
    return ArrowJob("log_to_delta", LOG)


def main() -> None:
    made = parser(
        "log_to_delta",
        "Keep a Delta table of the committed Log, one row an entry, each exactly once.",
        "python -m jobs.log_to_delta --cluster-dir c1/member-0 --table delta/log",
    )
    run_table(made, log_job, log_arrow_job)


if __name__ == "__main__":
    run_main(main)
