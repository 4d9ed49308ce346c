"""Spark against members that run: the source over endpoints, the sink, and both through a leader's death."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from cluster.client import ClusterClient
from cluster.reader import LogReader


class RunningCluster:
    """Members on this machine, one process each, as ``cluster up`` makes them."""

    def __init__(self, directory, members=3):
        self.directory = directory
        self._errors = (directory / "up.err").open("w")
        command = [sys.executable, "-m", "cluster", "up", "--json", "--members", str(members)]
        command += ["--dir", str(directory / "members"), "--base-port", str(free_ports(10 * members))]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._errors, text=True)
        line = self._process.stdout.readline()
        assert line, f"the cluster did not start: {(directory / 'up.err').read_text()}"
        self.up = json.loads(line)
        self.endpoints = self.up["endpoints"]

    def kill(self, member_id):
        os.kill(self.up["members"][member_id]["pid"], signal.SIGKILL)

    def stop(self):
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()


def free_ports(count):
    """The first of ``count`` ports in a row that nobody listens on now."""
    for first in range(21_000 + os.getpid() % 900 * 10, 32_000, count):
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
    raise AssertionError("no free ports")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    running = RunningCluster(tmp_path_factory.mktemp("cluster"))
    yield running
    running.stop()


def source(spark, cluster, **options):
    return spark.read.format("cluster").options(endpoints=cluster.endpoints, **options).load()


def payloads(rows):
    """Of the session messages, in the log's order."""
    found = rows.select("position", "entryType", "payload").toArrow().to_pylist()
    found.sort(key=lambda row: row["position"])
    return [row["payload"] for row in found if row["entryType"] == "SESSION_MESSAGE"]


def end_of(cluster):
    """A position behind everything that is committed now, as an option."""
    with LogReader.open(endpoints=cluster.endpoints) as reader:
        return f'{{"position": {reader.end_position()}}}'


def sent_since(cluster, begin):
    """The payloads of the session messages from an option's position on; without Spark."""
    with LogReader.open(endpoints=cluster.endpoints) as reader:
        entries = reader.entries(json.loads(begin)["position"], entry_types=("SESSION_MESSAGE",))
        return [entry["payload"] for entry in entries]


def numbered(spark, first, last, tasks=1):
    """Lines ``N`` of numbers, each task's in their order."""
    return spark.range(first, last, 1, tasks).select(f.col("id").cast("string").alias("payload"))


def save(rows, cluster, **options):
    rows.write.format("cluster").mode("append").options(endpoints=cluster.endpoints, **options).save()


@pytest.mark.conformance("P-77")
def test_rows_written_as_a_batch_are_committed_in_each_tasks_order_when_the_write_returns(spark, cluster):
    begin = end_of(cluster)
    save(numbered(spark, 0, 3000, tasks=2), cluster)

    rows = source(spark, cluster, startingOffsets=begin)
    sent = [int(payload) for payload in payloads(rows)]
    assert sorted(sent) == list(range(3000))
    for task in (range(1500), range(1500, 3000)):
        assert [number for number in sent if number in task] == list(task)
    types = rows.select("entryType").toArrow()["entryType"].to_pylist()
    assert types.count("SESSION_OPEN") == types.count("SESSION_CLOSE") == 2, "a session a task, closed by it"


@pytest.mark.conformance("P-69", "P-98")
def test_binary_payloads_of_any_length_come_back_as_they_were(spark, cluster):
    begin = end_of(cluster)
    rows = [
        (bytes([n % 256]) * length,)
        for n, length in enumerate([0, 1, 31, 32, 1343, 1344, 1345, 9000, 70_000])
    ]
    save(spark.createDataFrame(rows, "payload BINARY").coalesce(1), cluster)

    assert payloads(source(spark, cluster, startingOffsets=begin)) == [row[0] for row in rows]


def test_every_endpoint_medium_serves_source_and_sink(spark, cluster):
    for name in ("tcpEndpoints", "ipcEndpoints"):
        begin = end_of(cluster)
        options = {"endpoints": cluster.up[name]}
        numbered(spark, 0, 10).write.format("cluster").mode("append").options(**options).save()
        rows = spark.read.format("cluster").options(startingOffsets=begin, **options).load()
        assert payloads(rows) == [b"%d" % n for n in range(10)]


