"""The source through Spark: a real Aeron Cluster's log, and logs that grow while a query reads them."""

import gzip
import hashlib
import json
import os
import shutil
import signal
import tarfile
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from spark_connector.schema import ROW_COLUMNS
from tests.spark.logs import TERM_LENGTH, open_log
from tests.spark.pipeline import stream, wait_for
from tests.tree import SAFELY

DATA = Path(__file__).resolve().parent.parent / "data" / "aeron-cluster-1.53"
MEMBERS = ("member-0", "member-1", "member-2")
ENTRY_TYPE_OF_TEMPLATE = {
    1: "SESSION_MESSAGE",
    20: "TIMER",
    21: "SESSION_OPEN",
    22: "SESSION_CLOSE",
    23: "CLUSTER_ACTION",
    24: "NEW_LEADERSHIP_TERM",
}


@pytest.fixture(scope="session")
def aeron(tmp_path_factory):
    """The directories of a real Aeron Cluster."""
    folder = tmp_path_factory.mktemp("aeron")
    with tarfile.open(DATA / "members.tar.xz") as members:
        members.extractall(folder, **SAFELY)
    return folder


@pytest.fixture(scope="session")
def decoded():
    """Every entry of that log as Aeron's own codecs decode it, under the names of our columns."""
    entries = []
    for line in gzip.decompress((DATA / "log.jsonl.gz").read_bytes()).splitlines():
        entry = json.loads(line)
        entry["entryType"] = ENTRY_TYPE_OF_TEMPLATE[entry.pop("templateId")]
        entry["clusterTime"] = entry.pop("timestamp")
        entry["timestamp"] = datetime.fromtimestamp(entry["clusterTime"] / 1000, UTC)
        entry.pop("logPosition", None)  # of the frame itself: what endPosition says
        if "encodedPrincipal" in entry:
            entry["encodedPrincipal"] = bytes.fromhex(entry["encodedPrincipal"])
        entries.append(entry)
    return entries


def as_decoded(row):
    """A row of Spark's, or of Arrow's, in the form of ``decoded``."""
    entry = {name: value for name, value in row.items() if value is not None}
    if "flags" in entry:
        entry["actionFlags"] = entry.pop("flags")
    payload = entry.pop("payload", None)
    if payload is not None:
        entry["payloadLength"] = len(payload)
        entry["payloadSha256"] = hashlib.sha256(payload).hexdigest()
    return entry


def source(spark, directory, **options):
    return spark.read.format("cluster").options(clusterDir=str(directory), **options)


def lines(rows):
    """The payloads of a DataFrame's session messages, in the log's order."""
    found = rows.select("position", "entryType", "payload").toArrow().to_pylist()
    found.sort(key=lambda row: row["position"])
    return [row["payload"] for row in found if row["entryType"] == "SESSION_MESSAGE"]


@pytest.mark.conformance("P-1", "P-69")
@pytest.mark.parametrize(
    "member", [MEMBERS[0], *(pytest.param(member, marks=pytest.mark.slow) for member in MEMBERS[1:])]
)
def test_every_entry_of_a_real_cluster_is_a_row_with_its_values(spark, aeron, decoded, member):
    rows = source(spark, aeron / member).load().toArrow().to_pylist()

    assert [as_decoded(row) for row in rows] == [as_decoded(entry) for entry in decoded]


@pytest.mark.slow
@pytest.mark.conformance("P-1", "P-21")
def test_a_stream_has_the_same_rows_and_goes_on_over_another_members_directory(
    spark, aeron, decoded, tmp_path
):
    """Offsets name the cluster, not the member: recording ids and files differ, positions do not."""

    def start(member, **trigger):
        rows = stream(spark, aeron / member, maxEntriesPerTrigger="300", minPartitions="3").load()
        writer = rows.writeStream.format("parquet").trigger(**trigger)
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "rows"))

    first = start("member-1", processingTime="1 hour")
    wait_for(lambda: first.lastProgress is not None)
    first.stop()
    second = start("member-2", availableNow=True)
    second.awaitTermination()

    batches = [*first.recentProgress, *second.recentProgress]
    assert [batch["numInputRows"] for batch in batches] == [300, 300, 161]
    read = spark.read.parquet(str(tmp_path / "rows")).toArrow().to_pylist()
    read.sort(key=lambda row: row["position"])
    assert [as_decoded(row) for row in read] == [as_decoded(entry) for entry in decoded]


