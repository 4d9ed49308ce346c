"""Spans of micro-batches, by the progress events of a query that runs."""

import time

import pytest

from cluster.client.tracing import Tracing
from spark_connector.tracing import BatchTracing
from tests.spark.pipeline import wait_for

EVERY_BYTES = 1 << 10


@pytest.mark.slow
def test_each_traced_message_has_the_span_of_the_batch_that_read_it_but_in_the_first_one(
    spark, live, pipeline, spans
):
    tracing = Tracing("payments", EVERY_BYTES)
    listener = BatchTracing(tracing)
    spark.streams.addListener(listener)
    begun_ns = time.time_ns()
    try:
        ends = []
        for first in (0, 40, 80):
            live.lines(live.session_id, first, 40)
            ends.append(live.position)
            pipeline.run()
        places = tracing.places(ends[0], ends[-1])
        wait_for(lambda: len(spans()) >= len(places))
    finally:
        spark.streams.removeListener(listener)

    found = sorted(spans(), key=lambda span: span.attributes["cluster.place"])
    assert [span.attributes["cluster.place"] for span in found] == list(places)
    assert {span.name for span in found} == {"cluster.batch"}
    assert {span.attributes["cluster.query"] for span in found} == {str(pipeline.query.id)}
    assert {span.attributes["cluster.batch"] for span in found} == {1, 2}
    for span in found:
        place, rows = span.attributes["cluster.place"], pipeline.taken[span.attributes["cluster.batch"]]
        assert any(row["position"] <= place < row["endPosition"] for row in rows)
        assert begun_ns - 10**6 < span.start_time < span.end_time < time.time_ns()
