"""A program: a query whose second micro-batch fails at one moment, once.

    python -m tests.faults.failing_query MOMENT kill|raise SOURCE ENDPOINTS CHECKPOINT

It sends the lines of a log into a cluster. The moment is one of

    planned     the micro-batch is in the checkpoint, and no task has run
    sending     some rows of its task are in the log, in each attempt
    sent        its tasks are done, and the sink has not committed
    committed   the sink has committed, and the checkpoint does not say so

``kill`` ends the driver there, its JVM and itself; ``raise`` is an error at that place. The file ``aborted``
beside the checkpoint says that Spark had the sink give the micro-batch up.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition, WriterCommitMessage
from pyspark.sql.types import StructType

from jobs.session import spark_session
from spark_connector.data_source import ClusterDataSource
from spark_connector.options.cluster_options import SinkOptions, SourceOptions
from spark_connector.schema import wanted_columns
from spark_connector.sink.writers import ClusterStreamWriter, RowsCommitted
from spark_connector.source.readers import ClusterStreamReader
from tests.spark.retried_write import wait_for_messages
from tests.spark.sending import sent_lines

FAILING_BATCH, SENT_BEFORE, SENT_OF_IT = 1, 28, 5


class FailingSource(ClusterDataSource):
    """The format ``cluster``, which fails where the environment says."""

    @classmethod
    def name(cls) -> str:
        return "failing"

    def streamReader(self, schema: StructType) -> ClusterStreamReader:
        return FailingReader(SourceOptions.parse(self.options), wanted_columns(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> ClusterStreamWriter:
        return FailingWriter(SinkOptions.parse(self.options))


class FailingReader(ClusterStreamReader):
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if end["from"] > 0:  # of the second micro-batch
            fail_at("planned")
        return super().partitions(start, end)


class FailingWriter(ClusterStreamWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsCommitted:
        lane = self.lane()
        assert lane is not None
        is_failing = lane.batch == FAILING_BATCH and os.environ["FAILING_AT"] == "sending"
        return super().write(self._some_of(iterator) if is_failing else iterator)

    def _some_of(self, iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield next(iterator).slice(0, SENT_OF_IT)
        wait_for_messages(self.options.endpoints, 0, SENT_BEFORE + SENT_OF_IT)
        fail_at("sending")

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        if batchId == FAILING_BATCH:
            fail_at("sent")
        super().commit(messages, batchId)
        if batchId == FAILING_BATCH:
            fail_at("committed")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int = -1) -> None:
        super().abort(messages, batchId)
        Path(os.environ["FAILING_ABORTED"]).write_text(str(batchId))


def fail_at(moment: str) -> None:
    """Fail, if this is the moment."""
    if os.environ["FAILING_AT"] == moment:
        if os.environ["FAILING_BY"] == "kill":
            os.killpg(int(os.environ["FAILING_GROUP"]), signal.SIGKILL)
            signal.pause()
        raise RuntimeError(f"it fails when the micro-batch is {moment}")


def main(moment: str, how: str, source: str, endpoints: str, checkpoint: str) -> None:
    os.environ |= {
        "FAILING_AT": moment,
        "FAILING_BY": how,
        "FAILING_GROUP": str(os.getpgrp()),
        "FAILING_ABORTED": str(Path(checkpoint).with_name("aborted")),
    }  # for the JVM, and the Python processes that it starts
    spark = spark_session("failing query", master="local[2,2]")  # two attempts of a task
    spark.dataSource.register(FailingSource)
    sent_lines(spark, Path(source), endpoints, Path(checkpoint), name="failing").awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
