"""A program: executors in processes of their own read a log, and something happens in the middle of a task.

    python -m tests.faults.read_by_executors MASTER CLUSTER_DIR dies|slow

``dies``: the executor is killed. ``slow``: the task stands still until Spark has run it a second time beside.
It prints a JSON object: the positions that were read, in order, the processes of the executors that read
them, and how often a task was tried again.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from tests.faults.executors import executors_session, kill_own_executor, own_executor

TASKS = 12
ROWS_PER_BATCH = 5
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "1s",
}


def main(master: str, cluster_dir: str, what: str) -> None:
    more = SPECULATION if what == "slow" else {}
    spark = executors_session("read by executors", master, ROWS_PER_BATCH, **more)
    options = {
        "clusterDir": cluster_dir,
        "columns": "position",
        "minPartitions": str(TASKS),
        "rowsPerBatch": str(ROWS_PER_BATCH),
    }
    log = spark.read.format("cluster").options(**options).load()
    second_done = Path(cluster_dir, "second-attempt-done")
    rows = log.mapInArrow(
        lambda batches: marked(batches, None if what == "dies" else second_done),
        "position BIGINT, executor INT, attempt INT",
    ).collect()
    found = {
        "positions": sorted(row["position"] for row in rows),
        "executors": sorted({row["executor"] for row in rows}),
        "attempts": max(row["attempt"] for row in rows),
    }
    print(json.dumps(found))
    spark.stop()


def marked(batches: Iterator[pa.RecordBatch], second_done: Path | None) -> Iterator[pa.RecordBatch]:
    """Rows with the process of their executor.

    That of the third task dies after the first of its batches, or the task waits there for ``second_done``.
    """
    context = TaskContext.get()
    assert context is not None
    executor = own_executor()
    for number, batch in enumerate(batches):
        if (context.partitionId(), context.attemptNumber(), number) == (2, 0, 1):
            if second_done is None:
                kill_own_executor()
            while not second_done.exists():
                time.sleep(0.05)  # Spark ends this attempt, or the other has ended
        for name, value in (("executor", executor), ("attempt", context.attemptNumber())):
            batch = batch.append_column(name, pa.array([value] * batch.num_rows, pa.int32()))
        yield batch
    if second_done is not None and (context.partitionId(), context.attemptNumber()) == (2, 1):
        second_done.touch()


if __name__ == "__main__":
    main(*sys.argv[1:])
