"""The same number of rows out of one cluster's log, two's and four's, in one query: what a name more costs.

A stream with ``availableNow`` to ``noop``, typed columns, all rows in one trigger, two cores. One log is read
by two tasks; of several each has one. The goal: four logs at 0.9 of the rate of one, or more.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.options import Options
from benchmarks.spark_source import PAYLOAD_LENGTH, ROWS, TYPED, drain
from benchmarks.synthetic_log import write_messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLUSTERS = (1, 2, 4)
CORES = 2


def run(options: Options) -> Iterator[dict[str, Any]]:
    """A figure for each number of clusters: medians of rounds in turns, after one that does not count."""
    from jobs.session import spark_session

    with tempfile.TemporaryDirectory(prefix="cluster-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        spark = spark_session("benchmark", master=f"local[{CORES}]", extra={"spark.driver.memory": "4g"})
        queries = {count: _query(spark, folder, count) for count in CLUSTERS}
        rates: dict[int, list[dict[str, float]]] = {count: [] for count in CLUSTERS}
        for _ in range(options.rounds + 1):
            for count, rows in queries.items():
                rates[count].append(drain(rows, folder / "checkpoint"))
        spark.stop()
    medians = {
        count: {key: statistics.median(run[key] for run in runs[1:]) for key in runs[0]}
        for count, runs in rates.items()
    }
    for count, median in medians.items():
        yield {
            "figure": "clusters in one query, typed, to noop",
            "clusters": count,
            "rows": ROWS,
            **{key: round(rate) for key, rate in median.items()},
            "of_one_cluster": round(median["rows_per_s"] / medians[1]["rows_per_s"], 2),
        }


def _query(spark: SparkSession, folder: Path, count: int) -> DataFrame:
    """A stream over ``count`` new logs with the same rows in all."""
    reader = spark.readStream.format("cluster").schema(
        TYPED if count == 1 else f"clusterName STRING, {TYPED}"
    )
    length = 0
    for i in range(count):
        directory = folder / f"{count}-{i}" / "member-0"
        length += write_messages(directory, ROWS // count, payload_length=PAYLOAD_LENGTH)
        reader = reader.option("clusterDir" if count == 1 else f"clusterDir.c{i}", str(directory))
    return (
        reader.option("startingOffsets", "earliest")
        .option("entryTypes", "SESSION_MESSAGE")
        .option("maxBytesPerTrigger", "1t")
        .option("maxBytesPerPartition", str(-(-length // max(count, CORES))))
        .load()
    )
