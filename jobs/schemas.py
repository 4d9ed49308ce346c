"""The Delta tables that the jobs keep, whoever writes them: the columns' comments are their documentation.

``DESCRIBE TABLE`` shows the comments. A release may add columns: a table that lacks one gets it when a job
opens it, with NULL in the rows that are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from cluster.errors import ConfigurationError
from spark_connector.columns import Columns, struct_type
from spark_connector.schema import ROW_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

T = TypeVar("T")
WRITER = "cluster.writer"  # property of a table: who keeps it, SPARK unless it is there
SPARK, DELTA_RS = "spark", "delta-rs"

# What makes a table that is merged into cheap to change, and its changes a stream (``readChangeFeed``).
MERGED = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}


@dataclass(frozen=True, slots=True)
class TableLayout:
    """What a table is made with."""

    name: str  # under which ``jobs.tables`` keeps it
    comment: str
    key: str  # one row for each of its values
    columns: Columns
    progress: str = "lastPosition"  # the column whose largest value says how far in the Log rows come from
    properties: dict[str, str] = field(default_factory=lambda: MERGED)  # where Spark writes it

    @property
    def schema(self) -> StructType:
        """The columns in Spark's words."""
        return struct_type(self.columns)

    def lacking(
        self, table: str, there: Mapping[str, T], wanted: Mapping[str, T], shown: Callable[[T], str] = str
    ) -> list[str]:
        """The columns that an earlier release has made ``table`` without; both are types by their names.

        Raises ConfigurationError for a table of another layout.
        """
        name = next((name for name in (self.key, self.progress) if name not in there), None)
        if name is not None:
            raise ConfigurationError(
                f"table {table} has no column {name}, so it is none of {self.name}; it has {', '.join(there)}"
            )
        for name, kind in wanted.items():
            if (found := there.get(name, kind)) != kind:
                raise ConfigurationError(
                    f"column {name} of table {table} is {shown(found)}; expected {shown(kind)}"
                )
        return [name for name in wanted if name not in there]


LOG = TableLayout(
    "log",
    "The committed Log, one row an entry, in the order of position.",
    "position",
    ROW_COLUMNS,
    progress="endPosition",
    # Readers skip files by these columns; payloads and the rest need no statistics.
    properties={
        "delta.dataSkippingStatsColumns": "position,endPosition,leadershipTermId,timestamp,clusterSessionId",
    },
)

_LAST_POSITION = {"lastPosition": ("BIGINT", "position of the newest entry that this row has taken in")}

SESSIONS = TableLayout(
    "sessions",
    "Cluster sessions, one row each: opened and closed, by whom, how much was sent.",
    "clusterSessionId",
    {
        "clusterSessionId": ("BIGINT", "the session"),
        "state": ("STRING", "OPEN or CLOSED"),
        "openPosition": ("BIGINT", "position of the SESSION_OPEN; NULL: it was purged from the Log"),
        "openedAt": ("TIMESTAMP", "cluster time of the opening"),
        "openTermId": ("BIGINT", "leadership term of the opening"),
        "correlationId": ("BIGINT", "correlation id of the client's connect request"),
        "responseStreamId": ("INT", "stream that the client listens on"),
        "responseChannel": ("STRING", "channel that the client listens on"),
        "encodedPrincipal": ("BINARY", "who the authenticator says the client is"),
        "messages": ("BIGINT", "messages of the session in the Log; without those that were purged"),
        "bytes": ("BIGINT", "bytes of their payloads"),
        "lastActivityAt": ("TIMESTAMP", "cluster time of the last message, or of the opening"),
        "closePosition": ("BIGINT", "position of the SESSION_CLOSE"),
        "closedAt": ("TIMESTAMP", "cluster time of the closing"),
        "closeTermId": ("BIGINT", "leadership term of the closing"),
        "closeReason": ("STRING", "CLIENT_ACTION, SERVICE_ACTION or TIMEOUT"),
        **_LAST_POSITION,
    },
)

# Entry types of what stands for snapshots: a snapshot, at its log position, and a timer that it has, whose
# timestamp is the deadline.
SNAPSHOT, PENDING = "SNAPSHOT", "PENDING_TIMER"

TIMERS = TableLayout(
    "timers",
    "Timers, one row a correlation id: pending, cancelled or fired, with its deadline and its latest firing.",
    "correlationId",
    {
        "correlationId": ("BIGINT", "the timer's id, which its service chose"),
        "state": ("STRING", "SCHEDULED and CANCELLED as snapshots say, FIRED as the Log says"),
        "deadline": ("TIMESTAMP", "cluster time that it is or was due; NULL: no snapshot says"),
        "firedPosition": ("BIGINT", "position of the latest TIMER entry"),
        "firedAt": ("TIMESTAMP", "cluster time of the latest firing"),
        "firedTermId": ("BIGINT", "leadership term of the latest firing"),
        "firings": ("BIGINT", "how often timers of this id fired; without what was purged"),
        **_LAST_POSITION,
        "pendingPosition": ("BIGINT", "log position of the newest snapshot in which it was pending"),
    },
)

TERMS = TableLayout(
    "leadership_terms",
    "Leadership terms, one row each: who led, from where, for how many bytes and how long.",
    "leadershipTermId",
    {
        "leadershipTermId": ("BIGINT", "the term"),
        "state": ("STRING", "CURRENT while no newer term is known, else ENDED"),
        "leaderMemberId": ("INT", "the member that led it; NULL: its beginning was purged"),
        "termBaseLogPosition": ("BIGINT", "position where the term begins"),
        "logSessionId": ("INT", "session id of the leader's log publication"),
        "timeUnit": ("STRING", "unit of cluster time in the term"),
        "appVersion": ("INT", "semantic version of the services, as one number"),
        "startPosition": ("BIGINT", "position of the NEW_LEADERSHIP_TERM"),
        "startedAt": ("TIMESTAMP", "cluster time of the NEW_LEADERSHIP_TERM"),
        "endPosition": ("BIGINT", "position after the term's last entry, excluded"),
        "endedAt": ("TIMESTAMP", "cluster time of the term's last entry"),
        "length": ("BIGINT", "bytes from termBaseLogPosition to endPosition"),
        "durationMs": ("BIGINT", "milliseconds from startedAt to endedAt"),
        "entries": ("BIGINT", "entries of the term"),
        **_LAST_POSITION,
    },
)

# Of a term's row, what its NEW_LEADERSHIP_TERM says.
OPENING_COLUMNS = (
    "leaderMemberId",
    "termBaseLogPosition",
    "logSessionId",
    "timeUnit",
    "appVersion",
    "startPosition",
    "startedAt",
)


def of_all(needs: list[tuple[str, ...]]) -> tuple[str, ...]:
    """What all tables together need, in which () stands for everything."""
    return tuple(dict.fromkeys(name for need in needs for name in need)) if all(needs) else ()
