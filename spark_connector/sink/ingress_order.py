"""Rows in an order that follows from them alone, so that a task that runs again sends what it sent before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cluster.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql._typing import ColumnOrName

ORDER = ("position", "payload")  # rows equal in both are the same message: either may be the first
COMPUTED = "for_ingress"  # a column of no meaning
BATCH_ROWS = 32_768


def for_ingress(df: DataFrame, n: int, key: ColumnOrName, *keys: ColumnOrName) -> DataFrame:
    """Column ``payload`` of ``df`` in ``n`` tasks: all rows of a key in one task, in the log's order.

    ``df`` has the columns ``payload``, ``position`` (of the entry that a row was made of) and those of the
    keys. A shuffle brings rows in whatever order its blocks arrive. So they are sorted behind it, by position
    and then by payload. Spark refuses to sort a stream: of one, each task holds its rows of a micro-batch in
    memory meanwhile. Raises ConfigurationError for an ``n`` that is no number of tasks.
    """
    if not isinstance(n, int) or n < 1:
        raise ConfigurationError(f"for_ingress: n is {n!r}; expected a number of tasks from 1 on")
    if not df.isStreaming:
        spread = df.repartition(n, key, *keys).select(*ORDER)
        return spread.sortWithinPartitions(*ORDER).select("payload")
    from pyspark.sql.functions import bitwise_not

    # Rows of a stateful pandas operator are columnar, and Spark's shuffle takes none. A column that has to be
    # computed makes rows of its own of them; the optimiser drops one that nobody reads after the shuffle.
    computed = df.withColumn(COMPUTED, bitwise_not("position"))
    spread = computed.repartition(n, key, *keys).select(*ORDER, COMPUTED)
    return spread.mapInArrow(_in_order, df.select("payload").schema)


def _in_order(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    if collected := list(batches):
        in_order = pa.Table.from_batches(collected).sort_by([(name, "ascending") for name in ORDER])
        yield from in_order.select(["payload"]).to_batches(max_chunksize=BATCH_ROWS)
