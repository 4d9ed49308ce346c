"""Timers as a Delta table: one row a correlation id, pending, cancelled or fired.

The Log says that a timer fired; that it was scheduled, and for when, is in snapshots only. So a timer is

- ``SCHEDULED`` when the newest snapshot has it and it has not fired since,
- ``CANCELLED`` when a later snapshot has it no more and it has not fired in between,
- ``FIRED`` otherwise. Its deadline is known when the newest snapshot before had it, and it fired once since,
  not before that deadline: else it was set again.

Timers that are set and fire between two snapshots have no deadline here; ``spark_connector.replay_service``
has all of them.
"""

from contextlib import closing

from jobs.command import run_main
from jobs.delta_table import Missing
from jobs.keeping import run_table
from jobs.schemas import PENDING, SNAPSHOT, TIMERS
from jobs.table_job import Found, TableJob
from spark_connector.options.cluster_options import SourceOptions

LOG_COLUMNS = ("position", "leadershipTermId", "timestamp", "correlationId", "entryType")
ENTRY_TYPES = ("TIMER",)

# When a row last heard of its timer. A snapshot comes before an entry that begins at its log position. One
# that is read again counts as new: there may be a later one beside it, which does not have the timer.
_HEARD = "greatest(2 * {0}.firedPosition + 1, 2 * {0}.pendingPosition)"
_HAS_DEADLINE = f"2 * s.pendingPosition >= {_HEARD.format('t')}"
_IS_NEWER = f"({_HEARD.format('s')} > {_HEARD.format('t')} OR coalesce({_HAS_DEADLINE}, FALSE))"
_FIRED_LATER = "s.firedPosition > coalesce(t.firedPosition, -1)"

NO_SNAPSHOT = (1 << 63) - 1


def on_match(first_snapshot: int = NO_SNAPSHOT) -> dict[str, str]:
    """What a batch adds to a known timer, which is the table's before the batch's ``first_snapshot``."""
    is_the_known = (
        f"t.state = 'SCHEDULED' AND s.firings = 1 AND s.firedPosition < {first_snapshot} "
        "AND t.deadline <= s.firedAt"
    )
    return {
        "state": f"CASE WHEN {_IS_NEWER} THEN s.state ELSE t.state END",
        "deadline": f"CASE WHEN NOT {_IS_NEWER} THEN t.deadline "
        f"WHEN {_HAS_DEADLINE} THEN s.deadline "
        f"WHEN {is_the_known} THEN t.deadline END",
        **{
            column: f"CASE WHEN {_FIRED_LATER} THEN s.{column} ELSE t.{column} END"
            for column in ("firedPosition", "firedAt", "firedTermId")
        },
        "firings": "t.firings + s.firings",
        "lastPosition": "greatest(t.lastPosition, s.lastPosition)",
        "pendingPosition": "greatest(t.pendingPosition, s.pendingPosition)",
    }


def on_match_and_missing(found: Found) -> tuple[dict[str, str], Missing | None]:
    """What a batch adds to timers that the table knows, and what becomes of those that it says nothing of."""
    snapshots = [entry["position"] for entry in found if entry["entryType"] == SNAPSHOT]
    is_gone = f"t.state = 'SCHEDULED' AND t.pendingPosition < {max(snapshots, default=-1)}"
    missing = Missing(is_gone, {"state": "'CANCELLED'"}) if snapshots else None
    return on_match(min(snapshots, default=NO_SNAPSHOT)), missing


class TimersOfSnapshots:
    """Timers of members' snapshots, each once; one written late comes with a later batch."""

    def __init__(self, source: dict[str, str]) -> None:
        """Raises ConfigurationError for options of a source that are none."""
        self._options = SourceOptions.parse(source)
        self._taken = -1

    def __call__(self, is_first: bool, end: int) -> Found:
        """Raises NotAClusterDirectory, LogDamaged, and TimedOut when no member answers."""
        from spark_connector.snapshots.snapshot_copies import snapshots_of
        from spark_connector.snapshots.snapshot_rows import pending_timers

        with closing(snapshots_of(self._options)) as snapshots:
            taken = list(pending_timers(snapshots, self._taken, end))
        found: Found = []
        for position, pending in taken:
            self._taken = position
            found.append({"entryType": SNAPSHOT, "position": position})
            found += [
                {
                    "entryType": PENDING,
                    "position": position,
                    "correlationId": timer.correlation_id,
                    "timestamp": timer.deadline,
                }
                for timer in pending
            ]
        return found


def timers_job() -> TableJob:
    """The table of timers, as it is kept."""
    from jobs.reductions import TIMER_REDUCTION

    return TableJob(
        "timers",
        TIMERS,
        LOG_COLUMNS,
        ENTRY_TYPES,
        TIMER_REDUCTION,
        on_match=on_match_and_missing,
        from_snapshots=TimersOfSnapshots,
    )


def main() -> None:
    run_table(
        "timers",
        "Keep a Delta table of the timers: pending, cancelled or fired, their deadlines, when they fired.",
        "python -m jobs.timers --dir c1/member-0 --table delta/timers",
        timers_job,
    )


if __name__ == "__main__":
    run_main(main)
