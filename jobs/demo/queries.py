"""The two queries that run while the year passes: the Log into Delta, and statistics back into the Log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import log_to_delta
from jobs.demo import statistics
from jobs.streaming import read_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOG_EVERY = "2 seconds"
ANSWER_EVERY = "5 seconds"
ANSWERS = "answers"
MESSAGE_COLUMNS = "position BIGINT, payload BINARY"


class LiveQueries:
    """Both queries from start to end, and what their progress has told so far."""

    def __init__(self, spark: SparkSession, endpoints: str, home: Path) -> None:
        source = {"endpoints": endpoints, "startingOffsets": "earliest"}
        checkpoints = home / "checkpoints"
        self._log = (
            log_to_delta.appending(spark, source, str(home / "delta" / "log"))
            .option("checkpointLocation", str(checkpoints / "log"))
            .trigger(processingTime=LOG_EVERY)
            .start()
        )
        messages = read_log(spark, source | {"entryTypes": "SESSION_MESSAGE"}, MESSAGE_COLUMNS)
        self._answers = (
            statistics.as_messages(statistics.observed(statistics.statistics(messages), ANSWERS))
            .writeStream.queryName(ANSWERS)
            .format("cluster")
            .option("endpoints", endpoints)
            .outputMode("update")
            .option("checkpointLocation", str(checkpoints / ANSWERS))
            .trigger(processingTime=ANSWER_EVERY)
            .start()
        )
        self._of_log = Batches(self._log)
        self._of_answers = Batches(self._answers)

    @property
    def rows(self) -> int:
        """Entries that are in the Delta table."""
        return sum(progress["numInputRows"] for progress in self._of_log.seen())

    @property
    def answers(self) -> int:
        """Statistics that the sink has had acknowledged."""
        return sum(statistics.observed_rows(progress, ANSWERS) for progress in self._of_answers.seen())

    @property
    def answering_sessions(self) -> int:
        """Sessions that the sink opened: one for each batch that had something to say."""
        return sum(statistics.observed_rows(progress, ANSWERS) > 0 for progress in self._of_answers.seen())

    def check(self) -> None:
        """Raise what made a query fail."""
        for query in (self._log, self._answers):
            failure = query.exception()
            if failure is not None:
                raise failure

    def finish_answers(self) -> None:
        """Answer what is in the Log by now, and stop answering."""
        self._answers.processAllAvailable()
        self._of_answers.seen()
        self._answers.stop()

    def finish_log(self) -> None:
        """Bring the Delta table up to the end of the Log, and stop."""
        self._log.processAllAvailable()
        self._of_log.seen()
        self._log.stop()

    def stop(self) -> None:
        """Stop both, wherever they are."""
        for query in (self._answers, self._log):
            query.stop()


class Batches:
    """The progress of every batch of a query, gathered before Spark forgets it."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._by_id: dict[int, Any] = {}

    def seen(self) -> list[Any]:
        """All batches that have completed with input so far; to be asked more often than every hundred."""
        for progress in self._query.recentProgress:
            if progress["numInputRows"]:
                self._by_id[progress["batchId"]] = progress
        return list(self._by_id.values())
