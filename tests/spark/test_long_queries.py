"""Queries that go on for many micro-batches, and queries of several streams."""

import gc
import os
from pathlib import Path

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import LongType, StructField, StructType

from spark_connector.data_source import ClusterDataSource
from tests.spark.pipeline import stream

WARM_UP = 10


def python_processes():
    """Threads and descriptors of each Python process below this one: Spark's workers and sources."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            except OSError:
                continue  # it has ended
            parents[int(folder.name)] = int(rest.split()[1]), name
    ours, found = {os.getpid()}, {}
    while new := {pid for pid, (parent, _) in parents.items() if parent in ours} - ours:
        ours |= new
    for pid in ours - {os.getpid()}:
        if "python" in parents[pid][1]:
            try:
                found[pid] = len(os.listdir(f"/proc/{pid}/task")), len(os.listdir(f"/proc/{pid}/fd"))
            except OSError:
                continue
    return found


@pytest.mark.conformance("P-113")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("batches", [20, pytest.param(1000, marks=pytest.mark.faults)])
def test_processes_threads_and_descriptors_do_not_grow_with_the_micro_batches(spark, live, tmp_path, batches):
    taken = []
    query = (
        stream(spark, live.directory)
        .load()
        .writeStream.foreachBatch(lambda rows, batch_id: taken.append(rows.count()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        for number in range(WARM_UP):
            live.lines(live.session_id, number, 1)
            query.processAllAvailable()
        before = python_processes()
        for number in range(WARM_UP, batches):
            live.lines(live.session_id, number, 1)
            query.processAllAvailable()
        after = python_processes()
    finally:
        query.stop()

    assert len(taken) >= batches and sum(taken) == batches + 2, "one entry each, a term and a session"
    assert before and len(after) <= len(before)
    for pid in after.keys() & before.keys():
        assert all(now <= then + 2 for now, then in zip(after[pid], before[pid], strict=True)), (
            f"process {pid}: threads and descriptors {before[pid]} became {after[pid]}"
        )


@pytest.mark.slow
@pytest.mark.conformance("P-29")
def test_two_streams_of_one_log_are_joined_and_have_an_offset_each(spark, live, tmp_path):
    sessions = [live.open_session() for _ in range(5)]
    for session_id in sessions[:3]:
        live.close_session(session_id)
    live.commit()
    opens, closes = (
        stream(spark, live.directory, entryTypes=kind).load() for kind in ("SESSION_OPEN", "SESSION_CLOSE")
    )
    opens = opens.select("clusterSessionId", "timestamp")
    closes = closes.select("clusterSessionId", "closeReason")
    query = (
        opens.join(closes, "clusterSessionId")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "joined"))
    )
    query.awaitTermination()

    joined = spark.read.parquet(str(tmp_path / "joined")).collect()
    assert sorted(row.clusterSessionId for row in joined) == sorted(sessions[:3])
    assert len(query.lastProgress["sources"]) == 2


class FrozenAfterReading(DataSource):
    """As the source, with one row for each task: how many objects the collector passes over after it."""

    @classmethod
    def name(cls):
        return "frozen"

    def schema(self):
        return "count BIGINT"

    def reader(self, schema):
        columns = StructType([StructField("position", LongType())])
        return CountingReader(ClusterDataSource(self.options).reader(columns))


class CountingReader(DataSourceReader):
    def __init__(self, reader):
        self._reader = reader

    def partitions(self):
        return self._reader.partitions()

    def read(self, partition):
        for _ in self._reader.read(partition):
            pass
        yield (gc.get_freeze_count(),)


def test_a_worker_does_not_look_for_garbage_among_imports_after_each_task(spark, live):
    """Spark collects garbage in a worker whenever it waits for its next task."""
    spark.dataSource.register(FrozenAfterReading)
    (row,) = spark.read.format("frozen").options(clusterDir=str(live.directory)).load().collect()

    assert row["count"] > 50_000
