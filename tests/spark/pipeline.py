"""A query over a log that tests stop, hurt and start again."""

import time


def stream(spark, directory, **options):
    given = {"startingOffsets": "earliest", **options}
    return spark.readStream.format("cluster").options(clusterDir=str(directory), **given)


class Pipeline:
    """A query that takes a log's rows batch by batch; it can be stopped, hurt, and started again.

    A micro-batch that runs again has to bring the rows that it brought before.
    """

    def __init__(self, spark, log, folder, **options):
        self.spark, self.log, self.options = spark, log, options
        self.checkpoint = folder / "checkpoint"
        self.taken = {}
        self.query = None

    def start(self, **trigger):
        self.query = (
            stream(self.spark, self.log.directory, **self.options)
            .load()
            .writeStream.foreachBatch(self.take)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(**(trigger or {"processingTime": "0 seconds"}))
            .start()
        )
        return self.query

    def take(self, batch, batch_id):
        rows = sorted(batch.toArrow().to_pylist(), key=lambda row: row["position"])
        assert self.taken.setdefault(batch_id, rows) == rows

    def run(self, **trigger):
        """Start, wait for the end, and return how many rows each micro-batch had."""
        query = self.start(**(trigger or {"availableNow": True}))
        query.awaitTermination()
        return [batch["numInputRows"] for batch in query.recentProgress if batch["numInputRows"]]

    def lines(self):
        rows = [row for batch_id in sorted(self.taken) for row in self.taken[batch_id]]
        return [row["payload"] for row in rows if row["entryType"] == "SESSION_MESSAGE"]

    def forget(self, commits=(), offsets=()):
        """As if the driver had died before it wrote these of its checkpoint."""
        for folder, batches in (("commits", commits), ("offsets", offsets)):
            for batch_id in batches:
                for name in (f"{batch_id}", f".{batch_id}.crc"):
                    (self.checkpoint / folder / name).unlink()


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
