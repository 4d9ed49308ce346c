"""How every job runs its query: the Log as a stream, batches, a line of progress each, an orderly end."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, current_thread, main_thread
from typing import TYPE_CHECKING, Any

from jobs.command import NOT_UP, JobOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_SECONDS = 1

# Spark gives a query's Python process ten seconds to come up, which no setting changes, and a machine that is
# busy may need more. Nothing has been read then, and the query may simply be started again.
STARTS = 3


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

    Raises what made the query fail, and KeyboardInterrupt once an interrupted one has stopped.
    """
    writer = writer.option("checkpointLocation", options.checkpoint).trigger(**options.trigger)
    with _interrupts() as interrupted:
        for starts_left in reversed(range(STARTS)):
            query = writer.start()
            try:
                for line in progress_lines(query, interrupted):
                    options.say(line)
                break
            except Exception as error:
                if not starts_left or not came_up_too_late(query, error):
                    raise
                options.say(f"{query.name}: its Python process took more than Spark's ten seconds, once more")
            finally:
                query.stop()
        if interrupted.is_set():
            raise KeyboardInterrupt


def came_up_too_late(query: StreamingQuery, error: Exception) -> bool:
    """Whether ``query`` failed with ``error`` before it did anything, for want of its Python process."""
    return NOT_UP in str(error) and not query.recentProgress


def progress_lines(query: StreamingQuery, interrupted: Event) -> Iterator[str]:
    """One line for each batch with rows, as they complete, and a closing one; raises the query's failure.

    Most of a first batch's time goes into starting: the JVM loads and compiles what it runs for the first
    time. So the closing line gives the rate after it too.
    """
    seen, rows, milliseconds = -1, 0, 0
    first: tuple[int, int] | None = None
    active = True
    while active and not interrupted.is_set():
        active = not query.awaitTermination(POLL_SECONDS)
        for progress in query.recentProgress:
            if progress["batchId"] <= seen or not progress["numInputRows"]:
                continue
            seen = progress["batchId"]
            rows += progress["numInputRows"]
            milliseconds += progress["durationMs"]["triggerExecution"]
            first = first or (rows, milliseconds)
            yield progress_line(progress)
    end = "stopped" if interrupted.is_set() else "done"
    line = f"{query.name}: {end}, {rows:,} rows{_rate(rows, milliseconds)}"
    if first is not None and milliseconds > first[1]:
        line += f", after the first batch{_rate(rows - first[0], milliseconds - first[1])}"
    yield line


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
def _interrupts() -> Iterator[Event]:
    """An event that SIGINT and SIGTERM set, while inside, instead of breaking into a call to the JVM."""
    interrupted = Event()
    if current_thread() is not main_thread():  # signals are not its business
        yield interrupted
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = [signal.signal(number, lambda *_: interrupted.set()) for number in numbers]
    try:
        yield interrupted
    finally:
        for number, handler in zip(numbers, previous):
            signal.signal(number, handler)
