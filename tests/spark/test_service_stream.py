"""A stream with option ``service``: what the service does, the same whoever has its state, after any loss."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from typer.testing import CliRunner

from cluster.archive.files import OsFiles
from cluster.cli.archive import app as archive_commands
from cluster.errors import ClusterError, ConfigurationError, LogPurged
from cluster.reader.snapshots import stored_snapshots
from cluster.testing import SimulatedCluster
from examples.order_book import OrderBook
from spark_connector.data_source import ClusterDataSource
from spark_connector.replay import replayed_stream
from spark_connector.replay.replay_columns import STREAM_COLUMNS
from tests.spark.replayed_services import Batched
from tests.spark.service_streams import BOOK, each, offsets, rows, stream
from tests.spark.simulated import write_out

SERVICES = "tests.spark.replayed_services"
SEGMENT_LENGTH = 1024 * 1024  # of a simulated member


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A member with an order book and three snapshots; and what its client was answered."""
    cluster = SimulatedCluster(OrderBook, members=1)
    alice = cluster.connect("alice")
    for price in range(5, 9):
        for order in (b"buy 3 %d" % price, b"sell 2 1", b"buy 1 1 ioc"):
            alice.offer(order)
        if price < 8:
            cluster.take_snapshot()
    cluster.settle()
    folder = write_out(cluster, tmp_path_factory.mktemp("orders"))
    return Path(folder) / "member-0", alice.received


@pytest.fixture
def member(played, tmp_path):
    return shutil.copytree(played[0], tmp_path / "member-0")


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(replayed_stream, "_kept", {})


def purge(directory, position):
    done = CliRunner().invoke(archive_commands, ["purge", str(position), "--dir", str(directory), "--yes"])
    assert done.exit_code == 0, done.output


def test_answers_come_micro_batch_by_micro_batch_and_all_of_them_once(played):
    directory, received = played
    reader = stream(directory, maxEntriesPerTrigger="4")
    places = offsets(reader)
    taken = each(reader, places)

    assert len(taken) == 5
    assert [row["payload"] for some in taken for row in some if row["kind"] == "EGRESS"] == received
    for some, begin, end in zip(taken, places, places[1:]):
        assert [row["number"] for row in some] == list(range(len(some)))
        for row in some:
            assert row["beginPosition"] == begin["position"] < row["position"] <= row["endPosition"]
            assert row["endPosition"] == end["position"]


@pytest.mark.conformance("S-301")
def test_a_process_without_the_state_makes_it_again_and_gives_the_same_rows(played, monkeypatch):
    reader = stream(played[0], maxEntriesPerTrigger="4", kinds="EGRESS,STATE")
    places = offsets(reader)
    taken = each(reader, places)
    made = []
    begun = replayed_stream._begun
    monkeypatch.setattr(replayed_stream, "_begun", lambda *given: made.append(given[2]) or begun(*given))

    assert each(reader, places)[:1] == taken[:1] and len(made) == 1, "another place than where it is kept"
    for number in reversed(range(len(taken))):
        assert rows(reader, *places[number : number + 2]) == taken[number]
    begins = [0 if snapshot is None else snapshot.log_position for snapshot in made]
    assert len(set(begins)) == 4, "nothing, and three snapshots"
    made.clear()
    assert each(reader, places) == taken and len(made) == 1, "the first begins, and the others go on"


def test_a_task_that_is_cut_off_leaves_no_half_given_service(played):
    reader = stream(played[0], maxEntriesPerTrigger="100", kinds="EGRESS")
    start, end = offsets(reader)
    expected = rows(reader, start, end)
    (part,) = reader.partitions(start, end)
    replaying = replayed_stream.service_rows(reader._options, part)
    next(replaying)
    replaying.close()

    assert replayed_stream._kept == {}
    assert rows(reader, start, end) == expected


# ---- a log whose head is purged


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """A member with a log of several segments and three snapshots, of a service that echoes and counts."""
    cluster = SimulatedCluster(Batched, members=1)
    alice = cluster.connect("alice")
    for number in range(80):
        alice.offer(b"%2d" % number * 20_000)
        if number % 20 == 19 and number < 79:
            cluster.take_snapshot()
    cluster.settle()
    return Path(write_out(cluster, tmp_path_factory.mktemp("long"))) / "member-0"


ECHO = f"{SERVICES}:Batched"


@pytest.fixture
def purged(long, tmp_path):
    """Offsets of micro-batches, their rows, and the member's directory without the head of the log."""
    reader = stream(long, ECHO, maxEntriesPerTrigger="10", kinds="EGRESS,STATE")
    places = offsets(reader)
    taken = each(reader, places)
    directory = shutil.copytree(long, tmp_path / "member-0")
    purge(directory, SEGMENT_LENGTH)
    replayed_stream._kept.clear()
    return places, taken, directory


