"""The two queries that run while the year passes: the Log into Delta, and statistics back into the Log.

The second one reads the table of the Log, so that the Log is read once, by one Python process, and starts
once there is one. The first one is at work before the year begins: Spark gives up on a query whose Python
process takes more than ten seconds to come up, as it may amid all the flights.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jobs.demo import statistics
from jobs.keeping import keeping
from jobs.log_to_delta import log_job
from spark_connector import start_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOG_EVERY = "2 seconds"
ANSWER_EVERY = "5 seconds"
MESSAGE_COLUMNS = ("position", "payload")


class LiveQueries:
    """Both queries from start to end, and what their progress has reported so far."""

    def __init__(self, spark: SparkSession, endpoints: str, home: Path) -> None:
        source = {"endpoints": endpoints, "startingOffsets": "earliest"}
        self._spark = spark
        self._table = str(home / "delta" / "log")
        self._checkpoints = home / "checkpoints"
        self._endpoints = endpoints
        self.answers = 0  # statistics that the sink has had acknowledged as committed
        self.answering_sessions = 0  # that the sink opened: one for each batch that had something to say
        self._log = start_query(
            keeping(spark, {self._table: log_job()}, source, str(self._checkpoints / "log"))
            .queryName("log_to_delta")
            .trigger(processingTime=LOG_EVERY)
        )
        self._rows_of: dict[int, int] = {}  # each batch of the Log, gathered before Spark forgets it
        self._answers: StreamingQuery | None = None

    def _start_answers(self) -> StreamingQuery:
        log = self._spark.readStream.format("delta").load(self._table)
        messages = log.where("entryType = 'SESSION_MESSAGE'").select(*MESSAGE_COLUMNS)
        return (
            statistics.statistics(messages)
            .writeStream.queryName("answers")
            .outputMode("update")
            .foreachBatch(self._answer)
            .option("checkpointLocation", str(self._checkpoints / "answers"))
            .trigger(processingTime=ANSWER_EVERY)
            .start()
        )

    def _answer(self, changed: DataFrame, _: int) -> None:
        """Send the statistics that a batch changed. Sent again, they do no harm: the newest counts."""
        messages = statistics.as_messages(changed).persist()
        try:
            count = messages.count()
            if count:
                messages.write.format("cluster").mode("append").option("endpoints", self._endpoints).save()
                self.answers += count
                self.answering_sessions += 1
        finally:
            messages.unpersist()

    @property
    def rows(self) -> int:
        """Entries that are in the Delta table; to be asked more often than every hundred batches."""
        for progress in self._log.recentProgress:
            if progress["numInputRows"]:
                self._rows_of[progress["batchId"]] = progress["numInputRows"]
        return sum(self._rows_of.values())

    def check(self) -> None:
        """Raise what made a query fail; start the second one when the first has written its table."""
        if self._answers is None and self.rows:
            self._answers = self._start_answers()
        for query in (self._log, self._answers):
            failure = None if query is None else query.exception()
            if failure is not None:
                raise failure

    def finish_answers(self) -> None:
        """Answer what is in the Log by now, and stop answering."""
        self._log.processAllAvailable()
        self.check()
        assert self._answers is not None, "the Log has at least its leadership term"
        self._answers.processAllAvailable()
        self._answers.stop()

    def finish_log(self) -> None:
        """Update the Delta table to the end of the Log, and stop."""
        self._log.processAllAvailable()
        self._log.stop()
