"""Each row is once in the log of a member that runs, whatever becomes of tasks and drivers.

Tests play Spark's part: its tasks, and what it hands them.
"""

import itertools
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from benchmarks.real_members import await_that
from cluster import ClusterClient, Lane, LogReader
from cluster.errors import (
    ApplicationUnknown,
    ClientClosed,
    ClusterError,
    ConfigurationError,
    LocalProtocolError,
)
from spark_connector.options.cluster_options import SinkOptions
from spark_connector.sink.writers import ClusterBatchWriter, ClusterStreamWriter
from tests.node.processes import Up
from tests.spark.played import PlayedTask


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory):
    with Up(tmp_path_factory.mktemp("cluster"), members=1, CLUSTER_SESSION_TIMEOUT="2s") as cluster:
        yield cluster.endpoints


class Played:
    """A query, or a job that writes batches, with its tasks; each thread runs one task at a time."""

    def __init__(self, endpoints, tasks):
        self.endpoints, self.tasks = endpoints, tasks
        self.query_id = str(uuid.uuid4())
        with LogReader.open(endpoints=endpoints) as reader:
            self.begin = reader.commit_position()

    def write(self, rows, batch=0, partition=0, attempt=0, **options):
        """Run a task of a micro-batch."""
        self.tasks.runs = PlayedTask(
            partition,
            attempt,
            **{"sql.streaming.queryId": self.query_id, "streaming.sql.batchId": str(batch)},
        )
        return self.stream_writer(**options).write(batches(rows))

    def commit(self, messages, batch=0, **options):
        """What the driver does when the tasks are done."""
        self.stream_writer(**options).commit(messages, batch)

    def stream_writer(self, **options):
        return ClusterStreamWriter(SinkOptions.parse({"endpoints": self.endpoints, **options}))

    def save(self, *partitions, **options):
        """A batch write of these partitions, each a list of rows."""
        writer = ClusterBatchWriter(SinkOptions.parse({"endpoints": self.endpoints, **options}))
        messages = []
        for partition, rows in enumerate(partitions):
            self.tasks.runs = PlayedTask(partition, 0)
            messages.append(writer.write(batches(rows)))
        writer.commit(messages)

    def in_log(self):
        """Rows that came since this was made."""
        with LogReader.open(endpoints=self.endpoints) as reader:
            return [entry["payload"] for entry in reader.entries(self.begin, entry_types=["SESSION_MESSAGE"])]

    def entry_types(self):
        with LogReader.open(endpoints=self.endpoints) as reader:
            return [entry["entryType"] for entry in reader.entries(self.begin)]


@pytest.fixture
def played(endpoints, monkeypatch):
    tasks = threading.local()
    monkeypatch.setattr("spark_connector.task.TaskContext.get", lambda: tasks.runs)
    return Played(endpoints, tasks)


def batches(rows, size=10):
    """The rows as Spark hands them out; an exception among them is raised in its place."""
    held = []
    for row in rows:
        if isinstance(row, BaseException):
            raise row
        held.append(row)
        if len(held) == size:
            yield pa.record_batch({"payload": pa.array(held, pa.binary())})
            held = []
    if held:
        yield pa.record_batch({"payload": pa.array(held, pa.binary())})


def numbered(count, first=0):
    return [b"row %d" % number for number in range(first, first + count)]


class Lost(Exception):
    """An executor, or a driver, that is gone."""


def fail_after(played, count, **task):
    """An attempt that fails when so many rows, in whole batches, are sent."""
    with pytest.raises(Lost):
        played.write([*numbered(count), Lost()], **task)


