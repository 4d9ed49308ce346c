"""An entry of the log as ``LogReader.entries`` yields it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Required, TypedDict, cast

if TYPE_CHECKING:
    import pyarrow as pa


class Entry(TypedDict, total=False):
    """One entry of the committed log: a dictionary from column names to values.

    Every entry has the first six columns; ``entryType`` decides which others it has. With ``columns=`` it has
    only those that you name. Positions and lengths are in bytes of the log.
    """

    position: Required[int]  # where its first frame begins
    endPosition: Required[int]  # after it, exclusive
    leadershipTermId: Required[int]
    entryType: Required[str]  # SESSION_MESSAGE, SESSION_OPEN, SESSION_CLOSE, TIMER, …
    timestamp: Required[datetime]  # UTC
    clusterTime: Required[int]  # in the log's time unit
    clusterSessionId: int
    correlationId: int
    payload: bytes
    responseStreamId: int
    responseChannel: str
    encodedPrincipal: bytes
    closeReason: str
    action: str
    actionFlags: int
    termBaseLogPosition: int
    leaderMemberId: int
    logSessionId: int
    timeUnit: str
    appVersion: int
    # of its first frame, for who names them
    frameFlags: int
    termId: int
    termOffset: int
    frameSessionId: int
    streamId: int
    reservedValue: int


def rows(batch: pa.RecordBatch) -> Iterator[Entry]:
    """The rows of a record batch, each without the columns that it does not have."""
    names = [
        name for name, column in zip(batch.schema.names, batch.columns) if column.null_count < batch.num_rows
    ]
    values = [batch.column(name).to_pylist() for name in names]
    for row in zip(*values):
        yield cast(Entry, {name: value for name, value in zip(names, row) if value is not None})
