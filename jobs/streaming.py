"""How every job runs its query: the Log as a stream, batches, a line of progress each, an orderly end."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jobs.command import JobOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_SECONDS = 1


def read_log(spark: SparkSession, source: dict[str, str], columns: str | None = None) -> DataFrame:
    """The committed Log as a stream. ``columns``, as DDL, leaves out what the job does not use."""
    reader = spark.readStream.format("cluster").options(**source)
    if columns is not None:
        reader = reader.schema(columns)
    return reader.load()


def starting_at(source: dict[str, str], position: int | None) -> dict[str, str]:
    """``source`` with a start at ``position``, unless the user named one; ``None`` means the log's beginning.

    The start matters only when there is no checkpoint; with one, Spark goes on where it stopped.
    """
    if "startingOffsets" in source:
        return source
    where = "earliest" if position is None else json.dumps({"position": position})
    return source | {"startingOffsets": where}


def run_batches(
    rows: DataFrame, name: str, options: JobOptions, on_batch: Callable[[DataFrame, int], None]
) -> None:
    """Hand each micro-batch to ``on_batch(batch, batch_id)`` until the trigger is done or the run stopped."""
    run(rows.writeStream.queryName(name).foreachBatch(on_batch), options)


def run(writer: Any, options: JobOptions) -> None:
    """Start ``writer`` and stay until its query ends; Ctrl-C and SIGTERM stop it after its current step.

    Raises what made the query fail.
    """
    query = writer.option("checkpointLocation", options.checkpoint).trigger(**options.trigger).start()
    with _stopping(query):
        for line in progress_lines(query):
            options.say(line)


def progress_lines(query: StreamingQuery) -> Iterator[str]:
    """One line for each batch with rows, as they complete, and a closing one; raises the query's failure."""
    seen, rows, milliseconds = -1, 0, 0
    active = True
    while active:
        active = not query.awaitTermination(POLL_SECONDS)
        for progress in query.recentProgress:
            if progress["batchId"] <= seen or not progress["numInputRows"]:
                continue
            seen = progress["batchId"]
            rows += progress["numInputRows"]
            milliseconds += progress["durationMs"]["triggerExecution"]
            yield progress_line(progress)
    yield f"{query.name}: done, {rows:,} rows{_rate(rows, milliseconds)}"


def progress_line(progress: Any) -> str:
    """What one batch did: rows, time, rate, and how far in the log it got."""
    rows, milliseconds = progress["numInputRows"], progress["durationMs"]["triggerExecution"]
    end = progress["sources"][0]["endOffset"]
    end = json.loads(end) if isinstance(end, str) else end
    return (
        f"{progress['name']}: batch {progress['batchId']}, {rows:,} rows in {milliseconds / 1000:.1f} s"
        f"{_rate(rows, milliseconds)}, log position {end['position']:,}"
    )


def _rate(rows: int, milliseconds: int) -> str:
    return f" ({rows * 1000 // milliseconds:,} rows/s)" if milliseconds else ""


@contextmanager
def _stopping(query: StreamingQuery) -> Iterator[None]:
    """Stop ``query`` on the way out however that is, and treat SIGTERM as Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
        query.stop()
