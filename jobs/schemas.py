"""The Delta tables that the jobs keep: one StructType each, whose comments are the table's documentation.

``DESCRIBE TABLE`` shows the comments. A release may add columns: a table that lacks one gets it when a job
opens it, with NULL in the rows that are there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from jobs import log_table
from spark_connector.schema import ROW_COLUMNS

# What makes a table that is merged into cheap to change, and its changes a stream (``readChangeFeed``).
MERGED = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}


@dataclass(frozen=True, slots=True)
class TableLayout:
    """What a table is made with."""

    name: str  # under which ``jobs.tables`` keeps it
    comment: str
    key: str  # one row for each of its values
    schema: StructType
    progress: str = "lastPosition"  # the column whose largest value says how far in the Log rows come from
    properties: dict[str, str] = field(default_factory=lambda: MERGED)


def _column(name: str, data_type: DataType, comment: str) -> StructField:
    return StructField(name, data_type, nullable=True, metadata={"comment": comment})


LONG, INT, STRING, BINARY, TIME = LongType(), IntegerType(), StringType(), BinaryType(), TimestampType()

_TYPES: dict[str, DataType] = {
    "BIGINT": LONG,
    "INT": INT,
    "STRING": STRING,
    "BINARY": BINARY,
    "TIMESTAMP": TIME,
}

LOG = TableLayout(
    log_table.NAME,
    log_table.COMMENT,
    "position",
    StructType(
        [_column(name, _TYPES[ROW_COLUMNS[name]], comment) for name, comment in log_table.COLUMNS.items()]
    ),
    progress="endPosition",
    properties=log_table.PROPERTIES,
)

_LAST_POSITION = _column("lastPosition", LONG, "position of the newest entry that this row has taken in")

SESSIONS = TableLayout(
    "sessions",
    "Cluster sessions, one row each: opened and closed, by whom, how much was sent.",
    "clusterSessionId",
    StructType(
        [
            _column("clusterSessionId", LONG, "the session"),
            _column("state", STRING, "OPEN or CLOSED"),
            _column("openPosition", LONG, "position of the SESSION_OPEN; NULL: it was purged from the Log"),
            _column("openedAt", TIME, "cluster time of the opening"),
            _column("openTermId", LONG, "leadership term of the opening"),
            _column("correlationId", LONG, "correlation id of the client's connect request"),
            _column("responseStreamId", INT, "stream that the client listens on"),
            _column("responseChannel", STRING, "channel that the client listens on"),
            _column("encodedPrincipal", BINARY, "who the authenticator says the client is"),
            _column("messages", LONG, "messages of the session in the Log; without those that were purged"),
            _column("bytes", LONG, "bytes of their payloads"),
            _column("lastActivityAt", TIME, "cluster time of the last message, or of the opening"),
            _column("closePosition", LONG, "position of the SESSION_CLOSE"),
            _column("closedAt", TIME, "cluster time of the closing"),
            _column("closeTermId", LONG, "leadership term of the closing"),
            _column("closeReason", STRING, "CLIENT_ACTION, SERVICE_ACTION or TIMEOUT"),
            _LAST_POSITION,
        ]
    ),
)

TIMERS = TableLayout(
    "timers",
    "Timers, one row a correlation id: pending, cancelled or fired, with its deadline and its latest firing.",
    "correlationId",
    StructType(
        [
            _column("correlationId", LONG, "the timer's id, which its service chose"),
            _column("state", STRING, "SCHEDULED and CANCELLED as snapshots say, FIRED as the Log says"),
            _column("deadline", TIME, "cluster time that it is or was due; NULL: no snapshot says"),
            _column("firedPosition", LONG, "position of the latest TIMER entry"),
            _column("firedAt", TIME, "cluster time of the latest firing"),
            _column("firedTermId", LONG, "leadership term of the latest firing"),
            _column("firings", LONG, "how often timers of this id fired; without what was purged"),
            _LAST_POSITION,
            _column("pendingPosition", LONG, "log position of the newest snapshot in which it was pending"),
        ]
    ),
)

TERMS = TableLayout(
    "leadership_terms",
    "Leadership terms, one row each: who led, from where, for how many bytes and how long.",
    "leadershipTermId",
    StructType(
        [
            _column("leadershipTermId", LONG, "the term"),
            _column("state", STRING, "CURRENT while no newer term is known, else ENDED"),
            _column("leaderMemberId", INT, "the member that led it; NULL: its beginning was purged"),
            _column("termBaseLogPosition", LONG, "position where the term begins"),
            _column("logSessionId", INT, "session id of the leader's log publication"),
            _column("timeUnit", STRING, "unit of cluster time in the term"),
            _column("appVersion", INT, "semantic version of the services, as one number"),
            _column("startPosition", LONG, "position of the NEW_LEADERSHIP_TERM"),
            _column("startedAt", TIME, "cluster time of the NEW_LEADERSHIP_TERM"),
            _column("endPosition", LONG, "position after the term's last entry, excluded"),
            _column("endedAt", TIME, "cluster time of the term's last entry"),
            _column("length", LONG, "bytes from termBaseLogPosition to endPosition"),
            _column("durationMs", LONG, "milliseconds from startedAt to endedAt"),
            _column("entries", LONG, "entries of the term"),
            _LAST_POSITION,
        ]
    ),
)
