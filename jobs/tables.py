"""All tables in one query: the Log is read once for what its entries say in each of them.

The folder of the tables has one checkpoint for all. A crash between two of them repeats the batch: tables
that have it pass over it.
"""

from jobs.command import check_is_no_table, parser, run_main, table_place
from jobs.delta_table import is_name
from jobs.keeping import keep_by_its_writer, writing_options
from jobs.log_to_delta import log_job
from jobs.sessions import sessions_job
from jobs.table_job import TableJob
from jobs.terms import terms_job
from jobs.timers import timers_job

TABLES = ("log", "sessions", "timers", "leadership_terms")


def tables_in(place: str) -> dict[str, TableJob]:
    """The jobs of all tables by where they lie in ``place``, a folder or ``spark_catalog.schema``."""
    jobs = (log_job(), sessions_job(), timers_job(), terms_job())
    if is_name(place):
        return {table_place(f"{place}.{job.layout.name}"): job for job in jobs}
    return {f"{place.rstrip('/')}/{job.layout.name}": job for job in jobs}


def main() -> None:
    made = parser(
        "tables",
        "Keep the Delta tables of the Log, its sessions, timers and leadership terms, reading the Log once.",
        "python -m jobs.tables --dir c1/member-0 --tables delta/all",
    )
    made.add_argument(
        "--tables",
        dest="table",
        metavar="DIR",
        required=True,
        help="folder of the tables log, sessions, timers and leadership_terms, or spark_catalog.SCHEMA; "
        "made if missing",
    )
    options = writing_options(made)
    check_is_no_table(options.table)
    keep_by_its_writer("tables", tables_in(options.table), options)


if __name__ == "__main__":
    run_main(main)