def test_a_later_micro_batch_of_a_query_that_the_cluster_does_not_know_is_refused(played):
    """It was forgotten: whether rows of the micro-batch are in the log, nobody can say."""
    with pytest.raises(ApplicationUnknown) as refused:
        played.write(numbered(5), batch=7)
    assert str(refused.value) == (
        f"batch 7 of query {played.query_id}, partition 0, attempt 0: unknown: batch 7 of {played.query_id} "
        "is not its first, and no lane of it is known: it has opened none for longer than lane_retention, or "
        "never. See whether rows of this micro-batch are in the log. If none are, start the query once with "
        "option failOnUnknownQuery=false; else over a new checkpoint, from where it stopped"
    )
    assert played.in_log() == []

    message = played.write(numbered(5), batch=7, failOnUnknownQuery="false")
    played.commit([message], batch=7)
    played.write(numbered(5, first=5), batch=8)
    assert played.in_log() == numbered(10)


def test_a_later_micro_batch_that_runs_again_and_again_is_compared_with_all_its_sessions(played):
    played.commit([played.write(numbered(5))])
    fail_after(played, 20, batch=1)
    fail_after(played, 40, batch=1, attempt=1)
    played.write(numbered(50), batch=1, attempt=2)
    assert played.in_log() == [*numbered(5), *numbered(50)]


@pytest.mark.conformance("P-80")
def test_a_task_that_is_tried_again_sends_what_is_not_in_the_log(played):
    fail_after(played, 20)
    assert played.in_log() == numbered(20)
    fail_after(played, 50, attempt=1)
    message = played.write(numbered(75), attempt=2)

    assert message.rows == 75
    assert played.in_log() == numbered(75)
    with LogReader.open(endpoints=played.endpoints) as reader:
        (last,) = [e for e in reader.entries(played.begin) if e.get("payload") == b"row 74"]
    assert message.committed_position == last["endPosition"]


def test_a_repetition_is_cut_at_the_right_row_whatever_the_batches_are(played):
    fail_after(played, 30)
    writer = played.stream_writer()
    rows = pa.array(numbered(45), pa.binary())
    cuts = [0, 7, 7, 29, 31, 45]
    pieces = (rows.slice(begin, end - begin) for begin, end in itertools.pairwise(cuts))
    writer.write(pa.record_batch({"payload": piece}) for piece in pieces)

    assert played.in_log() == numbered(45)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary(), pa.large_string()])
def test_texts_are_known_again_too(played, kind):
    fail_after(played, 20)
    played.stream_writer().write(iter([pa.record_batch({"payload": pa.array(numbered(30)).cast(kind)})]))

    assert played.in_log() == numbered(30)


@pytest.mark.conformance("P-81")
def test_a_query_that_failed_completes_its_batch_when_it_is_started_again(played):
    """Every attempt failed; the driver is another one, and counts attempts from 0 again."""
    for attempt, count in enumerate((10, 10, 20, 40)):
        fail_after(played, count, partition=1, attempt=attempt)
    done = [played.write(numbered(5, 1000), partition=0), played.write(numbered(60), partition=1)]
    played.commit(done)

    assert sorted(played.in_log()) == sorted([*numbered(60), *numbered(5, 1000)])


@pytest.mark.conformance("P-24", "P-82")
def test_a_batch_whose_commit_failed_is_found_whole(played):
    """The tasks were done, the driver died before it registered them."""
    played.write(numbered(25))
    played.stream_writer().abort([None], 0)
    message = played.write(numbered(25))
    played.commit([message])

    assert message.rows == 25
    assert played.in_log() == numbered(25)


@pytest.mark.conformance("P-25", "P-83")
def test_a_batch_that_spark_forgot_after_its_commit_is_not_looked_at_again(played):
    """Nothing is opened for it, so a query that reads the log it writes comes to rest."""
    played.commit([played.write(numbered(25))])
    end = played.entry_types()
    rows = iter(numbered(25))
    message = played.write(rows)
    played.commit([message])

    assert message.is_registered and not list(rows), "what Spark hands over is read to its end"
    assert played.in_log() == numbered(25) and played.entry_types() == end


@pytest.mark.conformance("P-83")
def test_batches_that_were_rolled_back_are_not_looked_at_again(played):
    for batch in range(3):
        played.commit([played.write(numbered(5, 5 * batch), batch)], batch)
    for batch in range(3):
        played.commit([played.write(numbered(5, 5 * batch), batch)], batch)
    played.commit([played.write(numbered(5, 15), 3)], 3)

    assert played.in_log() == numbered(20)


