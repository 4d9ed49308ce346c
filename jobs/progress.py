"""What a running query does, as Spark's listener reports it: a line a batch, and the sum of all."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

LAST_EVENT_S = 10.0  # how long Spark may take to deliver what it has queued for listeners


class QueryProgress(StreamingQueryListener):
    """Says a line a batch with rows of query ``name``, and adds them up; in a thread of Spark's."""

    def __init__(self, name: str, say: Callable[[str], None]) -> None:
        self._name = name
        self._say = say
        self._run_id = ""
        self._ended = threading.Event()
        self._rows = self._milliseconds = 0
        self._first: tuple[int, int] | None = None  # rows and milliseconds of the first batch

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Spark calls this before ``start`` returns."""
        if event.name == self._name:
            self._run_id = str(event.runId)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        if str(progress["runId"]) != self._run_id or not progress["numInputRows"]:
            return
        self._rows += progress["numInputRows"]
        self._milliseconds += progress["durationMs"]["triggerExecution"]
        self._first = self._first or (self._rows, self._milliseconds)
        self._say(line_of(progress))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        if str(event.runId) == self._run_id:
            self._ended.set()

    def await_end(self) -> None:
        """Wait until a query that has stopped has reported everything."""
        self._ended.wait(LAST_EVENT_S)

    def closing_line(self, how: str) -> str:
        """How much and how fast, also without the first batch, in which the JVM loads."""
        line = f"{self._name}: {how}, {self._rows:,} rows{_rate(self._rows, self._milliseconds)}"
        rows, milliseconds = self._first or (0, 0)
        if milliseconds < self._milliseconds:
            line += f", after the first batch{_rate(self._rows - rows, self._milliseconds - milliseconds)}"
        return line


@contextmanager
def following(spark: SparkSession, name: str, say: Callable[[str], None]) -> Iterator[QueryProgress]:
    """Follows the query that is started inside under that name."""
    progress = QueryProgress(name, say)
    spark.streams.addListener(progress)
    try:
        yield progress
    finally:
        spark.streams.removeListener(progress)


def line_of(progress: Any) -> str:
    """What one batch did: rows, time, rate, and how far in the Log it got."""
    rows, milliseconds = progress["numInputRows"], progress["durationMs"]["triggerExecution"]
    end = progress["sources"][0]["endOffset"]
    end = json.loads(end) if isinstance(end, str) else end
    return (
        f"{progress['name']}: batch {progress['batchId']}, {rows:,} rows in {milliseconds / 1000:.1f} s"
        f"{_rate(rows, milliseconds)}, log position {end['position']:,}"
    )


def _rate(rows: int, milliseconds: int) -> str:
    return f" ({rows * 1000 // milliseconds:,} rows/s)" if milliseconds else ""
