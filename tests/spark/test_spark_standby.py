"""Spark over the endpoint of a standby, which spares the members the readers."""

import pytest

from tests.backup.running_standby import member, standby, take_snapshot
from tests.node.processes import await_that


@pytest.mark.slow
def test_batches_and_streams_read_what_the_standby_has(spark, tmp_path):
    with member(tmp_path) as node, standby(tmp_path, node) as config:
        take_snapshot(node)
        options = {"endpoints": config.endpoint, "startingOffsets": "earliest"}

        def committed():
            rows = spark.read.format("cluster").options(**options).load()
            return [bytes(row.payload) for row in rows.where("entryType = 'SESSION_MESSAGE'").collect()]

        await_that(lambda: b"1" in committed(), "the standby has the message")
        query = (
            spark.readStream.format("cluster")
            .options(**options)
            .load()
            .writeStream.format("memory")
            .queryName("of_a_standby")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        found = spark.sql("select payload from of_a_standby where entryType = 'SESSION_MESSAGE'").collect()
        assert [bytes(row.payload) for row in found] == committed()
