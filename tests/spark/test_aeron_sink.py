"""The sink's tasks into a real Aeron Cluster whose log a test plays: what they send, wait for and report."""

from __future__ import annotations

import pickle
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest

from cluster.aeron.lane_index import LaneAlias, LaneIndex
from cluster.errors import ClientClosed, ConfigurationError, LocalProtocolError, TimedOut
from cluster.protocol.lane import REGISTRATION, Lane
from spark_connector.data_source import ClusterDataSource
from spark_connector.options.cluster_options import SinkOptions
from spark_connector.sink import aeron_sending
from spark_connector.sink.writers import ClusterStreamWriter, RowsCommitted
from tests.aeron.scripted_log import ScriptedLog
from tests.spark.played import PlayedTask

LANE = Lane("q", 3, 7)
GIVEN = {"consensusEndpoints": "a:9003", "commitTimeoutMs": "50", "failOnUnknownQuery": "false"}


@pytest.fixture
def log(monkeypatch):
    """What is offered is committed at once; ``begin`` is where the search of a task began."""
    log = ScriptedLog()
    log.commits = True
    log.closed = 0
    properties = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "7"}
    monkeypatch.setattr("spark_connector.task.TaskContext.get", lambda: PlayedTask(**properties))

    def open_log(options):
        return SimpleNamespace(
            term_length=64 * 1024, ingress_endpoints=lambda: {0: "a:9002"}, close=lambda: None
        )

    def connect(endpoints, *, alias, aeron_dir, credentials, timeout_s):
        assert endpoints == {0: "a:9002"}
        return log.connect(alias)

    monkeypatch.setattr(aeron_sending, "open_log", open_log)
    monkeypatch.setattr(aeron_sending, "planned_index", lambda _: LaneIndex(0, log.end))
    monkeypatch.setattr(aeron_sending, "begin_of", lambda *_: 0)
    monkeypatch.setattr(aeron_sending, "lane_entries", lambda _, lane, begin: log.entries(begin))
    monkeypatch.setattr(aeron_sending.AeronCluster, "connect", connect)
    return log


def batches(*columns, kind=None):
    return iter([pa.record_batch({"payload": pa.array(column, kind or pa.binary())}) for column in columns])


def writer(**options):
    return ClusterStreamWriter(SinkOptions.parse(GIVEN | options))


def sent_to_tasks(writer):
    """As Spark does it."""
    return pickle.loads(pickle.dumps(writer))


def write(*columns, kind=None, **options):
    done = sent_to_tasks(writer(**options)).write(batches(*columns, kind=kind))
    return replace(done, planned_at=0)


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string()])
def test_a_task_reports_how_many_of_its_rows_are_committed_and_closes_its_session(log, kind):
    assert write([b"a", b"b"], [], [b"c", b""], kind=kind) == RowsCommitted(4, log.message_end, "q")
    assert [(session.sent, session.is_closed) for session in log.sessions] == [
        ([b"a", b"b", b"c", b""], True)
    ]
    (alias,) = log.aliases
    assert alias.lane == LANE


def test_a_task_without_rows_opens_no_session_in_a_real_cluster(log):
    assert write([], []) == RowsCommitted(0, -1, "q")
    assert log.sessions == []


def test_a_task_that_runs_again_sends_what_is_not_in_the_log(log):
    log.open(LaneAlias(LANE, "other").text, 1)
    log.messages(1, b"b", b"a")
    log.close(1)
    assert write([b"a", b"b", b"c"]).rows == 3
    assert [session.sent for session in log.sessions] == [[b"c"]]


def test_a_task_whose_rows_are_others_than_those_in_the_log_is_refused(log):
    log.open(LaneAlias(LANE, "other").text, 1)
    log.messages(1, b"a", b"x")
    log.close(1)
    says = "^batch 7 of query q, partition 3, attempt 1: the log has 1 rows of batch 7 of lane q/3 "
    with pytest.raises(LocalProtocolError, match=says):
        write([b"a"])
    assert write([b"a"], checkOrder="false").rows == 1


def test_a_row_without_payload_is_refused_before_a_session_is_opened_in_a_real_cluster(log):
    with pytest.raises(LocalProtocolError, match="row 1 of the task has no payload"):
        write([b"a", None])
    assert log.sessions == []


