"""The sink's tasks, over a client that a test plays: order, waiting, and what ends a task."""

import itertools
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pyarrow as pa
import pytest

from cluster.errors import BatchRegistered, ClientClosed, LocalProtocolError, LogDamaged, TimedOut
from cluster.protocol.lane import Lane, LanePrincipal, LaneStanding
from cluster.transport.credentials import supplier_of
from spark_connector.options.cluster_options import SinkOptions
from spark_connector.sink import aeron_sending, sending, writers
from spark_connector.sink.known_rows import payloads_of
from spark_connector.sink.writers import ClusterBatchWriter, ClusterStreamWriter, RowsCommitted
from tests.spark.played import PlayedClient, PlayedTask


@pytest.fixture
def client(monkeypatch):
    played = PlayedClient()
    played.connections = []

    def connect(endpoints, **settings):
        played.connections.append((endpoints, settings))
        return played

    monkeypatch.setattr("cluster.client.ClusterClient.connect", connect)
    return played


def writer(**options):
    """Without lanes, of which ``test_exactly_once.py`` is."""
    given = {"endpoints": "0=a:9000", "deliveryMode": "at-least-once", **options}
    return ClusterStreamWriter(SinkOptions.parse(given))


def batches(*columns, kind=None):
    return iter([pa.record_batch({"payload": pa.array(column, kind or pa.binary())}) for column in columns])


@pytest.mark.conformance("P-77")
@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string()])
def test_rows_go_out_in_their_order_and_the_task_tells_how_many_are_committed(client, kind):
    rows = batches([b"a", b"b"], [], [b"c", b""], kind=kind)

    assert writer().write(rows) == RowsCommitted(rows=4, committed_position=384)
    assert client.log == [b"a", b"b", b"c", b""]
    assert client.was_closed


def test_a_task_whose_rows_are_all_in_the_log_says_where_they_end(client, monkeypatch):
    properties = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "7"}
    monkeypatch.setattr("spark_connector.task.TaskContext.get", lambda: PlayedTask(**properties))
    client.lane_standing = LaneStanding(rows=2, begin=0, end=960, session_id=1)
    task = writer(deliveryMode="exactly-once", checkOrder="false").write(batches([b"a", b"b"]))

    assert (task.rows, task.committed_position, client.log) == (2, 960, [])


def test_damage_in_the_log_is_told_with_the_task_that_reads_its_rows_back(client, monkeypatch):
    def damaged(*_):
        raise LogDamaged("a/0-0.rec", 96, "checksum mismatch")
        yield

    properties = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "7"}
    monkeypatch.setattr("spark_connector.task.TaskContext.get", lambda: PlayedTask(**properties))
    monkeypatch.setattr("spark_connector.sink.sending.read_back", damaged)
    client.lane_standing = LaneStanding(rows=1, begin=0, end=96, session_id=1)
    says = r"^batch 7 of query q, partition 3, attempt 1: a/0-0\.rec at offset 96: checksum mismatch"
    with pytest.raises(LogDamaged, match=says):
        writer(deliveryMode="exactly-once").write(batches([b"a"]))


def test_the_column_may_be_spelt_otherwise(client):
    writer().write(iter([pa.record_batch({"Payload": pa.array([b"a"])})]))
    assert client.log == [b"a"]


@pytest.mark.conformance("P-91")
def test_a_task_without_rows_opens_no_session(client):
    assert writer().write(batches([], [])) == RowsCommitted(rows=0, committed_position=-1)
    assert client.connections == []


@pytest.mark.conformance("P-89")
def test_a_batch_is_offered_in_pieces_that_wait_for_room(client):
    client.room = 400
    sent = [b"%03d" % n * 300 for n in range(1000)]

    assert writer().write(batches(sent)).rows == 1000
    assert client.log == sent


@pytest.mark.conformance("P-69", "P-78")
def test_a_row_without_payload_is_named(client):
    with pytest.raises(LocalProtocolError, match=r"row 3 of the task has no payload \(NULL\)"):
        writer().write(batches([b"a", b"b"], [b"c", None, b"d"]))
    assert client.log == [b"a", b"b"], "nothing of the batch with the wrong row was sent"


def test_no_session_is_opened_for_a_first_batch_with_a_row_without_payload(client):
    with pytest.raises(LocalProtocolError, match=r"row 0 of the task has no payload \(NULL\)"):
        writer().write(batches([], [None, b"a"]))
    assert client.connections == []


