"""How every job runs its query: the Log as a stream, batches, a line of progress each, an orderly end."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Lock, current_thread, main_thread
from typing import TYPE_CHECKING, Any

from cluster import ClusterError
from jobs.command import JVM_ENDED, JobOptions
from spark_connector.schema import ROW_COLUMNS, ddl
from spark_connector.starting import STARTS, came_up_too_late

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POLL_SECONDS = 1


def read_log(spark: SparkSession, source: dict[str, str], columns: Sequence[str] = ()) -> DataFrame:
    """The committed Log as a stream, with all of its columns or those that the job uses."""
    reader = spark.readStream.format("cluster").options(**source)
    return reader.schema(ddl(columns or ROW_COLUMNS)).load()


def starting_at(source: dict[str, str], position: int | None) -> dict[str, str]:
    """``source`` with a start at ``position`` (None: the beginning), unless one is given."""
    if "startingOffsets" in source:
        return source
    where = "earliest" if position is None else json.dumps({"position": position})
    return source | {"startingOffsets": where}


class BatchGate:
    """Lets the batches of ``foreachBatch`` finish before their query is stopped.

    ``query.stop()`` breaks into the batch. Spark then looks in the text of the error, with all its stack
    trace, for what an interrupt looks like, by a regular expression that overflows the thread's own stack
    (Spark 4.2, ``StreamExecution``), and a thousand lines of that are printed.
    """

    def __init__(self) -> None:
        self._inside = Lock()
        self._is_closed = False

    @contextmanager
    def passing(self) -> Iterator[None]:
        """A batch is at work inside. Raises QueryStops once the gate is closed."""
        with self._inside:
            if self._is_closed:
                raise QueryStops
            yield

    def close(self, within_s: float) -> bool:
        """Let no batch in any more; whether the one inside, if any, has finished in that time."""
        self._is_closed = True
        is_empty = self._inside.acquire(timeout=within_s)
        if is_empty:
            self._inside.release()
        return is_empty


def has_ended(spark: SparkSession) -> bool:
    """Whether Spark's JVM is gone, or about to be."""
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())  # type: ignore[union-attr]
    except Exception:  # nobody answers
        return True


class QueryStops(Exception):
    """A batch has begun when its query is to stop: it is repeated when the query starts again."""


def run(
    spark: SparkSession, writer: Any, name: str, options: JobOptions, gate: BatchGate | None = None
) -> None:
    """Start ``writer`` under ``name`` and stay until it ends; Ctrl-C and SIGTERM stop it.

    Its batches pass the ``gate``, if it has one: the batch at work is finished first, unless a second signal
    comes, or Spark is ended, too, as by a signal to all processes of a service. Raises what made the query
    fail, ClusterError where the JVM has ended, and KeyboardInterrupt once an interrupted one has stopped.
    """
    writer = writer.queryName(name).option("checkpointLocation", options.checkpoint)
    writer = writer.trigger(**options.trigger)
    with interrupts() as interrupted:
        try:
            _run(spark, writer, name, options, gate, interrupted)
        except Exception:
            if not has_ended(spark):
                raise
            if interrupted.is_set():
                options.say(f"{name}: stopped together with Spark; the next start repeats the batch at work")
                raise KeyboardInterrupt from None
            raise ClusterError(JVM_ENDED) from None


def _run(
    spark: SparkSession,
    writer: Any,
    name: str,
    options: JobOptions,
    gate: BatchGate | None,
    interrupted: Interrupted,
) -> None:
    from jobs.progress import following

    for starts_left in reversed(range(STARTS)):
        with following(spark, name, options.say) as progress:
            query = writer.start()
            try:
                while not (interrupted.is_set() or query.awaitTermination(POLL_SECONDS)):
                    pass
                break
            except Exception as error:
                if not starts_left or not came_up_too_late(query, error):
                    raise
                options.say(f"{name}: its Python process took more than Spark's ten seconds, once more")
            finally:
                if interrupted.is_set() and gate is not None:
                    _finish_batch(gate, interrupted, name, options)
                query.stop()
                progress.await_end()
    options.say(progress.closing_line("stopped" if interrupted.is_set() else "done"))
    if interrupted.is_set():
        raise KeyboardInterrupt


def _finish_batch(gate: BatchGate, interrupted: Interrupted, name: str, options: JobOptions) -> None:
    """Raises KeyboardInterrupt when it is interrupted once more."""
    if gate.close(POLL_SECONDS):
        return
    options.say(f"{name}: finishes its batch and stops; interrupt once more to leave it unfinished")
    while not gate.close(POLL_SECONDS):
        if interrupted.once_more:
            raise KeyboardInterrupt


class Interrupted(Event):
    """Set by SIGINT or SIGTERM."""

    once_more = False  # by a second one

    def on_signal(self, *_: object) -> None:
        self.once_more = self.is_set()
        self.set()


@contextmanager
def interrupts() -> Iterator[Interrupted]:
    """What SIGINT and SIGTERM set, while inside, instead of breaking into a call to the JVM."""
    interrupted = Interrupted()
    if current_thread() is not main_thread():  # signals are not its business
        yield interrupted
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = [signal.signal(number, interrupted.on_signal) for number in numbers]
    try:
        yield interrupted
    finally:
        for number, handler in zip(numbers, previous):
            signal.signal(number, handler)
