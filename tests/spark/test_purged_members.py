"""Spark over members that have purged the head of their log: exported files, and replays of a service."""

from __future__ import annotations

import re
from collections import Counter
from functools import partialmethod
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from cluster import ClusterClient, ConfigurationError
from cluster.cli.tool import app as tool
from cluster.errors import ClusterError, LogPurged, MembersApart, TimedOut
from cluster.reader import LogReader
from cluster.reader.exported_log import ExportedLog
from cluster.reader.member_snapshots import MemberSnapshots
from cluster.reader.member_supplier import MemberSupplier
from cluster.reader.remote import RemoteLog
from cluster.reader.snapshots import DirectorySnapshots
from jobs.schemas import PENDING
from jobs.sessions import opened_before
from jobs.timers import TimersOfSnapshots
from spark_connector import register, replay_service
from spark_connector.options.cluster_options import SourceOptions
from spark_connector.replay import replayed_stream
from spark_connector.replay.replay_source import ReplayDataSource
from spark_connector.replay.replayed_service import ReplayedService
from spark_connector.snapshots.snapshot_source import SnapshotDataSource
from spark_connector.source.readers import ClusterBatchReader
from tests.node.processes import Up
from tests.spark.pipeline import wait_for
from tests.spark.readers import COLUMNS, payloads, snapshot_rows
from tests.spark.service_streams import each, offsets, rows, stream

