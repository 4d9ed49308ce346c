"""Leadership terms as a Delta table: who led, from which position, for how many bytes and how long.

One row a leadership term. A term ends with its last entry; the newest one goes on, and its row grows with it.
"""

from jobs.command import run_main
from jobs.keeping import run_table
from jobs.schemas import TERMS
from jobs.table_job import TableJob

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

ON_MATCH = {column: f"s.{column}" for column in TERMS.columns if column != TERMS.key}


def terms_job() -> TableJob:
    """The table of leadership terms, as it is kept."""
    from jobs.reductions import TERM_REDUCTION

    return TableJob(
        "terms",
        TERMS,
        LOG_COLUMNS,
        reduction=TERM_REDUCTION,
        is_cumulative=True,
        on_match=lambda found: (ON_MATCH, None),
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