def test_a_range_of_time_has_the_rows_that_a_filter_on_the_column_has(spark, aeron, decoded):
    first, last = decoded[200], decoded[500]
    options = {
        "startingTimestamp": str(first["clusterTime"]),
        "endingTimestamp": last["timestamp"].isoformat(),
    }
    rows = source(spark, aeron / "member-1", **options).load().select("position").toArrow()

    wanted = [e["position"] for e in decoded if first["timestamp"] <= e["timestamp"] < last["timestamp"]]
    assert rows["position"].to_pylist() == wanted and len(wanted) > 100


PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
CONDITIONS = [
    "position >= 20000 AND timestamp BETWEEN timestamp_millis({0}) AND timestamp_millis({1})",
    "clusterSessionId = 2 AND entryType IN ('SESSION_MESSAGE', 'SESSION_OPEN')",
]


@pytest.fixture
def pushdown(spark):
    """Spark's setting, which lets a Python source take filters, for one test."""
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


@pytest.mark.conformance("P-76")
def test_filters_that_are_pushed_down_leave_the_answer_as_it_is(spark, aeron, decoded, pushdown):
    times = decoded[100]["clusterTime"], decoded[300]["clusterTime"]
    for condition in (text.format(*times) for text in CONDITIONS):
        pushed, plain = (
            source(spark, aeron / "member-1", **options).load().where(condition).toArrow().to_pylist()
            for options in ({"pushFilters": "true"}, {})
        )
        assert pushed == plain and 0 < len(plain) < len(decoded), condition


def test_the_range_that_filters_leave_is_all_that_is_planned(spark, aeron, pushdown):
    def greatest_task(**options):
        rows = source(spark, aeron / "member-1", maxBytesPerPartition="4k", **options).load()
        chosen = rows.where("position >= 40000 AND position < 44000")
        return max(row[0] for row in chosen.selectExpr("spark_partition_id()").collect())

    assert greatest_task(pushFilters="true") <= 1 < 9 <= greatest_task()


@pytest.mark.conformance("P-76")
def test_without_its_setting_spark_says_what_pushed_filters_need(spark, aeron):
    with pytest.raises(PySparkException, match=PUSHDOWN.replace(".", r"\.")):
        source(spark, aeron / "member-1", pushFilters="true").load().where("position > 96").count()


@pytest.mark.conformance("P-75")
def test_columns_and_frame_headers_by_option(spark, aeron, decoded):
    options = {"columns": "termOffset,position,frameSessionId", "includeFrameHeader": "true"}
    rows = source(spark, aeron / "member-0", **options).load()

    assert rows.columns == ["termOffset", "position", "frameSessionId"]
    got = rows.toArrow().to_pylist()
    assert [row["position"] for row in got] == [entry["position"] for entry in decoded]
    term_length = 1 << 16
    assert all(row["termOffset"] == row["position"] % term_length for row in got)


def test_one_session_of_the_log_by_option(spark, aeron, decoded):
    rows = source(spark, aeron / "member-2", sessions="2").load().select("position").toArrow()

    wanted = [entry["position"] for entry in decoded if entry.get("clusterSessionId") == 2]
    assert rows["position"].to_pylist() == wanted and wanted


def test_without_a_narrower_schema_the_rows_have_every_column(spark, aeron):
    fields = source(spark, aeron / "member-0").load().schema.fields

    assert [(f.name, f.dataType.simpleString().upper()) for f in fields] == [
        (name, kind) for name, (kind, _) in ROW_COLUMNS.items()
    ]
    assert all(f.nullable for f in fields)


@pytest.mark.parametrize("clusters", ["", ".eu"])
def test_times_have_a_zone_also_where_timestamp_stands_for_one_without(spark, aeron, decoded, clusters):
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        log = spark.read.format("cluster").option(f"clusterDir{clusters}", str(aeron / "member-0")).load()
        assert dict(log.dtypes)["timestamp"] == "timestamp"
        times = log.selectExpr("position", "unix_millis(timestamp) AS ms").orderBy("position").collect()
    finally:
        spark.conf.unset("spark.sql.timestampType")
    assert [row.ms for row in times] == [entry["clusterTime"] for entry in decoded]