@pytest.mark.conformance("P-84")
def test_a_zombie_writes_nothing_once_its_successor_has_begun(played):

    with ThreadPoolExecutor(1) as executor:
        successors = []

        def zombie_rows():
            yield from numbered(10)
            await_that(played.in_log, "the rows are in")
            successors.append(executor.submit(played.write, numbered(30), attempt=1))
            successors[0].result()
            yield from numbered(20, 10)

        with pytest.raises(ClientClosed, match=rf"attempt 0: .*displaced by .* {played.query_id}/0"):
            played.write(zombie_rows())
    assert successors[0].result().rows == 30
    assert played.in_log() == numbered(30)


@pytest.mark.conformance("P-85")
def test_two_attempts_at_once_write_each_row_once(played):
    """The second one begins while the first one writes, as with speculation."""
    with ThreadPoolExecutor(2) as executor:
        first = executor.submit(played.write, numbered(20_000))
        await_that(played.in_log, "the first attempt writes")
        second = executor.submit(played.write, numbered(20_000), attempt=1)
    assert first.exception() is None or isinstance(first.exception(), ClientClosed)
    assert second.result().rows == 20_000
    assert played.in_log() == numbered(20_000)


@pytest.mark.conformance("P-86")
def test_a_batch_in_another_number_of_partitions_is_refused(played):
    """Once it is registered, and before that where a partition with rows is left out."""
    both = [played.write(numbered(5), partition=0), played.write(numbered(5, 5), partition=1)]
    with pytest.raises(ClusterError, match=r"has 5 rows in partition 1, which one of 1 partitions has not"):
        played.commit(both[:1])
    played.commit(both)
    again = [played.write(numbered(3, 3 * partition), partition=partition) for partition in range(3)]
    with pytest.raises(ClusterError, match=r"was registered with 2 partitions, not with 3"):
        played.commit(again)
    assert played.in_log() == numbered(10)


@pytest.mark.conformance("P-86")
def test_a_task_that_has_no_rows_any_more_is_refused(played):
    """It opens no session; the rows that it had when it ran before stand against the registration."""
    played.write(numbered(5), partition=0)
    again = [played.write([], partition=0), played.write(numbered(5, 5), partition=1)]
    with pytest.raises(
        ClusterError, match=r"batch 0 of .* has 10 rows in the log, and is to be registered with 5"
    ):
        played.commit(again)


@pytest.mark.conformance("P-87")
def test_rows_in_another_order_are_refused_with_the_first_that_differs(played):
    fail_after(played, 20)
    rows = numbered(40)
    rows[13], rows[14] = rows[14], rows[13]
    says = rf"attempt 1: the task has row 13 b'row 14', .* b'row 13'; .*batch 0 of lane {played.query_id}/0"
    with pytest.raises(LocalProtocolError, match=says):
        played.write(rows, attempt=1)
    with pytest.raises(LocalProtocolError, match="the task has 12 rows, 20 are in the log"):
        played.write(numbered(12), attempt=2)
    assert played.in_log() == numbered(20)


@pytest.mark.conformance("P-87")
def test_rows_whose_first_were_purged_meanwhile_are_refused(played):
    """As where a batch runs again with ``failOnDataLoss`` = ``false``."""
    fail_after(played, 20)
    with pytest.raises(LocalProtocolError, match=r"the task has row 0 b'row 20', .* b'row 0'"):
        played.write(numbered(20, 20), attempt=1)
    assert played.in_log() == numbered(20)


def test_without_the_check_their_number_decides(played):
    fail_after(played, 20)
    played.write([b"other", *numbered(29, 1)], attempt=1, checkOrder="false")
    with pytest.raises(LocalProtocolError, match="the task has 12 rows, 30 are in the log"):
        played.write(numbered(12), attempt=2, checkOrder="false")

    assert played.in_log() == numbered(30)