@pytest.mark.conformance("P-111")
@pytest.mark.parametrize(
    "properties, task",
    [
        ({}, "partition 3, attempt 1: "),
        (
            {"sql.streaming.queryId": "q-1", "streaming.sql.batchId": "12"},
            "batch 12 of query q-1, partition 3, attempt 1: ",
        ),
    ],
)
def test_an_error_names_the_task_the_batch_and_the_query(client, monkeypatch, properties, task):
    monkeypatch.setattr("spark_connector.task.TaskContext.get", lambda: PlayedTask(**properties))
    with pytest.raises(LocalProtocolError, match=rf"^{task}row 0 of the task has no payload"):
        writer().write(batches([None]))
    client.is_stuck = True
    client.on_poll = lambda: vars(client).update(is_closed=True, why_closed="time-out")
    with pytest.raises(ClientClosed, match=rf"^{task}session 7 ended"):
        writer().write(batches([b"a"]))


@pytest.mark.conformance("P-95")
def test_a_row_longer_than_the_log_takes_is_named_with_its_length(client):
    with pytest.raises(
        LocalProtocolError, match=r"row 2 of the task has a payload of 1001 bytes.*at most 1000"
    ):
        writer().write(batches([b"a"], [b"b", b"x" * 1001]))
    assert client.log == [b"a"], "nothing of the batch with the wrong row was sent"


@pytest.mark.conformance("P-90")
def test_a_session_that_ends_with_rows_in_doubt_fails_the_task(client):
    client.is_stuck = True
    client.on_poll = lambda: vars(client).update(is_closed=True, why_closed="time-out")

    with pytest.raises(ClientClosed, match=r"session 7 ended \(time-out\) with 2 of 2 rows"):
        writer().write(batches([b"a", b"b"]))


@pytest.mark.conformance("P-89")
def test_rows_that_are_not_committed_in_time_fail_the_task(client, monkeypatch):
    clock = itertools.count(0.0, 0.5)
    monkeypatch.setattr("spark_connector.sink.sending.time.monotonic", lambda: next(clock))
    client.is_stuck = True

    with pytest.raises(TimedOut, match=r"no row was committed for 3 s \(option commitTimeoutMs\); 2 of 2"):
        writer(commitTimeoutMs="3000").write(batches([b"a", b"b"]))


@pytest.mark.conformance("P-90")
def test_the_session_is_kept_alive_while_spark_computes_the_next_rows(client):
    polled = threading.Event()
    client.on_poll = polled.set

    def slow():
        yield from batches([b"a"])
        polled.clear()
        assert polled.wait(timeout=30)
        yield from batches([b"b"])

    assert writer().write(slow()).rows == 2


def test_what_fails_while_spark_computes_rows_fails_the_task_with_its_own_error(client):
    def failing():
        yield from batches([b"a"])
        raise ZeroDivisionError("in a function of the user")

    with pytest.raises(ZeroDivisionError, match="of the user"):
        writer().write(failing())
    assert client.was_closed


def test_a_batch_write_does_the_same(client):
    write = ClusterBatchWriter(SinkOptions("0=a:9000"))
    assert write.write(batches([b"a"])).rows == 1
    assert client.log == [b"a"]
    write.commit([RowsCommitted(1, 96)])
    (_, settings), *others = client.connections
    assert settings["lane"] is None and not others, "without a name nothing is registered"


def test_nothing_happens_on_the_driver(client):
    writer().commit([RowsCommitted(1, 96)], 0)
    writer().abort([None], 0)
    assert client.connections == []


@pytest.mark.parametrize(
    ("batch", "task", "is_registered"),
    [
        (0, RowsCommitted(0, -1, "app"), True),  # from then on the cluster knows the query
        (1, RowsCommitted(0, -1, "app"), False),
        (1, RowsCommitted(3, 960, "app"), True),
        (1, RowsCommitted(0, -1, "app", is_registered=True), True),
        (1, RowsCommitted(3, 960), False),
    ],
)
def test_a_batch_is_registered_that_is_the_first_or_has_rows_or_was_registered_before(
    monkeypatch, batch, task, is_registered
):
    lanes = []
    session = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr(writers, "open_session", lambda options, lane: lanes.append(lane) or session)
    ClusterStreamWriter(SinkOptions("0=a:9000")).commit([task, None], batch)

    assert [(lane.application, lane.batch, lane.partitions, lane.rows) for lane in lanes] == (
        [("app", batch, 2, task.rows)] if is_registered else []
    )


