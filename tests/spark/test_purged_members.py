"""Spark over members that have purged the head of their log: exported files, and replays of a service."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from cluster import ClusterClient
from cluster.archive.files import OsFiles
from cluster.backup.member_snapshots import MemberSnapshots
from cluster.cli.tool import app as tool
from cluster.errors import LogPurged, MembersApart, TimedOut
from cluster.reader import LogReader
from cluster.reader.exported_log import ExportedLog
from cluster.reader.snapshots import DirectorySnapshots
from jobs.demo.cluster_process import ClusterProcess, free_base_port
from spark_connector import replay_service, replayed_stream
from spark_connector.options import SourceOptions
from spark_connector.source import ClusterBatchReader
from tests.spark.pipeline import wait_for
from tests.spark.readers import COLUMNS, payloads
from tests.spark.service_streams import each, offsets, rows, stream

ECHO = "tests.spark.replayed_services:Batched"
TERM_LENGTH = 64 * 1024
SETTINGS = (
    "log_term_length=64k",
    "archive_segment_file_length=64k",
    "log_retained_snapshots=2",
)
SENT = [b"%3d" % number * 400 for number in range(600)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Members that have dropped the begin of their log, as they are configured to."""
    folder = tmp_path_factory.mktemp("members") / "c1"
    with ClusterProcess(folder, ECHO, free_base_port(), SETTINGS) as process:
        with ClusterClient.connect(process.endpoints) as client:
            for number, message in enumerate(SENT, 1):
                while client.offer(message) < 0:
                    client.wait(0.01)
                if number % 100 == 0:
                    client.await_committed(20)
                    with LogReader.open(endpoints=process.endpoints) as reader:
                        list(ExportedLog(str(folder / "exported")).append(reader))
                    done = CliRunner().invoke(tool, ["snapshot", "--dir", str(folder)])
                    assert done.exit_code == 0, done.output
        with LogReader.open(endpoints=process.endpoints) as reader:
            snapshots = DirectorySnapshots([str(folder / "member-0")], 0)
            kept = snapshots.newest(snapshots.newest(None) - 1)
            assert kept > TERM_LENGTH
            wait_for(lambda: reader.end_position() and reader.start_position > kept - TERM_LENGTH)
        yield process


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(replayed_stream, "_kept", {})


@pytest.mark.conformance("S-300")
def test_with_its_exported_files_the_log_has_all_that_was_sent(cluster):
    options = {"endpoints": cluster.endpoints, "exportDir": str(cluster.directory / "exported")}
    found = []
    for given in (options, {"endpoints": cluster.endpoints}):
        parsed = SourceOptions.parse(
            {"entryTypes": "SESSION_MESSAGE", "maxBytesPerPartition": "64k", **given}
        )
        reader = ClusterBatchReader(parsed, COLUMNS)
        found.append(payloads(reader, reader.partitions()))
    assert found[0] == SENT
    assert 0 < len(found[1]) < len(SENT)


def over(cluster, **options):
    return stream(None, ECHO, endpoints=cluster.endpoints, kinds="EGRESS,STATE", **options)


@pytest.mark.conformance("S-301")
def test_a_service_goes_on_from_a_snapshot_that_a_member_sends(cluster):
    reader = over(cluster, maxEntriesPerTrigger="50")
    places = offsets(reader)
    taken = each(reader, places)

    answers = [row["payload"] for some in taken for row in some if row["kind"] == "EGRESS"]
    assert 0 < len(answers) < len(SENT) and answers == SENT[-len(answers) :]
    assert [row["payload"] for row in taken[-1] if row["kind"] == "STATE"] == [b"600"], "with those purged"
    for number in reversed(range(len(taken))):
        replayed_stream._kept.clear()
        assert rows(reader, *places[number : number + 2]) == taken[number]


def test_the_intervals_that_members_retain_are_replayed_and_compared_with_what_they_send(spark, cluster):
    replayed = replay_service(spark, ECHO, endpoints=cluster.endpoints)

    compared = replayed.snapshots.collect()
    stored = DirectorySnapshots([str(cluster.directory / "member-0")], 0)
    newest = stored.newest(None)
    assert {(row["beginPosition"], row["position"]) for row in compared} == {
        (stored.newest(newest - 1), newest)
    }
    assert sorted(row["memberId"] for row in compared) == [0, 1, 2] and replayed.verify() == 3
    answers = [row["payload"] for row in replayed.egress.orderBy("beginPosition", "number").collect()]
    assert 0 < len(answers) < len(SENT) and answers == SENT[-len(answers) :]

    endpoint = cluster.endpoints.split(",")[0]
    other = replay_service(spark, f"{ECHO.split(':')[0]}:Twice", endpoints=endpoint)
    with pytest.raises(MembersApart, match=rf"^3 of 3 snapshots .* at position {newest}, replayed from .*60"):
        other.verify()


def test_members_send_what_is_in_their_directories(cluster):
    stored = DirectorySnapshots([str(cluster.directory / "member-0")], 0)
    sent = MemberSnapshots(cluster.endpoints.split(",")[0], 0)
    at, found = stored.newest(None), []
    while at is not None:
        copies = [list(copy.open(OsFiles())) for copy in sent.copies(at)]
        (expected,) = (list(copy.open(OsFiles())) for copy in stored.copies(at))
        assert copies == [expected] * 3
        found.append(at)
        at = stored.newest(at - 1)
    assert len(found) >= 2 and sent.newest(found[0]) == found[0] and sent.newest(found[0] - 1) == found[1]
    assert sent.newest(found[-1] - 1) is None
    sent.close()


def test_a_place_before_the_first_snapshot_is_refused_when_the_query_starts(cluster):
    with LogReader.open(endpoints=cluster.endpoints) as reader:
        start = reader.start_position
        begin = next(reader.entries(start))["position"]
    with pytest.raises(LogPurged, match=f"{begin} is gone: the log begins at {start}, and no snap"):
        over(cluster, startingOffsets=f'{{"position": {begin}}}').initialOffset()


def test_without_any_member_the_reasons_are_given():
    with pytest.raises(TimedOut, match=r"no member answers: .*127\.0\.0\.1:1"):
        MemberSnapshots("127.0.0.1:1", 0, timeout_s=1)
