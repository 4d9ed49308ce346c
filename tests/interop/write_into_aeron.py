"""A program: a query that copies the lines of files into a real cluster, and loses tasks on its way.

    python -m tests.interop.write_into_aeron CONSENSUS_ENDPOINTS AERON_DIR FOLDER CHECKPOINT

Each file of FOLDER is a micro-batch of two tasks. In micro-batch 1 the first attempt of each task is ended by
SIGKILL once some of its rows are in the log. It ends when all files are done.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StructType

from cluster.reader import LogReader
from jobs.session import spark_session
from spark_connector.data_source import ClusterDataSource
from spark_connector.options.cluster_options import SinkOptions
from spark_connector.sink.writers import ClusterStreamWriter, RowsCommitted

KILLED_BATCH, SENT_BEFORE = 1, 100
SECONDS = 60


class KilledSink(ClusterDataSource):
    """The format ``cluster``, of which tasks are killed."""

    @classmethod
    def name(cls) -> str:
        return "killed"

    def streamWriter(self, schema: StructType, overwrite: bool) -> ClusterStreamWriter:
        return KilledWriter(SinkOptions.parse(self.options))


class KilledWriter(ClusterStreamWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsCommitted:
        lane, context = self.lane(), TaskContext.get()
        assert lane is not None
        assert context is not None
        is_killed = lane.batch == KILLED_BATCH and context.attemptNumber() == 0
        return super().write(self._some_of(iterator) if is_killed else iterator)

    def _some_of(self, iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next(iterator).slice(0, SENT_BEFORE)
        yield first
        self._await_committed({payload.as_py() for payload in first.column(0)})
        os.kill(os.getpid(), signal.SIGKILL)

    def _await_committed(self, lines: set[bytes]) -> None:
        assert self._index is not None
        deadline = time.monotonic() + SECONDS
        options = self.options
        with LogReader.open(
            consensus_endpoints=options.consensus_endpoints, aeron_dir=options.aeron_dir
        ) as reader:
            while lines:
                assert time.monotonic() < deadline, "the first rows did not come"
                lines -= {entry.get("payload") for entry in reader.entries(self._index.end)}


def main(consensus_endpoints: str, aeron_dir: str, folder: str, checkpoint: str) -> None:
    spark = spark_session(
        "write into aeron",
        master="local[2,4]",  # two cores, four attempts of a task
        extra={"spark.sql.execution.arrow.maxRecordsPerBatch": "200"},
    )
    spark.dataSource.register(KilledSink)
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(folder)
    payloads = lines.selectExpr("CAST(value AS BINARY) AS payload").repartition(2)
    query = payloads.writeStream.format("killed").option("checkpointLocation", checkpoint)
    query = query.option("consensusEndpoints", consensus_endpoints).option("aeronDir", aeron_dir)
    query.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
