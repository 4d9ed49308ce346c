"""A program: one task writes rows through the sink, fails on its way, and is run again by Spark.

    python -m tests.spark.retried_write ENDPOINTS END_OF_LOG

A session of its own, because whether tasks are tried again is fixed when one starts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext

from cluster.reader import LogReader
from jobs.session import spark_session

ROWS = 1000
BATCH_ROWS = 100
PAYLOAD_LENGTH = 1000  # Spark's buffers on the way hold less than a batch of these


def main(endpoints: str, end_of_log: int) -> None:
    spark = spark_session(
        "retried write",
        master="local[1,2]",  # one core, two attempts of a task
        extra={"spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS)},
    )

    def numbered(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        for first in range(0, ROWS, BATCH_ROWS):
            payloads = [str(number).zfill(PAYLOAD_LENGTH) for number in range(first, first + BATCH_ROWS)]
            yield pa.RecordBatch.from_pydict({"payload": payloads})
            if first == ROWS // 2 and context is not None and context.attemptNumber() == 0:
                wait_for_messages(endpoints, end_of_log, BATCH_ROWS)
                raise RuntimeError("the first attempt fails when rows of it are in the log")

    written = spark.range(1).repartition(1).mapInArrow(numbered, "payload STRING")
    writer = written.write.format("cluster").mode("append").option("endpoints", endpoints)
    writer.option("txnAppId", "retried write").option("txnVersion", end_of_log).save()
    spark.stop()


def wait_for_messages(endpoints: str, begin: int, count: int) -> None:
    deadline = time.monotonic() + 60
    with LogReader.open(endpoints=endpoints) as reader:
        while True:
            entries = reader.batches(begin, columns=("position",), entry_types=("SESSION_MESSAGE",))
            if sum(batch.num_rows for batch in entries) >= count:
                return
            if time.monotonic() > deadline:
                raise TimeoutError("the first rows did not come")
            time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
