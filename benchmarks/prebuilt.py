"""A streaming source that does no work: it hands out one record batch of the log again and again.

No Python source of the same columns can be faster, so it is what the source of the Log is measured against.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from cluster.reader import LogReader
from spark_connector.schema import ROW_COLUMNS, ddl
from spark_connector.task import spare_imports_to_the_collector


@cache  # once in a worker process
def _batch(directory: str, columns: tuple[str, ...], rows: int) -> pa.RecordBatch:
    """``rows`` session messages of the log in ``directory``."""
    with LogReader.open(dir=directory) as reader:
        return next(
            batch
            for batch in reader.batches(
                columns=columns, entry_types=("SESSION_MESSAGE",), rows_per_batch=rows, max_bytes=1 << 25
            )
            if batch.num_rows == rows
        )


class Prebuilt(DataSource):
    """Options: ``directory`` of a log, ``rows`` in a batch, ``partitions``, and ``batches`` in all.

    Without ``batches`` each micro-batch has one a partition, for ever.
    """

    @classmethod
    def name(cls) -> str:
        return "prebuilt"

    def schema(self) -> str:
        return ddl(ROW_COLUMNS)

    def streamReader(self, schema: StructType) -> PrebuiltReader:
        return PrebuiltReader(dict(self.options), tuple(schema.fieldNames()))


class PrebuiltReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: dict[str, str], columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def initialOffset(self) -> dict[str, Any]:
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """The number of batches is fixed anyway."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        of_one = start["batch"] + int(self._options["partitions"])
        return {"batch": int(self._options.get("batches", of_one))}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        count, splits = end["batch"] - start["batch"], int(self._options["partitions"])
        edges = [count * split // splits for split in range(splits + 1)]
        return [InputPartition(stop - begin) for begin, stop in pairwise(edges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = _batch(self._options["directory"], self._columns, int(self._options["rows"]))
        for _ in range(partition.value):
            yield batch
        spare_imports_to_the_collector()