def test_a_row_that_is_longer_than_the_log_takes_is_refused_before_it_is_sent(log):
    with pytest.raises(LocalProtocolError, match=r"row 1 of the task has a payload of 8161 bytes; .* 8160"):
        write([b"a", b"x" * 8161])
    assert [session.sent for session in log.sessions] == [[]]
    assert write([b"x" * 8160]).rows == 1


def test_a_task_waits_for_the_session_of_an_attempt_that_goes_on_and_says_so_in_the_end(log):
    log.open(LaneAlias(LANE, "zombie").text, 1)
    says = (
        r"for 0.05 s \(option commitTimeoutMs\): the session of an earlier attempt is still open .*; 0 rows"
    )
    with pytest.raises(TimedOut, match=says):
        write([b"a"])
    assert [(session.sent, session.is_closed) for session in log.sessions] == [([], True)]


def test_a_task_that_a_later_attempt_has_replaced_ends(log):
    log.commits = False
    task = aeron_sending.AeronSender(SinkOptions.parse(GIVEN), LANE, LaneIndex(0, 0))
    with closing(task._opened):
        task.send(pa.record_batch({"payload": pa.array([b"a"])}))
        task.poll()
        log.open(LaneAlias(LANE, "later").text, 1)
        with pytest.raises(ClientClosed, match="another attempt has opened batch 7 of lane q/3"):
            task.finish()
    assert log.sessions[0].is_closed


def test_at_least_once_every_attempt_sends_all_under_a_name_of_its_own(log):
    for _ in range(2):
        assert write([b"a"], deliveryMode="at-least-once") == RowsCommitted(1, log.message_end)
    assert [session.sent for session in log.sessions] == [[b"a"], [b"a"]]
    assert len({alias.lane.application for alias in log.aliases}) == 2


def test_a_batch_is_registered_with_the_position_at_which_it_was_planned(log):
    """Spark commits with another writer than the one that it has sent to the tasks."""
    log.messages(99, b"of another")
    planned_at = log.end
    task = sent_to_tasks(writer())
    done = [task.write(batches(rows)) for rows in ([b"a"], [])]
    log.messages(99, b"of another")
    writer().commit(done, 7)
    alias = log.aliases[-1]
    assert (alias.lane, alias.position) == (Lane("q", REGISTRATION, 7), planned_at)
    assert log.sessions[-1].is_closed


def test_a_batch_without_rows_is_registered_only_if_it_is_the_first(log):
    writer().commit([RowsCommitted(0, -1, "q")], 7)
    assert log.sessions == []
    writer().commit([RowsCommitted(0, -1, "q")], 0)
    assert log.aliases[-1].lane == Lane("q", REGISTRATION, 0)


@pytest.mark.conformance("P-17")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "the sink needs option endpoints or consensusEndpoints; none is given"),
        (
            {"endpoints": "0=a:9000", "consensusEndpoints": "a:9003"},
            "give either option consensusEndpoints, or option endpoints",
        ),
        (
            {"consensusEndpoints": "a:9003", "tlsCaFile": "/ca"},
            "option consensusEndpoints is given, and tlsCaFile: Aeron has no TLS",
        ),
        ({"endpoints": "0=a:9000", "aeronDir": "/d"}, "option aeronDir goes with consensusEndpoints"),
        ({"endpoints": "0=a:9000", "aeronSearchMax": "1g"}, "option aeronSearchMax goes with consensusEnd"),
        ({"consensusEndpoints": "a:1", "clusterId": "7"}, "option clusterId is for a read"),
        (
            {"consensusEndpoints.eu": "a:1", "endpoints.us": "b:1", "routeBy": "payload"},
            "cluster eu: option consensusEndpoints is given; expected endpoints of each cluster",
        ),
    ],
)
def test_what_a_write_to_a_real_cluster_cannot_be_is_refused(options, says):
    from pyspark.sql.types import StructType

    with pytest.raises(ConfigurationError) as error:
        ClusterDataSource(options).streamWriter(StructType().add("payload", "binary"), overwrite=False)
    assert says in str(error.value)
