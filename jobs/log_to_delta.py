"""The whole committed Log as a Delta table, one row an entry, appended exactly once.

Each batch is one commit that names query and batch, so a batch that is repeated after a crash is skipped.
Without its checkpoint the job goes on after what the table already holds.
"""

from jobs.command import run_main
from jobs.keeping import run_table
from jobs.schemas import LOG
from jobs.table_job import TableJob


def log_job() -> TableJob:
    """The table of the Log, as it is kept."""
    return TableJob("log_to_delta", LOG)


def main() -> None:
    run_table(
        "log_to_delta",
        "Keep a Delta table of the committed Log: one row per entry, each exactly once.",
        "python -m jobs.log_to_delta --dir c1/member-0 --table delta/log",
        log_job,
    )


if __name__ == "__main__":
    run_main(main)
