"""The format ``cluster-snapshot``: what members keep in snapshots, as rows."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from cluster import ClusteredService
from cluster.archive.archive import Archive
from cluster.archive.files import OsFiles
from cluster.errors import ConfigurationError, LogDamaged, NotAClusterDirectory
from cluster.testing import SimulatedCluster
from examples.order_book import OrderBook
from spark_connector.snapshots.snapshot_rows import SNAPSHOT_COLUMNS
from spark_connector.snapshots.snapshot_source import SnapshotDataSource
from tests.spark.readers import snapshot_rows
from tests.spark.simulated import write_out
from tests.tree import SAFELY

DATA = Path(__file__).resolve().parent.parent / "data" / "aeron-cluster-1.53"


class Personal(ClusteredService):
    """Each member has a state of its own, which no service should."""

    compares_snapshots = False  # nor do the members look

    def on_start(self, cluster, snapshot_image):
        self._member_id = cluster.context().member_id

    def on_take_snapshot(self, snapshot_publication):
        snapshot_publication.offer(b"the same")
        snapshot_publication.offer(b"member %d" % (self._member_id % 2))


@pytest.fixture(scope="module")
def aeron(tmp_path_factory):
    """The directories of a real Aeron Cluster."""
    folder = tmp_path_factory.mktemp("aeron")
    with tarfile.open(DATA / "members.tar.xz") as members:
        members.extractall(folder, **SAFELY)
    return str(folder)


@pytest.fixture(scope="module")
def orders(tmp_path_factory):
    """Three members with an order book, and two snapshots."""
    cluster = SimulatedCluster(OrderBook)
    alice = cluster.connect("alice")
    for price in (7, 8):
        alice.offer(b"buy 3 %d" % price)
        cluster.take_snapshot()
    return write_out(cluster, tmp_path_factory.mktemp("orders"))


def rows(directory, **options):
    return snapshot_rows(clusterDir=str(directory), **options)


def test_the_snapshot_of_a_real_cluster_has_its_sessions_timers_and_the_services_own_state(aeron):
    found = rows(aeron)

    of_one = [row for row in found if row["memberId"] == 1]
    assert len(found) == 3 * len(of_one)
    assert all(row["membersAgree"] for row in found)
    assert [(row["serviceId"], row["recordIndex"], row["recordType"]) for row in of_one] == [
        (-1, 0, "SNAPSHOT_MARKER"),
        (-1, 1, "CONSENSUS_MODULE"),
        (-1, 2, "CLUSTER_SESSION"),
        (-1, 3, "TIMER"),
        (-1, 4, "PENDING_MESSAGE_TRACKER"),
        (-1, 5, "SNAPSHOT_MARKER"),
        (0, 0, "SNAPSHOT_MARKER"),
        (0, 1, "CLIENT_SESSION"),
        (0, 2, "SNAPSHOT_MARKER"),
        (0, 3, "SERVICE_STATE"),
    ]
    module, session, timer = of_one[1], of_one[2], of_one[3]
    assert {row["logPosition"] for row in found} == {139424}
    assert (module["nextSessionId"], session["clusterSessionId"], session["openedLogPosition"]) == (
        4,
        2,
        108512,
    )
    assert (timer["correlationId"], timer["deadline"]) == (500003, 1795237012786)
    assert [row["mark"] for row in of_one if row["mark"]] == ["BEGIN", "END", "BEGIN", "END"]
    assert of_one[-1]["record"] == (411).to_bytes(8, "little")


def test_our_own_have_what_is_ours_and_only_a_members_own_records_are_not_compared(orders):
    found = rows(orders)

    ours = {row["recordType"]: row for row in found if row["recordType"].startswith("SNAPSHOT_")}
    assert set(ours) == {"SNAPSHOT_MARKER", "SNAPSHOT_SESSION", "SNAPSHOT_RECORDING", "SNAPSHOT_CHECKSUM"}
    assert {row["recordType"] for row in found if row["membersAgree"] is None} == {
        "SNAPSHOT_RECORDING",
        "SNAPSHOT_CHECKSUM",
    }
    assert ours["SNAPSHOT_SESSION"]["committedMessages"] == 2
    assert len({row["logPosition"] for row in found}) == 2
    state = [row["record"] for row in rows(f"{orders}/member-2", serviceIds="0", latest="true")]
    assert state[-2:] == [b"buy 1 1 3 7", b"buy 2 1 3 8"]


def test_of_one_member_there_is_nothing_to_compare_with(orders):
    found = rows(f"{orders}/member-0", serviceIds="-1")

    assert {row["memberId"] for row in found} == {0} and {row["serviceId"] for row in found} == {-1}
    assert {row["membersAgree"] for row in found} == {None}


def test_members_that_differ_are_found_with_the_record_in_which_they_do(tmp_path):
    cluster = SimulatedCluster(Personal)
    cluster.connect("alice")
    cluster.take_snapshot()

    found = rows(write_out(cluster, tmp_path))

    differing = [row for row in found if row["membersAgree"] is False]
    assert {row["memberId"]: row["record"] for row in differing} == {
        0: b"member 0",
        1: b"member 1",
        2: b"member 0",
    }
    assert {row["recordType"] for row in differing} == {"SERVICE_STATE"}


def test_without_a_snapshot_there_are_no_rows(tmp_path):
    cluster = SimulatedCluster(OrderBook, members=1)
    cluster.await_leader()

    assert rows(write_out(cluster, tmp_path)) == []


def test_a_snapshot_whose_recording_is_gone_is_none(orders, tmp_path):
    copy = shutil.copytree(f"{orders}/member-0", tmp_path / "member-0")
    archive = Archive.open(str(copy / "archive"), files=OsFiles(), epoch_ms=lambda: 0)
    archive.purge_recording(min(row["recordingId"] for row in rows(copy, serviceIds="0")))
    archive.close()

    assert len({row["logPosition"] for row in rows(copy, serviceIds="0")}) == 1
    assert len({row["logPosition"] for row in rows(copy, serviceIds="-1")}) == 2


def test_a_damaged_snapshot_is_told_with_its_file(orders, tmp_path):
    copy = shutil.copytree(f"{orders}/member-0", tmp_path / "member-0")
    segment = copy / "archive" / "1-0.rec"
    segment.write_bytes(b"\x07" + segment.read_bytes()[1:])  # its first frame has another length

    with pytest.raises(LogDamaged, match=r"1-0\.rec"):
        rows(copy)


def test_what_is_wrong_with_the_options_is_said_when_the_source_is_made(tmp_path):
    for options, text in (
        ({}, "format cluster-snapshot needs option endpoints or option clusterDir; neither is given"),
        ({"clusterDir": "c1", "serviceIds": "x"}, "option serviceIds is 'x'; expected a comma list of"),
        ({"clusterDir": "c1", "sessions": "x"}, "unknown snapshot option 'sessions'"),
    ):
        with pytest.raises(ConfigurationError) as refused:
            SnapshotDataSource(options)
        assert text in str(refused.value)
    with pytest.raises(NotAClusterDirectory, match="nowhere: no such directory"):
        rows(tmp_path / "nowhere")


def test_a_schema_may_leave_columns_out_but_not_change_them(orders):
    source = SnapshotDataSource({"clusterDir": orders})
    wanted = StructType([StructField("recordType", StringType()), StructField("memberId", LongType())])

    with pytest.raises(ConfigurationError, match="column memberId BIGINT: expected INT"):
        source.reader(wanted)
    with pytest.raises(ConfigurationError, match="column member STRING: expected one of memberId, directory"):
        source.reader(StructType([StructField("member", StringType())]))
    reader = source.reader(StructType(wanted.fields[:1]))
    batch = next(reader.read(reader.partitions()[0]))
    assert batch.schema.names == ["recordType"]


def test_spark_reads_it_with_comments_on_the_columns(spark, orders):
    from spark_connector import register

    register(spark)
    snapshots = spark.read.format("cluster-snapshot").option("clusterDir", orders).load()

    assert {field.name: field.metadata["comment"] for field in snapshots.schema} == {
        name: comment for name, (_, comment) in SNAPSHOT_COLUMNS.items()
    }
    counted = snapshots.where("recordType = 'SERVICE_STATE'").groupBy("logPosition", "memberId").count()
    assert sorted(row["count"] for row in counted.collect()) == [2, 2, 2, 3, 3, 3]