@pytest.mark.conformance("P-69", "P-78")
def test_a_row_without_payload_fails_the_write_and_is_named(spark, cluster):
    rows = spark.createDataFrame([("a",), (None,)], "payload STRING").coalesce(1)
    begin = end_of(cluster)
    with pytest.raises(
        PySparkException, match=r"partition 0, attempt 0: row 1 of the task has no payload \(NULL\)"
    ):
        save(rows, cluster)
    assert source(spark, cluster, startingOffsets=begin).count() == 0, "no session was opened for it"


@pytest.mark.conformance("P-111")
def test_a_query_that_fails_in_the_sink_says_in_which_batch_and_task(spark, cluster, tmp_path):
    begin = end_of(cluster)
    save(numbered(spark, 0, 1), cluster)
    nothing = stream(spark, cluster, begin).selectExpr("cast(NULL AS STRING) AS Payload")
    query = start(nothing, cluster, tmp_path / "checkpoint", availableNow=True)
    with pytest.raises(
        PySparkException, match=rf"batch 0 of query {query.id}, partition 0, attempt 0: row 0"
    ):
        query.awaitTermination()


def test_a_temporary_view_is_selected_from_and_inserted_into(spark, cluster):
    begin = end_of(cluster)
    options = f"OPTIONS (endpoints '{cluster.endpoints}')"
    spark.sql(f"CREATE TEMPORARY VIEW ingress (Payload STRING) USING cluster {options}")
    spark.sql("INSERT INTO ingress VALUES ('one'), ('two')")
    spark.catalog.dropTempView("ingress")

    options = f"OPTIONS (endpoints '{cluster.endpoints}', startingOffsets '{begin}')"
    spark.sql(f"CREATE TEMPORARY VIEW log USING cluster {options}")
    rows = spark.sql("SELECT payload FROM log WHERE entryType = 'SESSION_MESSAGE'").collect()
    spark.catalog.dropTempView("log")
    assert sorted(row.payload for row in rows) == [b"one", b"two"]


@pytest.mark.conformance("P-95")
def test_a_row_longer_than_the_log_takes_fails_the_write(spark, cluster):
    rows = spark.range(1).selectExpr("repeat('x', 20000000) AS payload")
    with pytest.raises(PySparkException, match=r"row 0 of the task has a payload of 20000000 bytes.*at most"):
        save(rows, cluster)


@pytest.mark.conformance("P-78")
@pytest.mark.parametrize(
    "rows, says",
    [
        ("SELECT 1 AS payload", "column payload is INT; the sink takes BINARY or STRING"),
        ("SELECT 'a' AS value", "needs column payload .BINARY or STRING.; the rows have value"),
        ("SELECT 'a' AS payload, 1 AS key", "takes column payload alone, the rows have payload, key"),
    ],
)
def test_rows_that_are_no_messages_are_refused_before_anything_is_sent(spark, cluster, rows, says):
    with pytest.raises(PySparkException, match=says):
        save(spark.sql(rows), cluster)


@pytest.mark.conformance("P-94")
def test_wrong_options_of_the_sink_and_overwriting_are_refused(spark, cluster):
    rows = spark.sql("SELECT 'a' AS payload")
    with pytest.raises(PySparkException, match="unknown source or sink option 'commitimeout'; did you mean"):
        save(rows, cluster, comMitimeout="1")
    with pytest.raises(PySparkException, match="option minPartitions is for a read"):
        save(rows, cluster, minPartitions="2")
    with pytest.raises(PySparkException, match="no option is given, expected endpoints"):
        rows.write.format("cluster").mode("append").save()
    with pytest.raises(PySparkException, match="needs option endpoints"):
        rows.write.format("cluster").mode("append").option("commitTimeoutMs", "1").save()
    begin = end_of(cluster)
    for mode, says in (
        ("overwrite", "cannot be overwritten"),
        ("error", 'cannot be written in the "ErrorIfExists" mode'),
        ("ignore", 'cannot be written in the "Ignore" mode'),
    ):
        with pytest.raises(PySparkException, match=says):
            rows.write.format("cluster").mode(mode).options(endpoints=cluster.endpoints).save()
    assert source(spark, cluster, startingOffsets=begin).count() == 0