@pytest.mark.conformance("P-75")
def test_a_narrower_schema_prunes_columns_and_orders_them_anew(spark, aeron, decoded):
    rows = source(spark, aeron / "member-0", entryTypes="TIMER").schema(
        "correlationId BIGINT, position BIGINT"
    )
    expected = [(e["correlationId"], e["position"]) for e in decoded if e["entryType"] == "TIMER"]

    assert [tuple(row) for row in rows.load().collect()] == expected


@pytest.mark.conformance("P-13")
def test_columns_may_be_spelt_in_any_case_and_keep_the_users(spark, aeron, decoded):
    rows = source(spark, aeron / "member-0").schema("ENDPOSITION BIGINT, clusterSessionID BIGINT").load()

    assert rows.columns == ["ENDPOSITION", "clusterSessionID"]
    expected = [(e["endPosition"], e.get("clusterSessionId")) for e in decoded]
    assert [tuple(row) for row in rows.collect()] == expected


def test_a_table_of_the_catalog_is_refused_when_it_is_made(spark, aeron):
    with pytest.raises(PySparkException, match=r"no tables of format cluster: .*CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE no_table USING cluster OPTIONS (clusterDir '{aeron / 'member-0'}')")


@pytest.mark.conformance("P-114")
def test_the_format_is_known_to_sql_and_by_registering(spark, aeron, decoded):
    """Every other test here has Spark find it without: the session registers nothing."""
    from spark_connector import register

    path = aeron / "member-0"
    spark.sql(f"CREATE TEMPORARY VIEW log USING cluster OPTIONS (clusterDir '{path}', minPartitions '2')")
    assert spark.table("log").count() == len(decoded)
    spark.catalog.dropTempView("log")
    register(spark)
    assert source(spark, path).load().count() == len(decoded)


@pytest.mark.conformance("P-16", "P-17")
@pytest.mark.parametrize(
    "options, says",
    [
        (
            {"startingOffset": "earliest"},
            "unknown source or sink option 'startingoffset'; did you mean startingOffsets",
        ),
        ({"minPartitions": "none"}, "option minPartitions is 'none'; expected a whole number"),
        ({"endpoints": "0=a:1"}, "both are given"),
        ({"commitTimeoutMs": "1"}, "option commitTimeoutMs is for a write, and this is a read"),
    ],
)
def test_wrong_options_fail_when_the_data_is_loaded(spark, aeron, options, says):
    for reader in (source(spark, aeron / "member-0"), stream(spark, aeron / "member-0")):
        with pytest.raises(PySparkException, match=says):
            reader.options(**options).load()


def test_a_directory_that_is_not_there_or_holds_no_cluster_fails_when_the_data_is_loaded(spark, tmp_path):
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(PySparkException, match=str(path)):
            stream(spark, path).load()


def test_a_column_that_the_log_does_not_have_is_refused(spark, aeron):
    rows = source(spark, aeron / "member-0").schema("position BIGINT, paylod BINARY").load()
    with pytest.raises(PySparkException, match="no column 'paylod'; did you mean payload"):
        rows.count()


def test_a_batch_keeps_the_range_of_its_first_action_until_it_is_loaded_again(spark, live):
    """Spark asks once a DataFrame, or view, which ranges there are."""
    live.lines(live.session_id, 0, 10)
    load = spark.read.format("cluster").option("clusterDir", str(live.directory)).load
    create = f"CREATE OR REPLACE TEMPORARY VIEW kept USING cluster OPTIONS (clusterDir '{live.directory}')"
    entries = load()
    spark.sql(create)
    counts = [entries.count(), spark.table("kept").count()]
    live.lines(live.session_id, 10, 5)

    assert [entries.count(), spark.table("kept").count()] == counts == [12, 12]
    assert len(entries.limit(5).collect()) == len(entries.take(5)) == 5
    spark.sql(create)
    assert [load().count(), spark.table("kept").count()] == [17, 17]
    spark.catalog.dropTempView("kept")


