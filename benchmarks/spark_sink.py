"""Rows from Spark into the Log of three members on this machine: each once, and beside that at least once.

Goal: 200,000 rows of 100 bytes a second, Spark included. A batch write in two tasks, in a warm session on two
cores, over tcp; ``rows_per_s`` is rows over the wall time of the whole write, until all are committed.
``write_of_two_rows_ms``: of a write of one row in each task, for what lanes and their registration cost.

Beside it, what a client without Spark gets: ``cluster bench`` in batches, alone and while Spark makes the
same rows for ``noop`` all the time.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.cluster import BATCHED, measure_ours
from benchmarks.options import Options
from benchmarks.processes import running_cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 2_000_000
TASKS = 2
PAYLOAD_LENGTH = 100
SMALL_WRITES = 5  # a round
MODES = ("at-least-once", "exactly-once")


def run(options: Options) -> Iterator[dict[str, Any]]:
    """One figure for each delivery mode; their writes take turns, and a first round does not count."""
    from jobs.session import spark_session

    seconds: dict[tuple[str, int], list[float]] = {}
    with running_cluster() as cluster:
        spark = spark_session("benchmark", master="local[2]", extra={"spark.driver.memory": "2g"})
        a_round = (ROWS, *[TASKS] * SMALL_WRITES)
        for version, rows in enumerate(a_round * (options.rounds + 1)):
            once = {"txnAppId": "benchmark", "txnVersion": str(version)}
            for mode, given in zip(MODES, ({}, once), strict=True):
                taken = _write(spark, rows, {"endpoints": cluster["tcpEndpoints"], **given})
                seconds.setdefault((mode, rows), []).append(taken)
        beside: dict[str, list[int]] = {"nothing": [], "spark": []}
        for _ in range(options.rounds):
            beside["nothing"].append(_bench(cluster["tcpEndpoints"], options.seconds))
            with _busy(spark):
                beside["spark"].append(_bench(cluster["tcpEndpoints"], options.seconds))
        spark.stop()
    for mode in MODES:
        yield {
            "figure": "spark to the log",
            "mode": mode,
            "rows": ROWS,
            "tasks": TASKS,
            "rows_per_s": round(ROWS / statistics.median(seconds[mode, ROWS][1:])),
            "write_of_two_rows_ms": round(1000 * statistics.median(seconds[mode, TASKS][SMALL_WRITES:])),
        }

    for name, rates in beside.items():
        yield {"figure": "cluster bench", "beside": name, "messages_per_s": round(statistics.median(rates))}


def _rows(spark: SparkSession, rows: int) -> DataFrame:
    payload = f"lpad(CAST(id AS STRING), {PAYLOAD_LENGTH}, '0') AS payload"
    return spark.range(0, rows, 1, TASKS).selectExpr(payload)


def _write(spark: SparkSession, rows: int, options: dict[str, str]) -> float:
    """Seconds until the rows are in the log."""
    written = _rows(spark, rows)
    began = time.monotonic()
    written.write.format("cluster").mode("append").options(**options).save()
    return time.monotonic() - began


def _bench(endpoints: str, seconds: float) -> int:
    """Messages a second of ``cluster bench``, in batches."""
    rate: int = measure_ours(endpoints, "tcp", seconds, **BATCHED)["messages_per_s"]
    return rate


@contextmanager
def _busy(spark: SparkSession) -> Iterator[None]:
    """Spark makes rows for ``noop`` in between, in as many tasks."""
    is_over = threading.Event()

    def make_rows() -> None:
        while not is_over.is_set():
            _rows(spark, ROWS).write.format("noop").mode("overwrite").save()

    maker = threading.Thread(target=make_rows)
    maker.start()
    try:
        yield
    finally:
        is_over.set()
        maker.join()
