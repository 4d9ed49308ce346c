"""The format ``cluster-replay``: a service and the log once more, and what is compared."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from cluster.archive.files import OsFiles
from cluster.errors import ClusterError, ConfigurationError, LogPurged, MembersApart
from cluster.reader import LogReader
from cluster.reader.replayed_log import ReplayInterval, replay_intervals
from cluster.reader.snapshots import stored_snapshots
from cluster.testing import SimulatedCluster
from examples.order_book import OrderBook
from spark_connector import replay_service
from spark_connector.replay.replay_columns import REPLAY_COLUMNS
from spark_connector.replay.replay_source import ReplayDataSource, ReplayTask
from tests.spark.replayed_services import Batched, Biased, Busy, Counter
from tests.spark.simulated import write_out

SERVICES = "tests.spark.replayed_services"
BOOK = "examples.order_book:OrderBook"


def rows(directory, service, **options):
    """The rows of each task."""
    source = ReplayDataSource({"clusterDir": str(directory), "service": service, **options})
    reader = source.reader(source.schema())
    return [
        [row for batch in reader.read(partition) for row in batch.to_pylist()]
        for partition in reader.partitions()
    ]


def of_kind(tasks, *kinds):
    return [row for task in tasks for row in task if row["kind"] in kinds]


def played(folder, *services, messages, members=3):
    """A directory of members whose services were given groups of messages, with a snapshot after each."""
    cluster = SimulatedCluster(*services, members=members)
    client = cluster.connect("alice")
    for group in messages:
        for message in group:
            client.offer(message)
        cluster.take_snapshot()
    client.offer(b"the last")
    cluster.settle()
    return write_out(cluster, folder), client


@pytest.fixture(scope="module")
def orders(tmp_path_factory):
    """Members with an order book and four snapshots; and what their client was answered."""
    groups = [[b"buy 3 %d" % price, b"sell 2 1", b"buy 1 1 ioc"] for price in range(5, 9)]
    return played(tmp_path_factory.mktemp("orders"), OrderBook, messages=groups)


@pytest.fixture(scope="module")
def biased(tmp_path_factory):
    """Members of which one counts otherwise, in the second of three intervals between snapshots."""
    groups = [[b"one"], [b"two", b"biased"], [b"three"]]
    return played(tmp_path_factory.mktemp("biased"), Biased, messages=groups)[0]


# ---- what is a task


def test_a_log_is_cut_at_its_snapshots_and_each_part_begins_with_one_and_is_compared_with_the_next():
    intervals = replay_intervals(0, 960, [640, 320])

    assert [(one.begin, one.end) for one in intervals] == [(0, 320), (320, 640), (640, 960)]
    assert [one.is_from_snapshot for one in intervals] == [False, True, True]
    assert [one.compared for one in intervals] == [(320,), (640,), ()]


def test_the_whole_log_is_one_part_that_is_compared_with_all():
    (whole,) = replay_intervals(0, 640, [640, 320], is_whole=True)

    assert whole == ReplayInterval(0, 640, False, (320, 640))


def test_a_log_whose_head_is_gone_begins_with_the_first_snapshot_that_it_still_reaches():
    (only,) = replay_intervals(512, 960, [640, 320])
    assert only == ReplayInterval(640, 960, True, ())
    with pytest.raises(LogPurged, match="the log begins at position 800, and no snapshot"):
        replay_intervals(800, 960, [640, 320])


def test_a_log_that_was_seeded_begins_with_the_snapshot_at_0():
    (only,) = replay_intervals(0, 96, [0])

    assert only.is_from_snapshot


def test_nothing_is_to_be_replayed_of_no_log_and_behind_the_last_snapshot():
    assert replay_intervals(0, 0, []) == []
    assert [one.end for one in replay_intervals(0, 320, [320, 640])] == [320]


# ---- what comes of it


def test_each_task_saves_what_members_have_saved_and_answers_what_clients_were_answered(orders):
    directory, alice = orders

    tasks = rows(directory, BOOK)

    compared = of_kind(tasks, "SNAPSHOT")
    assert len(tasks) == 5 and len(compared) == 4 * 3
    assert all(row["isEqual"] and row["message"] is None for row in compared)
    assert [row["payload"] for row in of_kind(tasks, "EGRESS")] == alice.received
    assert [row["number"] for row in tasks[1]] == list(range(len(tasks[1])))


def test_one_task_over_all_of_it_gives_the_same(orders):
    directory, _ = orders
    parts, (whole,) = rows(directory, BOOK), rows(directory, BOOK, whole="true")

    for kind in ("EGRESS", "STATE", "SNAPSHOT"):
        found = [[(row["position"], row["payload"], row["isEqual"]) for row in of_kind(tasks, kind)]
                 for tasks in (parts, [whole])]  # fmt: skip
        assert found[0] == found[1] and found[0], kind
    assert rows(directory, BOOK, whole="true", kinds="STATE") == [
        [{**row, "number": number} for number, row in enumerate(of_kind([whole], "STATE"))]
    ], "in turns of many entries, too"


def test_answers_stand_at_the_entry_that_they_answer(orders):
    directory, _ = orders

    answers = of_kind(rows(directory, BOOK), "EGRESS")

    assert len({row["position"] for row in answers}) == 4 * 3 + 1
    assert all(row["beginPosition"] < row["position"] <= row["endPosition"] for row in answers)


def test_the_member_that_was_not_deterministic_is_named_with_the_interval_and_the_record(biased):
    tasks = rows(biased, f"{SERVICES}:Counter")

    differing = [row for row in of_kind(tasks, "SNAPSHOT") if not row["isEqual"]]
    ends = [task[0]["endPosition"] for task in tasks]
    assert {row["memberId"] for row in differing} == {2}
    assert [row["position"] for row in differing] == [ends[1], ends[2]]
    assert differing[0]["message"] == "record 3 is b'4', the replay saves b'3'"
    assert differing[0]["beginPosition"] == ends[0]


def test_the_state_is_that_at_each_snapshot_also_where_many_entries_are_given_at_once(biased):
    (task,) = rows(biased, f"{SERVICES}:Counter", whole="true", kinds="STATE")

    assert [row["payload"] for row in task] == [b"1", b"3", b"4", b"5"]


def test_another_service_than_the_one_that_saved_the_snapshots_is_found(orders):
    directory, _ = orders

    compared = of_kind(rows(directory, f"{SERVICES}:Counter", whole="true"), "SNAPSHOT")

    assert not any(row["isEqual"] for row in compared)
    assert compared[0]["message"] == "record 3 is b'next 4', the replay saves b'3'"


def test_a_service_whose_snapshots_differ_by_nature_is_not_judged(biased):
    assert {row["isEqual"] for row in of_kind(rows(biased, f"{SERVICES}:Biased"), "SNAPSHOT")} == {None}


def test_timers_messages_closes_and_errors_are_rows_at_their_entries(tmp_path):
    messages = [[b"tell it", b"wait 30"], [b"wait 9999", b"forget", b"fail", b"leave"]]
    cluster = SimulatedCluster(Busy)
    alice = cluster.connect("alice")
    for group in messages:
        for message in group:
            alice.offer(message)
        cluster.take_snapshot()
    directory = write_out(cluster, tmp_path)

    tasks = rows(directory, f"{SERVICES}:Busy")

    assert all(row["isEqual"] for row in of_kind(tasks, "SNAPSHOT"))
    assert [row["payload"] for row in of_kind(tasks, "SERVICE_MESSAGE")] == [b"said it"]
    timers = of_kind(tasks, "SCHEDULE_TIMER", "CANCEL_TIMER")
    assert {row["correlationId"] for row in timers} == {7}
    assert [row["deadline"] and row["deadline"] - row["clusterTime"] for row in timers] == [30, 9999, None]
    assert [row["payload"] for row in of_kind(tasks, "EGRESS")] == [b"timer 7"] == alice.received
    (closed,), (failed,) = of_kind(tasks, "CLOSE_SESSION"), of_kind(tasks, "ERROR")
    assert closed["clusterSessionId"] == alice.session_id
    assert re.search(r"ValueError in .*replayed_services\.py:\d+\): as it was told", failed["message"])
    assert timers[-1]["position"] < failed["position"] < closed["position"]


@pytest.mark.parametrize("kinds", ["SCHEDULE_TIMER,CANCEL_TIMER", "EGRESS,SCHEDULE_TIMER,CANCEL_TIMER"])
def test_a_timer_stands_after_the_entry_at_which_it_was_set_or_cancelled(tmp_path, kinds):
    cluster = SimulatedCluster(Busy)
    alice, bob = cluster.connect("alice"), cluster.connect("bob")
    sent = [(alice, b"one"), (bob, b"wait 30"), (alice, b"two"), (alice, b"wait 9999"), (bob, b"forget")]
    for client, message in sent:
        client.offer(message)
        cluster.settle()  # messages of two clients have no order else
    directory = f"{write_out(cluster, tmp_path)}/member-0"

    found = of_kind(rows(directory, f"{SERVICES}:Busy", kinds=kinds), "SCHEDULE_TIMER", "CANCEL_TIMER")
    with LogReader.open(dir=directory) as reader:
        entries = {entry["endPosition"]: entry for entry in reader.entries()}
    set_at = [entries[row["position"]] for row in found]
    assert [(entry["clusterSessionId"], entry["payload"]) for entry in set_at] == [
        (client.session_id, message) for client, message in sent if b"one" != message != b"two"
    ]


def test_the_second_service_of_a_cluster_is_replayed_by_its_id(tmp_path):
    directory, _ = played(tmp_path, OrderBook, Counter, messages=[[b"buy 1 1"], [b"buy 2 2"]])

    compared = of_kind(rows(directory, f"{SERVICES}:Counter", serviceId="1"), "SNAPSHOT")

    assert len(compared) == 6 and all(row["isEqual"] for row in compared)


def test_a_service_of_batches_is_replayed_with_the_positions_of_its_answers(tmp_path):
    directory, alice = played(tmp_path, Batched, messages=[[b"a", b"b"], [b"c"]], members=1)

    tasks = rows(f"{directory}/member-0", f"{SERVICES}:Batched")

    answers = of_kind(tasks, "EGRESS")
    assert [row["payload"] for row in answers] == alice.received == [b"a", b"b", b"c", b"the last"]
    assert len({row["position"] for row in answers}) == 4
    assert all(row["isEqual"] for row in of_kind(tasks, "SNAPSHOT"))


def test_a_copy_that_is_damaged_is_not_begun_with_and_named_where_it_is_compared(orders, tmp_path):
    directory = shutil.copytree(orders[0], tmp_path / "c1")
    newest = max(stored_snapshots(OsFiles(), str(directory / "member-0")), key=lambda one: one.recording_id)
    (segment,) = Path(newest.archive).glob(f"{newest.recording_id}-*.rec")
    data = bytearray(segment.read_bytes())
    data[240] ^= 1
    segment.write_bytes(data)

    assert rows(directory, BOOK, kinds="EGRESS,STATE") == rows(orders[0], BOOK, kinds="EGRESS,STATE")
    with pytest.raises(ClusterError, match=r"the snapshot of member 0 \(.*\) cannot be compared: "):
        rows(directory, BOOK)


def test_a_snapshot_that_went_after_the_planning_fails_the_task_with_its_position(orders):
    source = ReplayDataSource({"clusterDir": orders[0], "service": BOOK})
    reader = source.reader(source.schema())

    with pytest.raises(ClusterError, match="to 640 failed: the snapshot at position 320 is gone since the"):
        list(reader.read(ReplayTask(ReplayInterval(320, 640, True, ()))))


def test_a_service_that_cannot_be_made_or_started_is_said_with_the_interval(orders):
    directory, _ = orders

    with pytest.raises(ClusterError, match=r"of nowhere:It from position 0 to \d+ failed: .*no module"):
        rows(directory, "nowhere:It")
    with pytest.raises(ClusterError, match=r"0 to \d+ failed: service 0 failed to start: no \("):
        rows(directory, f"{SERVICES}:Startless")


def test_what_is_wrong_with_the_options_is_said_when_the_source_is_made():
    for options, text in (
        ({"clusterDir": "c1"}, "format cluster-replay needs option service, which is not given"),
        ({"service": "a:B"}, "needs option endpoints or option clusterDir; neither is given"),
        ({"service": "a:B", "clusterDir": "c1", "endpoints": "h:1"}, "option clusterDir; both are given"),
        ({"service": "a:B", "endpoints": "h:1", "archiveDir": "a"}, "option archiveDir goes with clusterDir"),
        (
            {"service": "a:B", "clusterDir": "c1", "kinds": "x"},
            "option kinds is 'x'; expected a comma list",
        ),
        ({"service": "a:B", "clusterDir": "c1", "serviceId": "10"}, "expected a service id from 0 to 9"),
        ({"service": "a:B", "clusterDir": "c1", "sessions": "1"}, "unknown replay option 'sessions'"),
    ):
        with pytest.raises(ConfigurationError) as refused:
            ReplayDataSource(options)
        assert text in str(refused.value)


# ---- through Spark


def test_spark_finds_the_member_that_was_not_deterministic(spark, biased):
    replayed = replay_service(spark, f"{SERVICES}:Counter", cluster_dir=biased)

    assert {field.name: field.metadata["comment"] for field in replayed.timers.schema} == {
        name: comment for name, (_, comment) in REPLAY_COLUMNS.items()
    }
    with pytest.raises(MembersApart, match=r"^2 of 9 snapshots are not what .*Counter saves: member 2 "):
        replayed.verify()