@pytest.mark.conformance("S-301")
def test_a_stream_goes_on_over_a_purged_log_from_the_snapshot_before_its_checkpoint(purged):
    places, taken, directory = purged
    snapshots = sorted({one.log_position for one in stored_snapshots(OsFiles(), str(directory))})
    reached = [n for n, place in enumerate(places[:-1]) if place["position"] >= snapshots[1]]

    reader = stream(directory, ECHO, maxEntriesPerTrigger="10", kinds="EGRESS,STATE")
    assert snapshots[0] < SEGMENT_LENGTH < snapshots[-1] and len(reached) > 3
    for number in reached:
        assert rows(reader, *places[number : number + 2]) == taken[number]
        replayed_stream._kept.clear()
    assert [row["payload"] for row in taken[-1] if row["kind"] == "STATE"] == [b"80"]
    with pytest.raises(LogPurged, match=f"the log begins at {SEGMENT_LENGTH}, and no snapshot of service 0"):
        rows(reader, *places[:2])


def test_earliest_is_the_first_snapshot_that_a_purged_log_reaches(purged):
    _, taken, directory = purged
    first = min(
        one.log_position
        for one in stored_snapshots(OsFiles(), str(directory))
        if one.log_position >= SEGMENT_LENGTH
    )
    reader = stream(directory, ECHO, kinds="EGRESS")
    places = offsets(reader)

    assert places[0]["position"] == first
    expected = [row for some in taken for row in some if row["kind"] == "EGRESS" and row["position"] > first]
    found = [row for some in each(reader, places) for row in some]
    assert [row["payload"] for row in found] == [row["payload"] for row in expected]
    with pytest.raises(LogPurged, match=f"of .*:Batched at position {SEGMENT_LENGTH} is gone"):
        where = f'{{"position": {SEGMENT_LENGTH}}}'
        stream(directory, ECHO, startingOffsets=where).initialOffset()


def test_a_snapshot_that_is_damaged_is_passed_over_for_one_before_it(played, member, capsys):
    reader = stream(played[0], maxEntriesPerTrigger="4")
    places = offsets(reader)
    taken = each(reader, places)
    newest = max(stored_snapshots(OsFiles(), str(member)), key=lambda one: (one.log_position, one.service_id))
    (segment,) = (member / "archive").glob(f"{newest.recording_id}-*.rec")
    data = bytearray(segment.read_bytes())
    data[40] ^= 1
    segment.write_bytes(data)
    replayed_stream._kept.clear()

    assert rows(stream(member), *places[-2:]) == taken[-1]
    assert f"the snapshot at position {newest.log_position} is passed over: " in capsys.readouterr().err


# ---- what is refused


def test_options_that_choose_rows_or_copies_do_not_go_with_a_service(member):
    for options, says in (
        ({"entryTypes": "TIMER"}, "option service is given, and entryTypes, which is not for it"),
        *(
            ({name: "2"}, f"option service is given, and {name}")
            for name in ("minPartitions", "maxPartitions", "maxBytesPerPartition", "rowsPerBatch")
        ),
        ({"failOnDataLoss": "false"}, "option service is given, and failOnDataLoss"),
        ({"exportDir": "x"}, "option service is given, and exportDir"),
        ({"kinds": "SNAPSHOT"}, "option kinds is 'SNAPSHOT'; expected no SNAPSHOT"),
        (
            {
                "service": "",
            },
            "option service is ''",
        ),
    ):
        with pytest.raises(ConfigurationError, match=says):
            stream(member, **options)
    for option in ("serviceId", "kinds"):
        with pytest.raises(ConfigurationError, match=f"option {option} goes with service"):
            ClusterDataSource(
                {"clusterDir": str(member), option: "1" if option == "serviceId" else "ERROR"}
            ).schema()
    source = ClusterDataSource({"clusterDir": str(member), "service": BOOK})
    with pytest.raises(ConfigurationError, match="is for a stream; format cluster-replay gives"):
        source.reader(source.schema())
    with pytest.raises(ConfigurationError, match="a service has one log"):
        ClusterDataSource({"clusterDir.a": str(member), "service": BOOK}).schema()


def test_a_service_that_cannot_be_made_is_said_with_the_micro_batch(played):
    reader = stream(played[0], "nowhere:It")
    with pytest.raises(ClusterError, match=r"of nowhere:It from position 0 to \d+ failed: .*no module"):
        rows(reader, *offsets(reader)[:2])


# ---- through Spark


@pytest.mark.slow
@pytest.mark.conformance("S-301")
def test_a_query_that_is_stopped_and_started_again_has_every_answer_once(spark, played, tmp_path):
    directory, received = played
    log = (
        spark.readStream.format("cluster")
        .option("clusterDir", str(directory))
        .option("startingOffsets", "earliest")
        .option("service", BOOK)
        .option("maxEntriesPerTrigger", "4")
        .load()
    )
    assert log.schema.fieldNames() == list(STREAM_COLUMNS)
    taken, failures = {}, []

    def take(batch, batch_id):
        answers = batch.where("kind = 'EGRESS'").orderBy("number").select("payload").collect()
        assert taken.setdefault(batch_id, answers) == answers
        if batch_id == 2 and not failures:
            failures.append(batch_id)
            raise RuntimeError("the sink fails")

    for fails in (True, False):
        query = (
            log.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        if fails:
            with pytest.raises(StreamingQueryException, match="the sink fails"):
                query.awaitTermination()
        else:
            query.awaitTermination()
    assert [row["payload"] for batch_id in sorted(taken) for row in taken[batch_id]] == received
