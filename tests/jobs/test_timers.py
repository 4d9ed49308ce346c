"""The table of timers: what the Log says of them, and what snapshots say."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path

import deltalake
import pytest

from cluster import ClusteredService, LogDamaged, NotAClusterDirectory, TimedOut
from cluster.archive.archive import Archive
from cluster.archive.files import OsFiles
from cluster.reader.snapshots import StoredSnapshot, stored_snapshots
from cluster.testing import SimulatedCluster
from jobs import rebuild, verify
from jobs.command import JobOptions, checkpoint_in
from jobs.delta_table import Commit, open_table, read
from jobs.keeping import keep
from jobs.schemas import PENDING, SNAPSHOT, TIMERS
from jobs.timers import LOG_COLUMNS, TimersOfSnapshots, timers_job
from spark_connector.log import open_reader
from spark_connector.options.cluster_options import SourceOptions
from spark_connector.schema import ddl
from tests.jobs import expected
from tests.jobs.conftest import naive, naive_rows, rows_by
from tests.jobs.timelines import cut_by_position, drawn_timers
from tests.jobs.without_spark import run
from tests.spark.simulated import write_out

pytestmark = pytest.mark.timeout(600)  # queries that start, on a machine that may be busy


class AlarmClock(ClusteredService):
    """``set ID DELAY`` and ``cancel ID`` are done as they say."""

    def on_start(self, cluster, snapshot_image):
        self._cluster = cluster

    def on_session_message(self, session, timestamp, payload):
        verb, timer, *delay = bytes(payload).split()
        if verb == b"set":
            self._cluster.schedule_timer(int(timer), timestamp + int(delay[0]))
        else:
            self._cluster.cancel_timer(int(timer))


def keep_timers(spark, directory, table, **source):
    options = JobOptions.over({"clusterDir": f"{directory}/member-0", **source}, table, say=lambda _: None)
    keep(spark, "timers", {table: timers_job()}, options)
    return rows_by(read(spark, table), "correlationId")


def states(rows):
    return {timer: (row["state"], row["firings"], row["deadline"] is not None) for timer, row in rows.items()}


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    """The directory of a cluster's member after each of its snapshots, and that of its whole life."""
    cluster = SimulatedCluster(AlarmClock)
    alice = cluster.connect("alice")
    found = []
    for requests in (
        ["set 1 9000000", "set 2 2000", "set 3 9000000", "set 4 9000000", "set 5 10"],
        ["cancel 1", "set 3 9500000", "set 6 10"],
        ["set 2 9000000", "set 4 10"],
    ):
        for request in requests:
            alice.offer(request.encode())
        cluster.run(1)
        cluster.take_snapshot()
        found.append(write_out(cluster, tmp_path_factory.mktemp("stage")))
        cluster.run(4)
    found.append(write_out(cluster, tmp_path_factory.mktemp("whole")))
    return found


# By timer: state, firings, whether the deadline is known.
AT_FIRST = {
    1: ("SCHEDULED", 0, True),
    2: ("SCHEDULED", 0, True),
    3: ("SCHEDULED", 0, True),
    4: ("SCHEDULED", 0, True),
    5: ("FIRED", 1, False),
}
AT_LAST = {
    1: ("CANCELLED", 0, True),
    2: ("SCHEDULED", 1, True),
    3: ("SCHEDULED", 0, True),
    4: ("FIRED", 1, False),  # it was set anew, and fired before the deadline that the snapshot has
    5: ("FIRED", 1, False),
    6: ("FIRED", 1, False),
}


def keep_without_spark(directory, table):
    run(f"{directory}/member-0", table)
    rows = deltalake.DeltaTable(table).to_pyarrow_table().to_pylist()
    return {row["correlationId"]: row for row in rows}


def kept_as_the_log_grows(keep_them, stages, table):
    """The rows of the whole log, in a table that was kept at each stage, and those of one kept at once."""
    first = keep_them(stages[0], table)
    assert states(first) == AT_FIRST
    second = keep_them(stages[1], table)
    assert states(second)[1] == ("CANCELLED", 0, True)
    assert states(second)[2] == ("FIRED", 1, True), "when it was due is in the snapshot before"
    assert first[2]["deadline"] == second[2]["deadline"] <= second[2]["firedAt"]
    assert second[3]["deadline"] - first[3]["deadline"] > dt.timedelta(seconds=500), "it was moved"
    whole = keep_them(stages[-1], table)
    assert states(whole) == AT_LAST
    at_once = Path(table).with_name("at-once") / "timers"
    at_once.parent.mkdir()
    assert keep_them(stages[-1], str(at_once)) == whole
    return whole


@pytest.mark.slow
@pytest.mark.conformance("P-103")
def test_timers_that_are_set_moved_cancelled_and_fired_are_in_the_table(stages, tmp_path):
    """By delta-rs, by the same expressions of a merge."""
    kept_as_the_log_grows(keep_without_spark, stages, str(tmp_path / "timers"))