@pytest.mark.conformance("P-90")
def test_rows_of_a_session_that_timed_out_are_known_again(played):
    """As of a worker that was stopped: nobody polls, and the leader closes the session."""
    lane = Lane(played.query_id, partition=0, batch=0)
    with ClusterClient.connect(played.endpoints, lane=lane, keep_alive_interval_s=None) as neglected:
        neglected.offer_batch(numbered(10))
        neglected.await_committed(30)
        await_that(lambda: played.entry_types()[-1] == "SESSION_CLOSE", "the session times out")
    played.write(numbered(20), attempt=1)

    assert played.in_log() == numbered(20)


@pytest.mark.conformance("P-91")
def test_a_batch_without_rows_leaves_no_trace_but_the_first_one(played):
    """Else a query that reads the log which it writes would never come to rest."""
    played.commit([played.write([], partition=partition) for partition in range(3)])
    opened = ["SESSION_OPEN", "SESSION_CLOSE"]
    assert played.entry_types() == opened, "the cluster knows the query"
    played.commit([played.write([], batch=1, partition=partition) for partition in range(3)], batch=1)
    assert played.entry_types() == opened
    played.write(numbered(5), batch=2, partition=3)
    assert played.in_log() == numbered(5)


@pytest.mark.conformance("P-93")
def test_a_batch_write_with_a_name_and_a_number_is_in_the_log_once(played):
    """As a function of ``foreachBatch`` that Spark calls twice with the same batch."""
    for version in (0, 1, 0, 1, 1):
        rows = numbered(6, 6 * version)
        played.save(rows[:4], rows[4:], txnAppId=played.query_id, txnVersion=str(version))
    assert played.in_log() == numbered(12)


def test_a_batch_write_without_a_name_is_made_again(played):
    for _ in range(2):
        played.save(numbered(4))
    assert played.in_log() == [*numbered(4), *numbered(4)]


@pytest.mark.conformance("P-96")
def test_two_queries_write_the_same_partitions_and_batches_beside_one_another(played, endpoints):
    other = Played(endpoints, played.tasks)
    fail_after(played, 10)
    other.commit([other.write(numbered(5, 100))])
    played.commit([played.write(numbered(15))])
    assert sorted(played.in_log()) == sorted([*numbered(15), *numbered(5, 100)])


@pytest.mark.conformance("P-97")
def test_a_query_over_a_copy_of_anothers_checkpoint_is_refused(played, endpoints):
    """Both have one query id."""
    played.write([b"first"])
    played.write(numbered(20), batch=4)
    other = Played(endpoints, played.tasks)
    other.query_id = played.query_id
    with pytest.raises(LocalProtocolError, match="the task has row 0 b'row 100'"):
        other.write(numbered(20, 100), batch=4)
    with pytest.raises(ClusterError, match="batch 3 is older than 4, which the lane is at"):
        other.write(numbered(20, 100), batch=3)
    assert played.in_log() == [b"first", *numbered(20)]


def test_a_task_that_cannot_be_known_again_is_refused(played):
    for properties in ({}, {"sql.streaming.queryId": played.query_id}):
        played.tasks.runs = PlayedTask(0, 0, **properties)
        with pytest.raises(
            ConfigurationError, match=r"streaming\.sql\.batchId None; expected both.*at-least-once"
        ):
            played.stream_writer().write(batches(numbered(1)))
    assert played.in_log() == []
    played.stream_writer(deliveryMode="at-least-once").write(batches(numbered(1)))
    assert played.in_log() == numbered(1)


@pytest.mark.parametrize(
    "make, options, says",
    [
        (
            ClusterStreamWriter,
            {"txnAppId": "a", "txnVersion": "1"},
            "txnAppId is 'a'; expected of batch writes",
        ),
        (ClusterBatchWriter, {"deliveryMode": "exactly-once"}, "expected txnAppId and txnVersion with it"),
    ],
)
def test_options_of_the_other_kind_of_write_are_refused(make, options, says):
    with pytest.raises(ConfigurationError, match=says):
        make(SinkOptions.parse({"endpoints": "0=a:9000", **options}))
