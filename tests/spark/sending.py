"""A query that sends the lines of a log into another one, as one is recorded and started again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LINES = 40


def sent_lines(
    spark: SparkSession,
    source: Path,
    endpoints: str,
    checkpoint: Path,
    within: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] | None = None,
    name: str = "cluster",
) -> StreamingQuery:
    """Started, to the end of the log in ``source``; ``within`` has the rows on their way.

    ``name`` is that of the format.
    """
    entries = (
        spark.readStream.format(name)
        .options(clusterDir=str(source), startingOffsets="earliest", maxEntriesPerTrigger="30")
        .load()
    )
    lines = entries.where("entryType = 'SESSION_MESSAGE'").select("payload")
    return (
        (lines if within is None else lines.mapInArrow(within, "payload BINARY"))
        .writeStream.format(name)
        .option("endpoints", endpoints)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