def start(rows, cluster, checkpoint, **trigger):
    return (
        rows.writeStream.format("cluster")
        .option("endpoints", cluster.endpoints)
        .option("checkpointLocation", str(checkpoint))
        .trigger(**(trigger or {"processingTime": "0 seconds"}))
        .start()
    )


def stream(spark, cluster, begin, **options):
    return (
        spark.readStream.format("cluster")
        .options(endpoints=cluster.endpoints, startingOffsets=begin, entryTypes="SESSION_MESSAGE", **options)
        .load()
    )


@pytest.mark.conformance("P-21", "P-25", "P-83")
def test_a_query_answers_what_comes_in_and_sends_no_batch_again_that_spark_forgot_after_its_commit(
    spark, cluster, tmp_path
):
    """Source to sink: lines ``N`` come back as ``answer N``, each once."""
    begin = end_of(cluster)
    answers = (
        stream(spark, cluster, begin, maxEntriesPerTrigger="30")
        .select(f.col("payload").cast("string"))
        .where("payload NOT LIKE 'answer%'")
        .select(f.concat(f.lit("answer "), "payload").alias("payload"))
    )
    save(numbered(spark, 0, 50), cluster)
    start(answers, cluster, tmp_path / "checkpoint", availableNow=True).awaitTermination()
    (commit, _) = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), reverse=True)
    for path in (commit, commit.with_name(f".{commit.name}.crc")):
        path.unlink()

    query = start(answers, cluster, tmp_path / "checkpoint")
    query.processAllAvailable()
    for first in (50, 75):
        save(numbered(spark, first, first + 25), cluster)
        query.processAllAvailable()
    query.stop()
    got = [payload for payload in sent_since(cluster, begin) if payload.startswith(b"answer")]
    assert got == [b"answer %d" % n for n in range(100)]


@pytest.mark.slow
def test_a_query_whose_checkpoint_is_lost_is_another_query_under_whatever_name(spark, cluster, tmp_path):
    """Its rows are sent again from where it begins; what the consumer group has read is not."""
    begin = end_of(cluster)
    save(numbered(spark, 0, 10), cluster)

    def run(where, name, **options):
        entries = stream(spark, cluster, where, **options).select(f.col("payload").cast("string"))
        rows = entries.where("payload NOT LIKE 'answer%'").selectExpr("concat('answer ', payload) AS payload")
        writer = rows.writeStream.format("cluster").queryName(name).trigger(availableNow=True)
        place = str(tmp_path / "checkpoint")
        writer.options(endpoints=cluster.endpoints, checkpointLocation=place).start().awaitTermination()
        shutil.rmtree(place)
        found = sent_since(cluster, begin)
        return [found.count(b"answer %d" % n) for n in range(20)]

    assert run(begin, "one") == [1] * 10 + [0] * 10
    assert run(begin, "one", consumerGroup="lost") == [2] * 10 + [0] * 10
    save(numbered(spark, 10, 20), cluster)
    assert run("group", "two", consumerGroup="lost") == [2] * 10 + [1] * 10