ECHO = "tests.spark.replayed_services:Reminded"
NOBODY = "9=127.0.0.1:1"
TERM_LENGTH = 64 * 1024
SETTINGS = (
    "--set=log_term_length=64k",
    "--set=archive_segment_file_length=64k",
    "--set=log_retained_snapshots=2",
)
SENT = [b"%3d" % number * 400 for number in range(600)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Members that have dropped the begin of their log, as they are configured to."""
    folder = tmp_path_factory.mktemp("members") / "c1"
    with Up(folder, "--service", ECHO, *SETTINGS) as process:
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


@pytest.mark.slow
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


@pytest.mark.slow
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
        copies = [list(copy.open()) for copy in sent.copies(at)]
        (expected,) = (list(copy.open()) for copy in stored.copies(at))
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


# ---- each snapshot once, and of each member


@pytest.fixture
def fetched(monkeypatch):
    """How often each recording of each member was fetched."""
    counts = Counter()
    read_recording = MemberSupplier.read_recording

    def counting(supplier, recording_id):
        counts[supplier.name, recording_id] += 1
        return read_recording(supplier, recording_id)

    monkeypatch.setattr(MemberSupplier, "read_recording", counting)
    return counts


def replayed_rows(fetched, **options):
    """The rows of each task, and what it fetched more than once."""
    source = ReplayDataSource({"service": ECHO, **options})
    reader = source.reader(source.schema())
    for partition in reader.partitions():
        fetched.clear()
        found = [row for batch in reader.read(partition) for row in batch.to_pylist()]
        yield found, {recording: count for recording, count in fetched.items() if count > 1}


@pytest.mark.parametrize("kinds", ["SNAPSHOT", "STATE", "EGRESS,SNAPSHOT,STATE"])
def test_a_task_fetches_each_snapshot_once(cluster, fetched, kinds):
    tasks = list(replayed_rows(fetched, endpoints=cluster.endpoints, kinds=kinds))

    assert len(tasks) == 2 and all(again == {} for _, again in tasks)
    assert fetched, "the last one begins with a snapshot, and compares none"


@pytest.fixture
def impatient(monkeypatch):
    """Whoever asks all members where the log begins gives those up soon that do not answer."""
    monkeypatch.setattr(RemoteLog, "__init__", partialmethod(RemoteLog.__init__, give_up_s=2))


def test_a_member_that_does_not_answer_is_in_the_rows_and_in_what_verify_says(
    cluster, fetched, impatient, monkeypatch, capfd
):
    tasks = replayed_rows(fetched, endpoints=f"{cluster.endpoints},{NOBODY}", kinds="SNAPSHOT")
    found = [row for rows_of_task, _ in tasks for row in rows_of_task]
    (silent,) = (row for row in found if row["memberId"] == 9)
    assert (silent["isEqual"], silent["directory"]) == (None, "127.0.0.1:1")
    assert silent["position"] == found[0]["position"]
    says = "not compared: member 9 at 127.0.0.1:1 does not answer: "
    assert silent["message"].startswith(says)
    capfd.readouterr()
    monkeypatch.setattr(ReplayedService, "snapshots", SimpleNamespace(collect=lambda: found))
    assert ReplayedService(None, {"service": ECHO}).verify() == 3
    assert re.search(rf"cluster source: the snapshot at position {found[0]['position']} is {says}",
                     capfd.readouterr().err)  # fmt: skip


# ---- snapshots as rows


def test_the_rows_of_snapshots_that_members_send_are_those_of_their_directories(cluster, capfd):
    there = snapshot_rows(endpoints=f"{cluster.endpoints},{NOBODY}")
    here = snapshot_rows(clusterDir=str(cluster.directory))

    assert {row["memberId"] for row in there} == {0, 1, 2} and {row["serviceId"] for row in there} == {-1, 0}
    assert len({row["logPosition"] for row in there}) >= 2
    assert [{**row, "directory": ""} for row in there] == [{**row, "directory": ""} for row in here]
    assert {f"{row['memberId']}={row['directory']}" for row in there} == set(cluster.endpoints.split(","))
    said = capfd.readouterr().err
    assert "cluster source: member 9 at 127.0.0.1:1 does not answer: " in said
    latest = snapshot_rows(endpoints=cluster.endpoints, latest="true", serviceIds="0")
    assert latest == [row for row in there if row["logPosition"] == there[-1]["logPosition"]
                      and row["serviceId"] == 0]  # fmt: skip


def test_a_member_that_answered_to_the_plan_and_not_to_the_task_fails_it(cluster, monkeypatch):
    source = SnapshotDataSource({"endpoints": cluster.endpoints})
    reader = source.reader(source.schema())
    (partition, *_) = reader.partitions()
    read_recording = MemberSupplier.read_recording

    def failing(supplier, recording_id):
        if supplier.name == cluster.endpoints.rpartition("=")[2]:
            raise ClusterError("no more")
        return read_recording(supplier, recording_id)

    monkeypatch.setattr(MemberSupplier, "read_recording", failing)
    with pytest.raises(ClusterError, match="no more"):
        list(reader.read(partition))


def test_spark_reads_the_snapshots_of_members(spark, cluster):
    register(spark)
    found = spark.read.format("cluster-snapshot").option("endpoints", cluster.endpoints).load()

    assert found.where("NOT membersAgree").count() == 0
    timers = found.where("recordType = 'TIMER'").select("memberId", "correlationId").distinct()
    assert sorted(map(tuple, timers.collect())) == [(0, 7), (1, 7), (2, 7)]


def test_snapshots_are_of_members_or_of_directories():
    for options, text in (
        ({"endpoints": "h:1", "clusterDir": "c1"}, "needs option endpoints or option clusterDir; both are"),
        ({"clusterDir": "c1", "requestTimeoutMs": "1"}, "option requestTimeoutMs goes with endpoints"),
        ({"endpoints": "h:1", "archiveDir": "a"}, "option archiveDir goes with clusterDir, which is not"),
        ({"endpoints": "h:1", "user": "u"}, "option user goes with passwordFile, which is not"),
    ):
        with pytest.raises(ConfigurationError, match=text):
            SnapshotDataSource(options)
    with pytest.raises(TimedOut, match="no member answers: "):
        snapshot_rows(endpoints=NOBODY, requestTimeoutMs="1000")


# ---- what the jobs take of snapshots


def test_jobs_take_sessions_and_timers_of_a_purged_head_from_members(cluster):
    there, here = {"endpoints": cluster.endpoints}, {"clusterDir": str(cluster.directory / "member-0")}

    sessions = opened_before(there)
    assert [row["clusterSessionId"] for row in sessions] == [1] and sessions == opened_before(here)
    of_members, of_directory = TimersOfSnapshots(there), TimersOfSnapshots(here)
    timers = of_members(True, 1 << 40)
    assert timers == of_directory(True, 1 << 40)
    assert {row["correlationId"] for row in timers if row["entryType"] == PENDING} == {7}
    assert of_members(False, 1 << 40) == [], "each snapshot once"


def test_jobs_over_endpoints_keep_the_tables_that_they_keep_over_a_directory(cluster, tmp_path):
    from deltalake import DeltaTable

    from tests.jobs.without_spark import run_over

    kept = {}
    for name, where in (
        ("there", ("--endpoints", cluster.endpoints)),
        ("here", ("--cluster-dir", str(cluster.directory / "member-0"))),
    ):
        for table in ("sessions", "timers"):
            run_over(where, tmp_path / name / table)
            kept[name, table] = DeltaTable(tmp_path / name / table).to_pyarrow_table().to_pylist()
    for table in ("sessions", "timers"):
        assert kept["there", table] == kept["here", table]
    (session, *_) = kept["there", "sessions"]
    assert (session["clusterSessionId"], session["openPosition"]) == (1, None)
    assert session["correlationId"] is not None
    assert [(row["correlationId"], row["state"]) for row in kept["there", "timers"]] == [(7, "SCHEDULED")]
