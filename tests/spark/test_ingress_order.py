"""Rows that were shuffled on their way back: one order, whatever the shuffle did."""

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import functions as f

from cluster.errors import ConfigurationError
from spark_connector import for_ingress
from spark_connector.sink.ingress_order import _in_order
from tests.spark.logs import open_log

KEYS, ROWS = 7, 3000


def numbered(position):
    """Of each position three rows of one key, the last of them first."""
    rows = position.selectExpr("position", f"position % {KEYS} AS key", "explode(array(2, 1, 0)) AS part")
    return rows.selectExpr("position", "key", "concat_ws(' ', key, lpad(position, 9, '0'), part) AS payload")


def by_task(rows):
    """The payloads of each task, as a sink would get them."""
    tasks = {}
    for row in rows.select(f.spark_partition_id().alias("task"), "payload").collect():
        tasks.setdefault(row["task"], []).append(bytes(row["payload"], "ascii").split())
    return tasks


def check_order(tasks):
    """Every key is in one task, and the rows of a task are in the log's order."""
    keys = {task: {key for key, _, _ in rows} for task, rows in tasks.items()}
    assert sum(map(len, keys.values())) == KEYS == len(set().union(*keys.values())), keys
    for rows in tasks.values():
        places = [(position, part) for _, position, part in rows]
        assert places == sorted(places)


@pytest.mark.conformance("P-92")
def test_a_batch_has_the_same_tasks_whatever_order_its_rows_came_in(spark):
    positions = spark.range(0, ROWS).selectExpr("id AS position")
    once = by_task(for_ingress(numbered(positions).repartition(5), 3, "key"))
    again = by_task(
        for_ingress(numbered(positions.orderBy(f.desc("position"))).repartition(2), 3, f.col("key"))
    )

    assert sum(map(len, once.values())) == 3 * ROWS
    check_order(once)
    assert again == once


@pytest.mark.slow
@pytest.mark.conformance("P-92")
def test_a_stream_is_in_order_too(spark, tmp_path):
    log, session_id = open_log(tmp_path / "member-0")
    try:
        log.lines(session_id, 0, ROWS)
        source = spark.readStream.format("cluster").options(
            clusterDir=str(tmp_path / "member-0"), startingOffsets="earliest", minPartitions="4"
        )
        entries = source.load().where("entryType = 'SESSION_MESSAGE'")
        entries = entries.selectExpr("position DIV 32 AS position")
        taken = []
        query = (
            for_ingress(numbered(entries), 3, "key")
            .writeStream.foreachBatch(lambda rows, _: taken.append(by_task(rows)))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    finally:
        log.stop()
    (tasks,) = taken
    assert sum(map(len, tasks.values())) == 3 * ROWS
    check_order(tasks)


def counted(key, tables, state):
    """The rows of a key as they are, and how many there have been."""
    rows = pd.concat(tables)
    state.update(((state.get[0] if state.exists else 0) + len(rows),))
    yield rows[["position", "payload", "key"]]


@pytest.mark.slow
def test_rows_of_a_stateful_pandas_operator_are_in_order(spark, live, tmp_path):
    live.lines(live.session_id, 0, ROWS)
    source = spark.readStream.format("cluster").options(
        clusterDir=str(tmp_path / "member-0"), startingOffsets="earliest"
    )
    entries = source.load().where("entryType = 'SESSION_MESSAGE'").selectExpr("position DIV 32 AS position")
    answers = (
        numbered(entries)
        .groupBy("key")
        .applyInPandasWithState(
            counted, "position LONG, payload STRING, key LONG", "n LONG", "append", "NoTimeout"
        )
    )
    taken = []
    query = (
        for_ingress(answers, 3, answers["key"])
        .writeStream.foreachBatch(lambda rows, _: taken.append(by_task(rows)))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    (tasks,) = taken
    assert sum(map(len, tasks.values())) == 3 * ROWS
    check_order(tasks)


@pytest.mark.parametrize("kind", [pa.binary(), pa.string()])
def test_batches_of_a_task_are_sorted_as_one_and_rows_of_one_position_by_payload(kind):
    def batch(positions, payloads):
        columns = {"position": pa.array(positions, pa.int64()), "payload": pa.array(payloads, kind)}
        return pa.record_batch(columns)

    made = list(_in_order(iter([batch([], []), batch([3, 1], ["d", "a"]), batch([2, 2], ["c", "b"])])))
    assert {batch.schema.field("payload").type for batch in made} == {kind}
    in_order = [payload for batch in made for payload in batch["payload"].cast(pa.string()).to_pylist()]
    assert in_order == ["a", "b", "c", "d"]


def test_a_task_without_rows_has_no_batches():
    assert list(_in_order(iter([]))) == []


@pytest.mark.parametrize("n", [0, -1, "3", None])
def test_a_number_of_tasks_that_cannot_be_is_refused(n):
    with pytest.raises(ConfigurationError, match=f"for_ingress: n is {n!r}; expected a number of tasks"):
        for_ingress(None, n, "key")
