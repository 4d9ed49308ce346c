"""Rows on their way out of a Python worker of Spark, which keeps the end of what it writes in a buffer.

    made    first batch         second batch
    sent    all but its end     its end, and all but the end of the second

The last bytes of a batch, some padding as a rule, leave the buffer with the next one. Until that is made the
JVM waits for rows that are there but for these bytes, and then the worker waits for the JVM. A second, small
batch right after each pushes the first one out, and the JVM works on it while the next one is made.
"""

import os
from collections.abc import Iterator

import pyarrow as pa

# Of the buffer (pyspark.daemon), and once more for what the second batch leaves of itself in it.
PUSHING_BYTES = 2 * int(os.environ.get("SPARK_BUFFER_SIZE", 65536))


def pushed_out(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows as two batches, the second with PUSHING_BYTES; as one where they are not worth it."""
    if rows.nbytes < 4 * PUSHING_BYTES:
        yield rows
        return
    first = rows.num_rows - rows.num_rows * PUSHING_BYTES // rows.nbytes
    yield rows.slice(0, first)
    yield rows.slice(first)
