"""A stream's consumer group on a real member: what it reports, where it begins, and what cannot be."""

import json

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StructField, StructType

from benchmarks.real_members import await_that
from cluster import ClusterClient, Consumer, LogReader
from cluster.errors import ConfigurationError, LogPurged
from cluster.reader.consumers import REPORTS, reported_groups
from cluster.reader.group_reports import GroupReports
from spark_connector.data_source import ClusterDataSource
from spark_connector.options.cluster_options import SourceOptions
from spark_connector.source.readers import ClusterStreamReader
from tests.archive.logs import a_log
from tests.archive.members import write_member
from tests.node.processes import Up


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory):
    with Up(tmp_path_factory.mktemp("cluster"), members=1) as cluster:
        yield cluster.endpoints


def stream(endpoints, group, **options):
    given = {"endpoints": endpoints, "consumerGroup": group, "startingOffsets": "group", **options}
    return ClusterStreamReader(SourceOptions.parse(given), ("position",))


def reported(endpoints, group):
    with LogReader.open(endpoints=endpoints, entry_filter=REPORTS) as reader:
        found = reported_groups(reader.log).get(group)
        return None if found is None else found.position


def reported_end(endpoints):
    with LogReader.open(endpoints=endpoints) as reader:
        return reader.commit_position()


@pytest.mark.conformance("S-236")
def test_a_stream_reports_what_it_has_committed_and_the_next_one_begins_there(endpoints):
    with ClusterClient.connect(endpoints) as client:
        client.offer(b"one")
        client.await_committed()
    first = stream(endpoints, "billing")
    begin = first.initialOffset()
    assert begin["position"] == 0, "all of the log is new to a group without a report"
    end = first.latestOffset(begin, ReadAllAvailable())
    assert reported(endpoints, "billing") is None

    first.commit(end)
    await_that(lambda: reported(endpoints, "billing") == end["position"], "the report is in the log")
    first.stop()
    assert stream(endpoints, "billing").initialOffset()["position"] == end["position"]
    assert stream(endpoints, "audit").initialOffset()["position"] == 0


def test_the_last_commit_is_reported_when_the_query_ends(endpoints):
    reader = stream(endpoints, "search", startingOffsets="earliest")
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    reader.commit(begin)
    await_that(lambda: reported(endpoints, "search") == begin["position"], "the first report is in the log")
    reader.commit(end)  # within the interval after the first
    reader.stop()
    assert reported(endpoints, "search") == end["position"]


@pytest.mark.conformance("S-236")
def test_a_report_that_fails_fails_no_trigger_and_is_told_once(endpoints):
    ahead = reported_end(endpoints)
    ClusterClient.connect(endpoints, consumer=Consumer("ahead", ahead)).close()
    told = []
    reports = GroupReports("ahead", endpoints, told.append, interval_s=0.01)
    for position in (0, 32, 64):
        reports.reached(position)
        await_that(lambda: not reports._is_due, "the report is being made")
    reports.close()
    assert told == [
        "consumer group ahead is not reported at 0: the cluster refused the session: consumer group ahead: "
        f"position 0 is before {ahead}, which the group is at"
    ]


def test_several_clusters_have_groups_of_their_own(endpoints):
    options = {"endpoints.eu": endpoints, "consumerGroup.eu": "routed", "startingOffsets": "earliest"}
    source = ClusterDataSource(options)
    reader = source.streamReader(StructType([StructField("position", LongType())]))
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    reader.commit(end)
    expected = end["clusters"]["eu"]["position"]
    await_that(lambda: reported(endpoints, "routed") == expected, "the report is in the log")
    reader.stop()


def test_a_group_without_a_report_in_a_purged_log_loses_data_by_name(tmp_path, monkeypatch):
    write_member(tmp_path, a_log(20))
    options = SourceOptions.parse({"endpoints": "0=a:1", "consumerGroup": "late", "startingOffsets": "group"})
    reader = ClusterStreamReader(options, ("position",))

    class Purged:
        cluster, group = "c", "late"

        def committed_end(self):
            return 8192

        def earliest(self):
            return 4096

        def group_position(self):
            return None

        def after_purge(self, what, start):
            raise LogPurged(what, start)

    monkeypatch.setattr(reader, "_log", Purged())
    told = "where consumer group late is was asked for, which has no report left"
    with pytest.raises(LogPurged, match=told):
        reader.initialOffset()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"clusterDir": "x", "consumerGroup": "billing"},
            "option consumerGroup goes with endpoints, which is not given",
        ),
        (
            {"endpoints": "0=a:1", "startingOffsets": "group"},
            "option startingOffsets is group, and option consumerGroup is not given",
        ),
        (
            {"endpoints": "0=a:1", "consumerGroup": ""},
            "option consumerGroup is ''; expected a text of 1 to 256 bytes that is not blank",
        ),
    ],
    ids=lambda value: json.dumps(value)[:40],
)
def test_options_that_cannot_be_are_refused(options, told):
    with pytest.raises(ConfigurationError) as refused:
        SourceOptions.parse(options)
    assert str(refused.value) == told


@pytest.mark.slow
def test_spark_has_a_query_report_its_last_batch(endpoints, spark, tmp_path):
    from spark_connector import register

    register(spark)

    def run():
        rows = spark.readStream.format("cluster").option("endpoints", endpoints)
        rows = rows.option("consumerGroup", "spark").option("startingOffsets", "group").load()
        query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = query.trigger(availableNow=True).start()
        query.awaitTermination()
        return json.loads(query.lastProgress["sources"][0]["endOffset"])["position"]

    end = run()
    assert reported(endpoints, "spark") == end
    with ClusterClient.connect(endpoints) as client:
        client.offer(b"more")
        client.await_committed()
    assert run() == reported(endpoints, "spark") > end