def test_a_batch_of_a_real_cluster_is_registered_from_where_the_first_of_its_tasks_was_planned(monkeypatch):
    found = []
    monkeypatch.setattr("spark_connector.sink.aeron_sending.register", lambda *given: found.append(given[2:]))
    options = SinkOptions(consensus_endpoints="a:20110")
    tasks = [RowsCommitted(1, 960, "app", planned_at=320), RowsCommitted(0, -1, "app", planned_at=96)]
    ClusterStreamWriter(options).commit(tasks, 0)

    assert found == [(96, 960)]


@pytest.mark.parametrize("given", [None, "other"])
def test_who_writes_to_a_real_cluster_shows_the_same_to_its_archives_and_its_members(
    monkeypatch, tmp_path, given
):
    """By default what the environment names."""
    for name in ("token", "other"):
        (tmp_path / name).write_text(name)
    monkeypatch.setenv("CLUSTER_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.chdir(tmp_path)
    shown = []

    def show(*_, credentials, **more):
        shown.append(supplier_of(credentials).encoded_credentials())
        return SimpleNamespace(ingress_endpoints=dict)

    monkeypatch.setattr(aeron_sending, "AeronLog", show)
    monkeypatch.setattr(aeron_sending.AeronCluster, "connect", show)
    monkeypatch.setattr(aeron_sending, "lane_entries", lambda *_: None)
    monkeypatch.setattr(aeron_sending, "LaneWriter", lambda alias, connect, *_: connect("alias"))
    options = SinkOptions(consensus_endpoints="a:20110", auth_token_file=given)
    aeron_sending._Attempt(options, aeron_sending.open_log(options), SimpleNamespace(lane=None), 0)

    assert shown == [(given or "token").encode()] * 2


def test_a_task_whose_batch_is_registered_reads_its_input_to_the_end(monkeypatch):
    """Of a worker that has not, Spark makes no more use."""

    def send(_):
        raise BatchRegistered("batch 3 of app is in the log")

    sender = SimpleNamespace(send=send, poll=lambda: None)
    task = writer()
    monkeypatch.setattr(task, "_sender", lambda lane: nullcontext(sender))
    rows = batches(*[[b"a"]] * 10)

    assert task.write(rows) == RowsCommitted(0, -1, is_registered=True)
    assert next(rows, None) is None


def test_who_fetches_ahead_ends_with_the_task():
    with sending.Ahead(itertools.repeat(pa.record_batch({}))) as ahead:
        assert ahead.next(lambda: None) is not None
    ahead._thread.join(10)
    assert not ahead._thread.is_alive()


def test_the_time_of_a_commit_runs_from_when_rows_are_owed():
    sender = sending.Sender(SinkOptions("0=a:9000"), None)
    sender._client = SimpleNamespace(poll_egress=lambda: None, acknowledged=5, offered=5)
    sender.poll()
    acknowledged, since = sender._progress
    assert acknowledged == 5 and since > 0
    sender._client.offered = 6
    sender.poll()
    assert sender._progress == (acknowledged, since)


def test_rows_are_compared_with_those_of_the_lanes_own_sessions():
    lane = Lane("app", 0, 7)
    others = Lane("app", 1, 7), Lane("another", 0, 7), Lane("app", 0, 6)
    entries = [
        {
            "entryType": "SESSION_OPEN",
            "clusterSessionId": id_,
            "encodedPrincipal": LanePrincipal(b"", of).encode(),
        }
        for id_, of in ((3, lane), *enumerate(others, 4))
    ]
    entries += [
        {"entryType": "SESSION_MESSAGE", "clusterSessionId": id_, "payload": b"%d" % id_}
        for id_ in range(1, 7)
    ]
    reader = SimpleNamespace(entries=lambda *_, **__: entries)
    assert list(payloads_of(reader, lane, LaneStanding(2, 0, 960, 1))) == [b"1", b"3"]


@pytest.mark.conformance("P-89")
def test_the_time_that_known_rows_take_to_compare_is_none_of_the_commit_of_others(client, monkeypatch):
    now = 0.0

    def slowly(*_):
        nonlocal now
        now += 5.0
        yield b"a"

    def on_poll():
        client.is_stuck = client.polls == 1

    monkeypatch.setattr("spark_connector.sink.sending.time.monotonic", lambda: now)
    monkeypatch.setattr("spark_connector.sink.sending.read_back", slowly)
    client.lane_standing = LaneStanding(rows=1, begin=0, end=96, session_id=1)
    client.on_poll = on_poll
    with sending.Sender(
        SinkOptions.parse({"endpoints": "0=a:9000", "commitTimeoutMs": "3000"}), Lane("q", 0, 1)
    ) as task:
        task.send(next(batches([b"a", b"b"])))
        assert task.finish() == (2, 96)
    assert client.log == [b"b"]
