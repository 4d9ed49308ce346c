"""Record a query that sends into the Log, for the releases to come: python -m tests.spark.record_sink FOLDER

It sends the 40 lines of one log into that of a real member, 30 entries a micro-batch: the first is committed,
the second is planned. Its task is played then, one that is lost when 8 of its 12 lines are in the Log: when a
task of Spark's own fails, it is chance how many are. FOLDER gets the checkpoint and the member's directory.
tests/data/spark-sink-1 is of release 0.2.0; one that changes lanes records another, and keeps it.
"""

import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pyarrow as pa

from benchmarks.processes import running_cluster
from jobs.session import spark_session
from spark_connector.options.cluster_options import SinkOptions
from spark_connector.sink.writers import ClusterStreamWriter
from tests.spark.logs import open_log
from tests.spark.played import PlayedTask
from tests.spark.sending import LINES, sent_lines

FIRST_OF_SECOND, LOST_AT = 28, 36
SMALL = ("--set", "log_term_length=64k", "--set", "archive_segment_file_length=128k")


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        log, session_id = open_log(Path(scratch) / "member-0")
        log.lines(session_id, 0, LINES)
        checkpoint, member = Path(scratch) / "checkpoint", Path(scratch) / "cluster" / "member-0"
        spark = spark_session("record", master="local[2]")
        with running_cluster(1, *SMALL, directory=member.parent) as cluster:
            query = sent_lines(spark, log.directory, cluster["endpoints"], checkpoint, _failing)
            try:
                query.awaitTermination()
            except Exception as error:
                assert "planned" in str(error), error
            _play(cluster["endpoints"], json.loads((checkpoint / "metadata").read_text())["id"])
        log.stop()
        for name in ("metadata", "commits/0", "offsets/0", "offsets/1"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(checkpoint / name, folder / name)
        with tarfile.open(folder / "member-0.tar.xz", "w:xz") as archive:
            for part in ("archive", "cluster"):
                archive.add(member / part, f"member-0/{part}")
        spark.stop()


def _failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if b"line %d" % FIRST_OF_SECOND in batch["payload"].to_pylist():
            raise RuntimeError("planned, and not begun")
        yield batch


def _play(endpoints: str, query_id: str) -> None:
    """The first lines of the second micro-batch, by a task that is lost then."""

    def rows() -> Iterator[pa.RecordBatch]:
        lines = [b"line %d" % number for number in range(FIRST_OF_SECOND, LOST_AT)]
        yield pa.record_batch({"payload": pa.array(lines, pa.binary())})
        raise ConnectionError("lost")

    names = {"sql.streaming.queryId": query_id, "streaming.sql.batchId": "1"}
    with mock.patch("spark_connector.task.TaskContext.get", lambda: PlayedTask(0, 0, **names)):
        writer = ClusterStreamWriter(SinkOptions.parse({"endpoints": endpoints}))
        with suppress(ConnectionError):
            writer.write(rows())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
