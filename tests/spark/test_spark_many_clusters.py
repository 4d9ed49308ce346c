"""Four real clusters under one query of Spark, written by key and read by name."""

import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from cluster import LogReader
from examples.many_clusters import orders, read, write
from tests.spark.clusters import running_clusters
from tests.spark.logs import open_log

RECORDED = Path(__file__).resolve().parents[1] / "data" / "spark-checkpoint-3"
NAMES = ("asia", "eu", "sa", "us")
ROWS = 2_000


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory):
    """A cluster of one member for each name."""
    with running_clusters(tmp_path_factory.mktemp("clusters"), NAMES) as found:
        yield found


def messages(endpoints):
    """The messages of all logs."""
    for place in endpoints.values():
        with LogReader.open(endpoints=place) as reader:
            for entry in reader.entries(0, entry_types=("SESSION_MESSAGE",)):
                yield entry["payload"].decode()


def count(endpoints):
    return sum(payload.startswith("order ") for payload in messages(endpoints))


@pytest.mark.slow
def test_the_example_has_each_order_once_and_a_customers_in_order(spark, endpoints):
    rows = orders(spark, ROWS).repartition(3, "customer").sortWithinPartitions("customer", "payload")
    for _ in range(2):
        write(rows, endpoints, "test", 1)
    found = read(spark, endpoints).collect()

    assert sorted(row.payload for row in found) == sorted(row.payload for row in rows.collect())
    places = {(row.customer, row.clusterName) for row in found}
    assert len(places) == len({row.customer for row in found}) == ROWS // 2
    assert {row.clusterName for row in found} == set(NAMES)
    counts = {name: sum(row.clusterName == name for row in found) for name in NAMES}
    assert min(counts.values()) > ROWS // 8, counts


def test_a_batch_that_is_repeated_with_other_names_is_refused(spark, endpoints):
    rows = orders(spark, 40)
    write(rows, {name: endpoints[name] for name in NAMES[:2]}, "names", 1)
    before = count(endpoints)
    for names in (NAMES[:3], NAMES[1:], NAMES[:1]):
        with pytest.raises(PySparkException, match="batch 1 of names was begun with other clusters than"):
            write(rows, {name: endpoints[name] for name in names}, "names", 1)
    assert count(endpoints) == before
    write(rows, {name: endpoints[name] for name in NAMES[:3]}, "names", 2)
    assert count(endpoints) == before + 40


def test_one_cluster_under_two_names_is_refused_before_a_row_is_sent(spark, endpoints):
    """Its lanes would be one, and rows of one name pass for those of the other."""
    rows, before = orders(spark, 40), count(endpoints)
    twins = {"eu": endpoints["eu"], "europe": endpoints["eu"]}
    with pytest.raises(
        PySparkException, match=r"cluster europe: batch 1 of twins was begun with .* this one"
    ):
        write(rows, twins, "twins", 1)
    swapped = {"eu": endpoints["us"], "us": endpoints["eu"]}
    write(rows, {name: endpoints[name] for name in swapped}, "swapped", 1)
    with pytest.raises(PySparkException, match=r"batch 1 of swapped was begun with .* under another name"):
        write(rows, swapped, "swapped", 1)
    assert count(endpoints) == before + 40


@pytest.mark.slow
def test_a_stream_copies_by_key_and_goes_on_over_its_checkpoint(spark, endpoints, tmp_path):
    two = {name: endpoints[name] for name in NAMES[:2]}
    named = {f"endpoints.{name}": place for name, place in two.items()}

    def run():
        source = spark.readStream.format("cluster").options(**named, startingOffsets="earliest").load()
        asked = source.selectExpr("clusterName", "CAST(payload AS STRING) AS payload")
        answers = asked.where("startswith(payload, 'ask ')").selectExpr(
            "substring(payload, 5) AS word",
            "concat('answer ', substring(payload, 5), ' from ', clusterName) AS payload",
        )
        writer = answers.writeStream.format("cluster").options(**named, routeBy="word")
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        query.awaitTermination(120)
        return query

    def ask(first, count):
        made = spark.range(first, first + count).selectExpr("id AS word", "concat('ask ', id) AS payload")
        made.write.format("cluster").mode("append").options(**named, routeBy="word").save()

    ask(0, 40)
    query = run()
    assert query.exception() is None
    end = query.lastProgress["sources"][0]["latestOffset"]
    ask(40, 20)
    assert run().exception() is None
    found = [payload for payload in messages(two) if payload.startswith("answer ")]
    words = sorted(int(payload.split()[1]) for payload in found)
    assert words == list(range(60)), "each once"
    assert end is not None


@pytest.mark.slow
@pytest.mark.conformance("P-31")
def test_a_recorded_checkpoint_of_two_clusters_opens_and_goes_on(spark, tmp_path):
    """Recorded over such logs (record_checkpoint.py): its second batch was planned and not committed."""
    shutil.copytree(RECORDED, tmp_path / "checkpoint")
    sent, taken = {}, []
    with ExitStack() as opened:
        for number, name in enumerate(("eu", "us")):
            log, session_id = open_log(tmp_path / name, cluster_id=number)
            opened.callback(log.stop)
            sent[name] = log.lines(session_id, 0, 45)
        named = {f"clusterDir.{name}": str(tmp_path / name) for name in sent}
        query = (
            spark.readStream.format("cluster")
            .options(**named)
            .load()
            .writeStream.foreachBatch(lambda rows, _: taken.append(rows.orderBy("position").collect()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)

    assert [len(rows) for rows in taken] == [30, 34], "as planned, and the rest"
    for name, lines in sent.items():
        found = [bytes(row.payload) for rows in taken for row in rows if row.clusterName == name]
        assert found == lines[13:], "the term, the session and 13 lines were in the first batch"