@pytest.mark.slow
@pytest.mark.conformance("P-26", "P-32", "P-33", "P-57", "P-109")
def test_a_running_query_delivers_what_is_committed_as_it_comes_and_makes_no_empty_batches(pipeline, live):
    sent = live.lines(live.session_id, 0, 100)
    query = pipeline.start(processingTime="100 milliseconds")
    query.processAllAvailable()
    assert pipeline.lines() == sent

    committed, seen = live.position, query.lastProgress["batchId"]
    live.messages(live.session_id, [b"in doubt"])
    for _ in range(20):
        live.commit(committed)  # the heartbeat goes on, what is committed does not
        query.processAllAvailable()
    assert pipeline.lines() == sent
    assert query.lastProgress["batchId"] == seen

    live.commit()
    query.processAllAvailable()
    assert pipeline.lines() == [*sent, b"in doubt"]
    latest = query.lastProgress["sources"][0]["latestOffset"]
    lag = {"bytesBehindLatest": 0, "entriesBehindLatest": 0, "msBehindLatest": 0}
    assert json.loads(latest) == {"position": live.position, **lag}


@pytest.mark.conformance("P-12", "P-21", "P-55")
def test_a_query_that_is_killed_stopped_and_started_again_loses_and_repeats_nothing(pipeline, live):
    """Options that say where to start do nothing then, not even those that a first start is refused for."""
    sent = live.lines(live.session_id, 0, 20)
    query = pipeline.start()
    query.processAllAvailable()
    (runner,) = source_runners()
    os.kill(runner, signal.SIGKILL)
    sent += live.lines(live.session_id, 20, 20)
    with pytest.raises(PySparkException):
        query.awaitTermination(60)

    sent += live.lines(live.session_id, 40, 20)
    pipeline.options["startingOffsets"] = '{"position": 1}'  # within an entry
    pipeline.run()
    assert pipeline.lines() == sent
    pipeline.options["startingOffsets"] = "latest"
    assert pipeline.run() == [], "nothing new"
    sent += live.lines(live.session_id, 60, 20)
    pipeline.run()
    assert pipeline.lines() == sent


@pytest.mark.slow
@pytest.mark.conformance("P-41", "P-42")
def test_a_query_whose_log_was_purged_fails_or_goes_on_where_it_begins(pipeline, live):
    live.lines(live.session_id, 0, 5)
    pipeline.run()
    live.lines(live.session_id, 5, 2000)
    start = live._recording.purge_to(2 * TERM_LENGTH)
    left = live.lines(live.session_id, 2005, 5)

    with pytest.raises(PySparkException, match=f"purged up to {start}"):
        pipeline.run()
    pipeline.options["failOnDataLoss"] = "false"
    pipeline.run()
    lost = 2010 - len(pipeline.lines())
    assert 0 < lost < 2000 and pipeline.lines()[-5:] == left