@pytest.mark.slow
@pytest.mark.conformance("P-103")
def test_timers_that_are_set_moved_cancelled_and_fired_are_in_sparks_table(spark, stages, tmp_path):
    """As the log grows, a job that goes on; then the same at once, and one that lost its checkpoint."""
    table = str(tmp_path / "timers")
    whole = kept_as_the_log_grows(
        lambda directory, table: keep_timers(spark, directory, table), stages, table
    )
    without_spark = keep_without_spark(stages[-1], str(tmp_path / "other" / "timers"))
    assert whole == {
        timer: {column: naive(value) for column, value in row.items()} for timer, row in without_spark.items()
    }
    shutil.rmtree(checkpoint_in(table))
    assert keep_timers(spark, stages[-1], table) == whole

    source = {"clusterDir": f"{stages[-1]}/member-0"}
    rebuild.rebuild(spark, table, timers_job(), source)
    assert rows_by(read(spark, table), "correlationId") == whole
    with open_reader(SourceOptions.parse(source)) as reader:
        assert verify.differences(spark, table, timers_job(), reader) == []


def test_a_timer_of_a_real_aeron_cluster_has_the_deadline_that_its_snapshot_says(spark, kept, decoded):
    timers_table = read(spark, f"{kept}/timers")
    with_deadline = [row for row in timers_table.collect() if row.pendingPosition is not None]
    (row,) = with_deadline
    due = naive(dt.datetime.fromtimestamp(1795237012.786, dt.UTC))
    assert (row.correlationId, row.pendingPosition, row.deadline) == (500003, 139424, due)
    assert not any(entry["entryType"] == "TIMER" and entry["correlationId"] == 500003 for entry in decoded)
    assert (row.state, row.firings, row.firedPosition, row.lastPosition) == ("SCHEDULED", 0, None, None)


def test_a_snapshot_is_taken_in_once_and_not_before_the_log_is_there(stages):
    directory = f"{stages[-1]}/member-0"
    positions = [row["position"] for row in TimersOfSnapshots({"clusterDir": directory})(False, 1 << 62)
                 if row["entryType"] == SNAPSHOT]  # fmt: skip
    assert len(positions) == 3

    found = TimersOfSnapshots({"clusterDir": directory})
    assert found(False, positions[0] - 1) == []
    assert {row["position"] for row in found(False, positions[0])} == {positions[0]}
    assert {row["position"] for row in found(False, positions[2])} == set(positions[1:])
    assert found(False, 1 << 62) == []


def test_a_directory_that_is_gone_and_a_snapshot_that_is_damaged_are_had_from_another_member(
    stages, tmp_path
):
    first, second = (shutil.copytree(f"{stages[0]}/member-{i}", tmp_path / str(i)) for i in range(2))
    whole = TimersOfSnapshots({"clusterDir": str(second)})(True, 1 << 62)
    assert len(whole) == 1 + len([state for state, *_ in AT_FIRST.values() if state == "SCHEDULED"])

    def of(*dirs):
        return TimersOfSnapshots({"clusterDir": ",".join(map(str, dirs))})(True, 1 << 62)

    assert of(tmp_path / "gone", second) == of(second, tmp_path / "gone") == whole
    (module,) = (one for one in stored_snapshots(OsFiles(), str(first)) if one.service_id == -1)
    segment = Path(module.archive) / f"{module.recording_id}-0.rec"
    segment.write_bytes(b"\x07" + segment.read_bytes()[1:])  # its first frame has another length
    assert of(first, second) == whole
    with pytest.raises(LogDamaged):
        of(first)
    with pytest.raises(NotAClusterDirectory, match="gone"):
        of(tmp_path / "gone")


@pytest.mark.parametrize(
    "error", [LogDamaged(None, None, "the segment is missing"), NotAClusterDirectory("no recording")], ids=str
)
def test_a_snapshot_that_is_deleted_while_it_is_read_is_left_out(stages, tmp_path, monkeypatch, error):
    directory = shutil.copytree(f"{stages[0]}/member-0", tmp_path / "member-0")
    seen = []

    def purging(snapshot):
        archive = Archive.open(str(directory / "archive"), files=OsFiles(), epoch_ms=lambda: 0)
        archive.purge_recording(snapshot.recording_id)
        archive.close()
        seen.append(snapshot)
        raise error

    monkeypatch.setattr(StoredSnapshot, "open", purging)
    assert TimersOfSnapshots({"clusterDir": str(directory)})(True, 1 << 62) == []
    assert len(seen) == 1


def test_snapshots_of_members_that_do_not_answer_are_not_taken_for_none():
    with pytest.raises(TimedOut, match=r"no member answers: .*127\.0\.0\.1:1"):
        TimersOfSnapshots({"endpoints": "127.0.0.1:1"})(True, 1 << 62)


@pytest.mark.slow
@pytest.mark.conformance("P-103")
@pytest.mark.parametrize("seed", [1])
def test_however_a_life_of_timers_is_cut_its_table_is_the_same(spark, table, seed):
    entries, job = drawn_timers(seed), timers_job()
    open_table(spark, table, TIMERS)
    for batch, part in enumerate(cut_by_position(entries, seed)):
        rows = spark.createDataFrame([tuple(entry.values()) for entry in part], ddl(LOG_COLUMNS))
        of_snapshots = [entry for entry in part if entry["entryType"] in (SNAPSHOT, PENDING)]
        job.update(rows, table, Commit("a query", batch, "{}"), of_snapshots)
    assert rows_by(read(spark, table), "correlationId") == naive_rows(expected.timers(entries))
