"""The Log through Spark, beside a source that does no work and beside Kafka's with typed columns.

Goals: at least half the rate of the prebuilt source in the same run, and at least Kafka's rate. Each is a
stream with ``availableNow`` to the ``noop`` sink, all rows in one trigger, in a warm session on two cores;
``rows_per_s`` is rows over the wall time of the whole query, ``trigger_rows_per_s`` over its triggers'.
Kafka's are taken by its own harness, in turns with the log's.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.kafka import in_turns
from benchmarks.options import Options
from benchmarks.synthetic_log import write_messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 4_000_000
PAYLOAD_LENGTH = 100
BATCH_ROWS = 32_768
TASKS = (1, 2)
TYPED = (
    "position BIGINT, endPosition BIGINT, leadershipTermId BIGINT, timestamp TIMESTAMP, "
    "clusterSessionId BIGINT, payload BINARY"
)


def run(options: Options) -> Iterator[dict[str, Any]]:
    """One figure for the log and one for the prebuilt source, for each set of columns and number of tasks."""
    from benchmarks.prebuilt import Prebuilt
    from jobs.session import spark_session

    with tempfile.TemporaryDirectory(prefix="cluster-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        directory = str(folder / "member-0")
        length = write_messages(folder / "member-0", ROWS, payload_length=PAYLOAD_LENGTH)
        spark = spark_session("benchmark", master="local[2]", extra={"spark.driver.memory": "4g"})
        spark.dataSource.register(Prebuilt)
        options_of = {}
        for tasks in TASKS:
            log = {
                "clusterDir": directory,
                "startingOffsets": "earliest",
                "entryTypes": "SESSION_MESSAGE",
                "maxBytesPerTrigger": "1t",
                "maxBytesPerPartition": str(-(-length // tasks)),
            }
            prebuilt = {
                "directory": directory,
                "rows": BATCH_ROWS,
                "batches": ROWS // BATCH_ROWS,
                "partitions": tasks,
            }
            options_of[tasks] = {"prebuilt": prebuilt, "cluster": log}

        def both_sides(columns: str, schema: str | None) -> Iterator[dict[str, Any]]:
            for tasks, given in options_of.items():
                queries = {name: _stream(spark, name, schema, chosen) for name, chosen in given.items()}
                yield from _measure(queries, {"columns": columns, "tasks": tasks}, folder, options.rounds)

        yield from both_sides("all", None)
        yield from both_sides("typed", TYPED)
        if options.peers is not None:
            queries = {
                tasks: _stream(spark, "cluster", TYPED, given["cluster"])
                for tasks, given in options_of.items()
            }
            yield from _beside_kafka(options.peers, queries, folder)
        spark.stop()


def _stream(spark: SparkSession, name: str, schema: str | None, options: dict[str, Any]) -> DataFrame:
    reader = spark.readStream.format(name).options(**options)
    return (reader if schema is None else reader.schema(schema)).load()


def _measure(
    queries: dict[str, DataFrame], labels: dict[str, Any], folder: Path, rounds: int
) -> Iterator[dict[str, Any]]:
    """The queries in turns, a round that does not count first."""
    rates: dict[str, list[dict[str, float]]] = {name: [] for name in queries}
    for _ in range(rounds + 1):
        for name, rows in queries.items():
            rates[name].append(drain(rows, folder / "checkpoint"))
    medians = {}
    for name, runs in rates.items():
        medians[name] = {key: round(statistics.median(run[key] for run in runs[1:])) for key in runs[0]}
    for name, median in medians.items():
        ratios = {
            f"{key}_of_prebuilt": round(value / medians["prebuilt"][key], 2) for key, value in median.items()
        }
        yield {
            "figure": f"{name} to noop",
            "rows": ROWS,
            **labels,
            **median,
            **(ratios if name == "cluster" else {}),
        }


def drain(rows: DataFrame, checkpoint: Path) -> dict[str, float]:
    """Run a stream of ``ROWS`` rows to its end: rows a second of the whole query, and of its triggers."""
    shutil.rmtree(checkpoint, ignore_errors=True)
    began = time.monotonic()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    seconds = time.monotonic() - began
    triggers = [batch for batch in query.recentProgress if batch["numInputRows"]]
    count = sum(batch["numInputRows"] for batch in triggers)
    assert count in (ROWS, ROWS // BATCH_ROWS * BATCH_ROWS), count
    busy_ms = sum(batch["durationMs"]["triggerExecution"] for batch in triggers)
    return {"rows_per_s": count / seconds, "trigger_rows_per_s": count * 1000 / busy_ms}


def _beside_kafka(peers: Path, queries: dict[int, DataFrame], folder: Path) -> Iterator[dict[str, Any]]:
    """Kafka's own figures of decoded rows, and the log's by tasks, in turns."""
    rates: dict[int, list[dict[str, float]]] = {tasks: [] for tasks in queries}

    def measure() -> None:
        for tasks, rows in queries.items():
            rates[tasks].append(drain(rows, folder / "checkpoint"))

    figures = in_turns(peers, "2", measure, ROWS=str(ROWS))
    ours = {
        tasks: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for tasks, runs in rates.items()
    }
    for tasks, median in ours.items():
        rounded = {key: round(value) for key, value in median.items()}
        yield {
            "figure": "cluster, typed, in turns with kafka",
            "rows": ROWS,
            "tasks": tasks,
            "runs": len(rates[tasks]),
            **rounded,
        }
    for figure in figures:
        tasks, rate, busy = (
            figure["partitions"],
            figure["rows_s"]["median"],
            figure["processed_rows_s"]["median"],
        )
        yield {
            "figure": "kafka, decoded, to noop",
            "rows": ROWS,
            "decoder": figure["decoder"],
            "tasks": tasks,
            "rows_per_s": round(rate),
            "trigger_rows_per_s": round(busy),
            "rows_per_s_of_cluster_to_this": round(ours[tasks]["rows_per_s"] / rate, 2),
            "trigger_rows_per_s_of_cluster_to_this": round(ours[tasks]["trigger_rows_per_s"] / busy, 2),
        }