@pytest.mark.conformance("P-23", "P-31", "P-56")
@pytest.mark.parametrize("version", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_checkpoint_of_each_version_opens_and_goes_on(pipeline, live, version):
    """Recorded over such a log (record_checkpoint.py): its second batch was planned and not committed."""
    shutil.copytree(DATA.parent / f"spark-checkpoint-{version}", pipeline.checkpoint)
    sent = live.lines(live.session_id, 0, 40)
    sent += live.lines(live.session_id, 40, 10)

    assert pipeline.run() == [12, 10]
    assert pipeline.lines() == sent[28:], "the term, the session and 28 lines were in the first batch"


@pytest.mark.slow
@pytest.mark.conformance("P-22", "P-24", "P-27", "P-56")
@pytest.mark.parametrize("offsets", ["earliest", "latest"])
def test_a_batch_that_was_planned_but_not_committed_runs_again_as_it_was(pipeline, live, offsets):
    """With ``earliest`` it is the first one, whose start Spark has not written down."""
    pipeline.options["startingOffsets"] = offsets
    query = pipeline.start()
    query.processAllAvailable()
    sent = live.lines(live.session_id, 0, 30)
    query.processAllAvailable()
    query.stop()
    assert {batch_id: len(rows) for batch_id, rows in pipeline.taken.items()} == {
        "earliest": {0: 2, 1: 30},  # the term and the session stand before
        "latest": {0: 0, 1: 30},
    }[offsets]
    if offsets == "earliest":
        pipeline.forget(commits=[0, 1], offsets=[1])
        del pipeline.taken[1]  # never planned: it may end elsewhere
    else:
        pipeline.forget(commits=[1])
    sent += live.lines(live.session_id, 30, 30)

    assert pipeline.run() == {"earliest": [2, 60], "latest": [30, 30]}[offsets]
    assert pipeline.lines() == sent


@pytest.mark.slow
@pytest.mark.conformance("P-14", "P-27", "P-55")
def test_a_query_from_latest_that_died_before_its_first_commit_begins_where_it_first_began(pipeline, live):
    """Spark asks for the initial offset again, and ``latest`` has moved on by then."""
    pipeline.options["startingOffsets"] = "latest"
    assert pipeline.run() == [], "it ends, without anything new"
    pipeline.forget(commits=[0])
    sent = live.lines(live.session_id, 0, 30)

    assert pipeline.run() == [30]
    assert pipeline.lines() == sent


def source_runners():
    """The Python processes that plan for a running stream: children of this process's JVM."""
    parents, runners = {}, []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parents[process.name] = (process / "stat").read_text().rpartition(")")[2].split()[1]
            if b"python_streaming_source_runner" in (process / "cmdline").read_bytes():
                runners.append(process.name)
        except OSError:
            continue  # it ended while we looked
    return [int(pid) for pid in runners if parents.get(parents.get(pid)) == str(os.getpid())]


@pytest.mark.conformance("P-57")
def test_a_batch_slower_than_its_trigger_is_followed_by_one_with_all_that_came_meanwhile(pipeline, live):
    first, go_on = live.lines(live.session_id, 0, 10), threading.Event()
    take = pipeline.take

    def slow(batch, batch_id):
        take(batch, batch_id)
        assert batch_id > 0 or go_on.wait(120)

    pipeline.take = slow
    query = pipeline.start(processingTime="10 milliseconds")
    wait_for(lambda: pipeline.lines() == first, seconds=110)
    meanwhile = [line for begin in range(10, 60, 10) for line in live.lines(live.session_id, begin, 10)]
    go_on.set()
    query.processAllAvailable()

    assert pipeline.lines() == first + meanwhile
    assert len(pipeline.taken) == 2


def test_min_partitions_cut_a_batch_into_as_many_tasks(spark, live):
    sent = [b"%d" % n * 500 for n in range(200)]
    live.messages(live.session_id, sent)
    live.commit()
    rows = source(spark, live.directory, minPartitions="7").load()

    assert rows.rdd.getNumPartitions() == 7
    assert lines(rows) == sent


@pytest.mark.slow
@pytest.mark.conformance("P-28")
def test_one_stream_used_twice_in_a_query_has_the_right_rows(pipeline, live, spark, tmp_path):
    live.lines(live.session_id, 0, 10)
    rows = stream(spark, live.directory).load()
    query = (
        rows.unionAll(rows)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "twice"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rows"))
    )
    query.awaitTermination()

    assert spark.read.parquet(str(tmp_path / "rows")).count() == 2 * 12
    assert len(query.lastProgress["sources"]) == 1


@pytest.mark.slow
@pytest.mark.conformance("P-20")
def test_a_checkpoint_of_another_cluster_fails_the_query_and_names_both(pipeline, live, tmp_path):
    live.lines(live.session_id, 0, 3)
    pipeline.run()
    other, _ = open_log(tmp_path / "other", time=1_900_000_000_000)
    pipeline.log = other
    try:
        with pytest.raises(
            PySparkException, match=r"(?s)0:1800000000000:1877313736.*0:1900000000000:1877313736"
        ):
            pipeline.run()
    finally:
        other.stop()


@pytest.mark.slow
def test_a_checkpoint_beyond_the_end_of_the_log_fails_the_query(pipeline, live, tmp_path):
    live.lines(live.session_id, 0, 100)
    pipeline.run()
    older, _ = open_log(tmp_path / "older")  # the same cluster, as it was before the lines
    older.stop()
    pipeline.log = older

    with pytest.raises(
        PySparkException, match=rf"stands at position {live.position} .*ends at {older.position}"
    ):
        pipeline.run()


@pytest.mark.conformance("P-58")
@pytest.mark.parametrize(
    "trigger, says", [({"continuous": "1 second"}, "continuous"), ({"realTime": "5 minutes"}, "REAL_TIME")]
)
def test_continuous_processing_is_refused(spark, live, tmp_path, trigger, says):
    query = (
        stream(spark, live.directory)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(**trigger)
    )
    with pytest.raises(PySparkException, match=says):
        query.start().awaitTermination(60)
