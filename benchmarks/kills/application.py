"""The application that is killed: each message answered through the sink, the log as a Delta table.

    python -m benchmarks.kills.application MASTER FOLDER OPTIONS QUERY...

OPTIONS say in JSON how Spark reaches the members, and each QUERY is ``answers`` or ``log``, the Delta table.

A query that fails is started again over its checkpoint, as an operator's tool would.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.keeping import keeping
from jobs.log_to_delta import log_job
from jobs.session import spark_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

QUESTION, ANSWER = "ask", "answer "
ENTRIES_MAX = 2_000  # of a micro-batch: what has to be made again is made again in seconds
PACE_ROWS, PACE_S = 5, 0.05  # a task is on its way for a while, and a kill meets it there
SETTINGS = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "768m",
    "spark.cores.max": "2",
    "spark.task.maxFailures": "1000",
    "spark.stage.maxConsecutiveAttempts": "1000",
    # An executor that stands still is given up after seconds, and its task runs elsewhere.
    "spark.executor.heartbeatInterval": "2s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "16s",
    "spark.network.timeoutInterval": "2s",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
    # So rows come to the sink as they are made, not at the end of a task.
    "spark.buffer.size": "1024",
}


def main(master: str, folder: Path, options: dict[str, str], names: Sequence[str]) -> None:
    spark = spark_session("kills", master=master, extra=SETTINGS)
    source = {**options, "minPartitions": "2"}
    makers = {
        "answers": lambda: answering(spark, options, source, str(folder / "checkpoint-answers")),
        "log": lambda: keeping(
            spark, {str(folder / "log"): log_job()}, source, str(folder / "checkpoint-log")
        ),
    }
    queries: dict[str, StreamingQuery | None] = dict.fromkeys(names)
    while True:
        for name, query in queries.items():
            if query is None or not query.isActive:
                queries[name] = started(makers[name], query)
        time.sleep(0.2)


def answering(
    spark: SparkSession, cluster: dict[str, str], source: dict[str, str], checkpoint: str
) -> DataStreamWriter:
    """Each message of a client becomes one of ours."""
    options = {**source, "startingOffsets": "earliest", "entryTypes": "SESSION_MESSAGE"}
    options["maxEntriesPerTrigger"] = str(ENTRIES_MAX)
    questions = spark.readStream.format("cluster").options(**options).schema("payload BINARY").load()
    questions = questions.where(f"startswith(CAST(payload AS STRING), '{QUESTION}')")
    answers = questions.mapInArrow(paced_answers, "payload STRING")
    writer = answers.writeStream.queryName("answers").format("cluster")
    return writer.options(**cluster).option("checkpointLocation", checkpoint)


def paced_answers(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in batches:
        for row in range(0, batch.num_rows, PACE_ROWS):
            questions = batch.column(0).slice(row, PACE_ROWS).cast(pa.string()).to_pylist()
            time.sleep(PACE_S)
            yield pa.record_batch({"payload": [ANSWER + question for question in questions]})


def started(make: Callable[[], DataStreamWriter], failed: StreamingQuery | None) -> StreamingQuery | None:
    """The query; None when it does not start now."""
    try:
        if failed is not None:
            print(f"failed: {failed.exception()}"[:2000], file=sys.stderr, flush=True)
        return make().trigger(processingTime="1 second").start()
    except Exception as error:
        print(f"not started: {error}"[:2000], file=sys.stderr, flush=True)
        return None


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4:])
