"""A program: executors in processes of their own write rows to a cluster, and one dies in its task.

    python -m tests.faults.write_by_executors MASTER ENDPOINTS ROWS

It writes the numbers up to ROWS, padded to WIDTH, in two tasks. The executor of the first is killed once
half of the task's rows were taken from it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext

from tests.faults.executors import executors_session, kill_own_executor

WIDTH = 100
ROWS_PER_BATCH = 500


def main(master: str, endpoints: str, rows: str) -> None:
    spark = executors_session("write by executors", master, ROWS_PER_BATCH)
    half_of_a_task = int(rows) // 4 // ROWS_PER_BATCH
    numbers = spark.range(0, int(rows), 1, 2)
    payloads = numbers.mapInArrow(lambda batches: padded(batches, half_of_a_task), "payload STRING")
    payloads.write.format("cluster").mode("append").options(
        endpoints=endpoints, txnAppId="executors", txnVersion="1"
    ).save()
    spark.stop()


def padded(batches: Iterator[pa.RecordBatch], killed_at: int) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    for number, batch in enumerate(batches):
        if (context.partitionId(), context.attemptNumber(), number) == (0, 0, killed_at):
            kill_own_executor()
        texts = [str(row).zfill(WIDTH) for row in batch.column(0).to_pylist()]
        yield pa.RecordBatch.from_arrays([pa.array(texts)], ["payload"])


if __name__ == "__main__":
    main(*sys.argv[1:])