@pytest.mark.slow
def test_the_batch_writer_sends_what_a_function_makes_of_each_micro_batch(spark, cluster, tmp_path):
    begin = end_of(cluster)
    save(numbered(spark, 0, 25), cluster)
    query = (
        stream(spark, cluster, begin, maxEntriesPerTrigger="10")
        .writeStream.foreachBatch(
            lambda rows, _: save(rows.selectExpr("count(*) || ' rows' AS payload"), cluster)
        )
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    counts = [payload for payload in sent_since(cluster, begin) if b"rows" in payload]
    # A session open and a close stand around the lines, and count for the limit.
    assert counts == [b"9 rows", b"10 rows", b"6 rows"]


@pytest.mark.slow
@pytest.mark.conformance("P-80")
@pytest.mark.timeout(240)
def test_a_task_that_spark_tries_again_sends_only_what_is_not_in_the_log(cluster):
    begin = json.loads(end_of(cluster))["position"]
    command = [sys.executable, "-m", "tests.spark.retried_write", cluster.endpoints, str(begin)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    attempts = []
    with LogReader.open(endpoints=cluster.endpoints) as reader:
        for entry in reader.entries(begin, entry_types=("SESSION_OPEN", "SESSION_MESSAGE")):
            if entry["entryType"] == "SESSION_OPEN":
                attempts.append([])
            else:
                attempts[-1].append(int(entry["payload"]))
    first, second, registration = attempts
    assert 0 < len(first) < 1000, "the attempt that failed had rows in the log"
    assert first + second == list(range(1000)) and registration == []


@pytest.mark.usefixtures("spark")  # for it to run where the cluster runs already
@pytest.mark.conformance("P-36", "P-45")
@pytest.mark.timeout(120)
def test_a_member_that_falls_silent_in_the_middle_of_a_range_is_left_for_another(cluster):
    """A process that is stopped keeps its connections: only its silence tells."""
    begin = json.loads(end_of(cluster))["position"]
    with ClusterClient.connect(cluster.endpoints) as client:
        for _ in range(40):
            while client.offer_batch([bytes(1000)] * 1000) < 0:
                client.poll_egress()
        while client.acknowledged < client.offered:
            client.poll_egress()

    with LogReader.open(endpoints=cluster.endpoints, timeout_s=2) as reader:
        blocks = reader.batches(begin, entry_types=("SESSION_MESSAGE",), columns=("position",))
        rows = next(blocks).num_rows
        silent = cluster.up["members"][reader.log._order[0]]["pid"]
        os.kill(silent, signal.SIGSTOP)
        stopped = time.monotonic()
        try:
            rows += sum(batch.num_rows for batch in blocks)
        finally:
            os.kill(silent, signal.SIGCONT)
    assert rows == 40_000
    assert 1 < time.monotonic() - stopped < 30, "it was waited for, and not for long"


@pytest.mark.slow
@pytest.mark.conformance("P-79")
def test_output_modes_update_and_complete_are_refused(spark, cluster, tmp_path):
    """Update by Spark itself, which does not offer it to Python sinks."""
    counts = stream(spark, cluster, "latest").groupBy("leadershipTermId").count()
    rows = counts.selectExpr("cast(count AS STRING) AS payload").writeStream.format("cluster")
    for mode, says in (("update", "does not support Update mode"), ("complete", "cannot be overwritten")):
        checkpoint = str(tmp_path / mode)
        with pytest.raises(PySparkException, match=says):
            query = rows.outputMode(mode).options(endpoints=cluster.endpoints, checkpointLocation=checkpoint)
            query.start().awaitTermination(60)


@pytest.mark.slow
@pytest.mark.conformance("P-36", "P-88")
@pytest.mark.timeout(240)
def test_source_and_sink_go_on_through_the_death_of_the_leader(spark, tmp_path):
    """A stream and a write are under way when the leader is killed; every row is in the log once."""
    running = RunningCluster(tmp_path)
    try:
        taken = []
        query = (
            stream(spark, running, "earliest")
            .writeStream.foreachBatch(
                lambda rows, _: taken.append(rows.select("position", "payload").toArrow())
            )
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        query.processAllAvailable()
        deaths = []
        death = threading.Thread(target=lambda: deaths.append(kill_leader_at(running, 5_000_000)))
        death.start()
        save(numbered(spark, 0, ROWS, tasks=2), running)
        death.join()
        assert deaths[0] < ROWS * 96, "the leader died in the middle of the write"
        query.processAllAvailable()
        query.stop()

        rows = sorted(pair for batch in taken for pair in zip(*(c.to_pylist() for c in batch.columns)))
        sent = [int(payload) for _, payload in rows]
        assert sorted(sent) == list(range(ROWS)), "none lost, none twice: no task had to run again"
        for task in (range(ROWS // 2), range(ROWS // 2, ROWS)):
            assert [number for number in sent if number in task] == list(task)
        terms = source(spark, running, entryTypes="NEW_LEADERSHIP_TERM").count()
        assert terms >= 2, "another leader took over"
    finally:
        running.stop()


ROWS = 200_000


def kill_leader_at(running, position):
    """Kill the leader when so much is committed, and return what was committed by then."""
    leader = running.up["leaderMemberId"]
    member = running.up["members"][(leader + 1) % 3]
    with LogReader.open(dir=member["dir"]) as follower:
        deadline = time.monotonic() + 90
        while (committed := follower.commit_position()) < position:
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.005)
        running.kill(leader)
        return committed
