"""Spans of a message from the offer to the Spark batch that read it, as OpenTelemetry's SDK exports them."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace

from cluster import ClusterClient, ClusteredService, ClusterNode, LogReader
from cluster.client.tracing import TracedClient, Tracing
from spark_connector.tracing import SPANS_MAX, BatchTracing
from tests.node.processes import await_that, endpoints_of, keys_of

EVERY_BYTES = 1 << 10


class Traced(ClusteredService):
    """Answers what it gets."""

    def on_start(self, cluster, snapshot_image):
        self.cluster = cluster
        self.tracing = Tracing("payments", EVERY_BYTES)

    def on_session_message(self, session, timestamp, buffer):
        with self.tracing.serving(self.cluster, buffer):
            session.offer(buffer)


def progress(begin, end, **more):
    """As Spark's listener gets it of a batch; ``begin`` and ``end`` are positions."""
    offsets = [json.dumps({"v": 2, "cluster": "0:1:2", "position": position}) for position in (begin, end)]
    return SimpleNamespace(
        progress={
            "id": "7",
            "name": "to_delta",
            "batchId": 3,
            "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "durationMs": {"triggerExecution": 40},
            "sources": [{"startOffset": offsets[0], "endOffset": offsets[1]}],
            **more,
        }
    )


def test_offer_commit_service_answer_and_batch_of_one_message_are_one_trace(tmp_path, spans):
    services = {"services": [f"{__name__}:Traced"], "service_mode": "inline"}
    with ClusterNode.launch(**keys_of(tmp_path, **services)) as node:
        await_that(lambda: node.is_leader, "it leads")
        tracing = Tracing("payments", EVERY_BYTES)
        with TracedClient(ClusterClient.connect(endpoints_of(node, "ipc")), tracing) as client:
            for number in range(20):
                assert client.request(b"%d" % number).payload == b"%d" % number
                client.await_committed()
            end = client.committed_position
        BatchTracing(tracing).onQueryProgress(progress(0, end))
        with LogReader.open(dir=str(node.config.path)) as log:
            entries = list(log.entries(entry_types=["SESSION_MESSAGE"]))

    traces = {}
    for span in spans():
        assert span.attributes["cluster.name"] == "payments" and span.start_time <= span.end_time
        traces.setdefault(span.context.trace_id, {})[span.name] = span
    whole = [names for names in traces.values() if "cluster.commit" in names]
    assert len(whole) >= 2, "20 messages of 96 bytes have at least one multiple of 1,024 for every 11"
    assert len(whole) < 5, "most messages have no trace"
    for names in whole:
        assert set(names) == {"cluster.commit", "cluster.answer", "cluster.service", "cluster.batch"}
        commit, service = names["cluster.commit"], names["cluster.service"]
        assert len({span.parent.span_id for span in names.values()}) == 1
        assert commit.start_time <= service.start_time <= service.end_time <= commit.end_time
        entry = entries[commit.attributes["cluster.number"] - 1]
        assert entry["position"] <= commit.attributes["cluster.place"] < commit.attributes["cluster.position"]


class AClient:
    """What a TracedClient asks a client for."""

    cluster_session_id = 7

    def __init__(self):
        self.offered = self.acknowledged = 0
        self.committed_position = -1

    def offer(self, *parts):
        self.offered += 1
        return self.offered

    def last_committed(self):
        return self.acknowledged, self.committed_position

    def poll_egress(self, limit):
        self.acknowledged, self.committed_position = self.offered, 2048 + 96
        return 0


def test_of_messages_that_are_committed_together_the_last_alone_may_be_traced(spans):
    client = TracedClient(AClient(), Tracing("c", EVERY_BYTES))
    for _ in range(3):
        client.offer(b"ab", b"c")
    assert spans() == ()
    client.poll_egress()
    [span] = spans()
    assert (span.attributes["cluster.number"], span.attributes["cluster.place"]) == (3, 2048)
    client.poll_egress()
    assert len(spans()) == 1


def test_a_batch_has_so_many_spans_at_most_and_none_for_other_sources(spans):
    tracing = BatchTracing(Tracing("c", EVERY_BYTES))
    tracing.onQueryProgress(progress(32, 1056))
    assert [span.attributes["cluster.place"] for span in spans()] == [1024]
    others = [
        {"startOffset": None, "endOffset": '{"v": 2, "cluster": null, "position": 4096}'},
        {"startOffset": "17", "endOffset": "18"},
        {"startOffset": '{"topic": {"0": 1}}', "endOffset": '{"topic": {"0": 2}}'},
    ]
    tracing.onQueryProgress(progress(0, 0, sources=others))
    assert len(spans()) == 1
    tracing.onQueryProgress(progress(0, 1 << 30))
    assert len(spans()) == 1 + SPANS_MAX
