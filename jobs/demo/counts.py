"""How many entries of each kind there are, seen from three sides that know nothing of each other.

- *sent*: what the airlines and the sink had acknowledged, and what follows from it: one timer a flight, an
  opening and a closing a session, a leadership term and one more for each change of leader;
- *Log*: what ``LogReader`` finds in the committed Log;
- *Delta*: what the tables hold.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from jobs.demo.flights import MAGIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FLIGHTS = "flights sent"
ANSWERS = "statistics answered"
OTHER_MESSAGES = "other messages"
TIMERS = "timers fired"
SESSIONS = "sessions opened and closed"
TERMS = "leadership terms"
ACTIONS = "control actions"

KINDS = (FLIGHTS, ANSWERS, TIMERS, SESSIONS, TERMS, ACTIONS, OTHER_MESSAGES)

KIND_OF_ENTRY_TYPE = {
    "TIMER": TIMERS,
    "SESSION_OPEN": SESSIONS,
    "SESSION_CLOSE": SESSIONS,
    "CLUSTER_ACTION": ACTIONS,
    "NEW_LEADERSHIP_TERM": TERMS,
}


def of_batch(batch: pa.RecordBatch) -> Counter[str]:
    """The kinds of the entries of a record batch with columns ``entryType`` and ``payload``."""
    counts: Counter[str] = Counter()
    prefixes = pc.binary_slice(batch["payload"].cast(pa.binary()), 0, len(MAGIC))
    table = pa.table({"entryType": batch["entryType"].cast(pa.string()), "prefix": prefixes})
    for row in table.group_by(["entryType", "prefix"]).aggregate([([], "count_all")]).to_pylist():
        counts[_kind(row["entryType"], row["prefix"])] += row["count_all"]
    return counts


def of_table(log: DataFrame) -> Counter[str]:
    """The kinds of the rows of the Delta table of the Log."""
    from pyspark.sql import functions as f

    prefix = f.substring("payload", 1, len(MAGIC)).alias("prefix")
    counts: Counter[str] = Counter()
    for row in log.groupBy("entryType", prefix).count().collect():
        counts[_kind(row[0], None if row[1] is None else bytes(row[1]))] += row[2]
    return counts


def _kind(entry_type: str, prefix: bytes | None) -> str:
    """Of messages flights begin with their magic, and statistics are JSON objects."""
    if entry_type != "SESSION_MESSAGE":
        return KIND_OF_ENTRY_TYPE[entry_type]
    if prefix == MAGIC:
        return FLIGHTS
    return ANSWERS if prefix and prefix[:1] == b"{" else OTHER_MESSAGES


def of_senders(flights: int, answers: int, sessions: int, leader_changes: int) -> Counter[str]:
    """What the acknowledged ``flights`` and ``answers`` in so many ``sessions`` must have left in the Log."""
    return Counter(
        {
            FLIGHTS: flights,
            ANSWERS: answers,
            TIMERS: flights,
            SESSIONS: 2 * sessions,
            TERMS: 1 + leader_changes,
        }
    )
