"""Queries of Spark's that are rolled back, and that use one stream twice."""

import json

import pytest

from tests.spark.pipeline import Pipeline, stream


@pytest.mark.slow
@pytest.mark.conformance("P-30")
@pytest.mark.parametrize("count", [3, 10])
def test_micro_batches_of_a_query_that_are_rolled_back_come_again(spark, live, tmp_path, count):
    """The pipeline compares each with what it had; the offsets of all but the first are planned again."""
    end = 2 + count
    sent = live.lines(live.session_id, 0, 5 * end - 2)
    pipeline = Pipeline(spark, live, tmp_path / "out", maxEntriesPerTrigger="5")
    assert pipeline.run() == [5] * end
    offsets = pipeline.checkpoint / "offsets"
    before = {number: (offsets / str(number)).read_text().splitlines()[-1] for number in range(end)}
    pipeline.forget(commits=range(2, end), offsets=range(3, end))

    assert pipeline.run() == [5] * count
    assert pipeline.lines() == sent
    again = {number: (offsets / str(number)).read_text().splitlines()[-1] for number in range(end)}
    assert again == before and json.loads(again[end - 1])["position"] == live.position


@pytest.mark.slow
@pytest.mark.conformance("P-28")
def test_a_stream_joined_with_itself_has_the_right_rows(spark, live, tmp_path):
    sessions = [live.open_session() for _ in range(4)]
    for session_id in sessions[:3]:
        live.close_session(session_id)
    live.commit()
    entries = stream(spark, live.directory, maxEntriesPerTrigger="4").load()
    opens = entries.where("entryType = 'SESSION_OPEN'").selectExpr("clusterSessionId", "position AS opened")
    closes = entries.where("entryType = 'SESSION_CLOSE'").selectExpr(
        "clusterSessionId AS id", "position AS closed"
    )
    query = (
        opens.join(closes, opens.clusterSessionId == closes.id)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "joined"))
    )
    query.awaitTermination()

    joined = spark.read.parquet(str(tmp_path / "joined")).collect()
    assert sorted(row.clusterSessionId for row in joined) == sorted(sessions[:3])
    assert all(row.opened < row.closed for row in joined)
    (source,) = query.lastProgress["sources"]
    assert json.loads(source["endOffset"])["position"] == live.position
