"""From a client's ``offer`` to the row in ``foreachBatch``, and the parts of a trigger.

Goals: p50 140 ms and p99 240 ms with 100 messages a second, 100 ms for a trigger to ``noop`` with one task,
and what Kafka's source takes in the same run, by its own harness (one partition, 1,000 records a second). The
parts stand beside those of a source that does no work, below which none in Python can be.

Three members, one client and Spark share the machine; triggers follow one another. Spark writes two files a
trigger into its checkpoint, here on the local disk, by one of two of its managers of such files:
``FileContext``, its default, or ``FileSystem`` (docs/spark-reference.md). Rounds of both take turns
in one session; the first does not count.
"""

from __future__ import annotations

import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.kafka import in_turns
from benchmarks.options import Options
from benchmarks.processes import running_cluster
from benchmarks.synthetic_log import write_messages
from cluster import ClusterClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MESSAGES_PER_S = 100
PAYLOAD = struct.Struct("<q92x")  # when it was offered, in ns since the epoch; 100 bytes
SETTLING_S = 5.0
MANAGER_KEY = "spark.sql.streaming.checkpointFileManagerClass"
MANAGERS = {
    name: f"org.apache.spark.sql.execution.streaming.checkpointing.{name}BasedCheckpointFileManager"
    for name in ("FileContext", "FileSystem")
}
# Parts of a trigger, in Spark's words.
PARTS = ("triggerExecution", "latestOffset", "walCommit", "queryPlanning", "addBatch", "commitOffsets")


def run(options: Options) -> Iterator[dict[str, Any]]:
    """For each manager: the trigger of each source, and the latency."""
    from benchmarks.prebuilt import Prebuilt
    from jobs.session import spark_session

    triggers: dict[tuple[str, str], list[dict[str, float]]] = {}
    latencies: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="cluster-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        write_messages(folder / "prebuilt", 1_000, payload_length=PAYLOAD.size)
        with running_cluster() as cluster, _offering(cluster["tcpEndpoints"]):
            spark = spark_session("benchmark", master="local[2]", extra={"spark.driver.memory": "2g"})
            spark.dataSource.register(Prebuilt)
            of_prebuilt = {"directory": str(folder / "prebuilt"), "rows": "10", "partitions": "1"}
            sources = {
                "cluster": row_source(spark, "cluster", {"endpoints": cluster["endpoints"]}),
                "prebuilt": row_source(spark, "prebuilt", of_prebuilt),
            }
            for number in range(options.rounds + 1):
                for manager, kind in MANAGERS.items():
                    spark.conf.set(MANAGER_KEY, kind)
                    checkpoint = folder / f"{manager}-{number}"
                    for source, rows in sources.items():
                        taken = _trigger(rows, checkpoint / source, options.seconds)
                        triggers.setdefault((manager, source), []).append(taken)
                    waited = latencies(sources["cluster"], checkpoint / "rows", options.seconds)
                    if number > 0:
                        latencies.setdefault(manager, []).extend(waited)
            if options.peers is not None:
                spark.conf.unset(MANAGER_KEY)
                yield from _beside_kafka(options, sources["cluster"], folder)
            spark.stop()
    for manager in MANAGERS:
        for source in sources:
            rounds = triggers[manager, source][1:]
            parts = {f"{part}_ms": round(median(of[part] for of in rounds)) for part in PARTS}
            yield {"figure": "trigger to noop", "source": source, "checkpoint": manager, **parts}
        waited = latencies[manager]
        at = percentiles(waited, (50, 90, 99))
        yield {"figure": "offer to foreachBatch", "checkpoint": manager, "rows": len(waited), **at}


def _beside_kafka(options: Options, rows: DataFrame, folder: Path) -> Iterator[dict[str, Any]]:
    """Both with Spark's default manager of checkpoints, in turns."""
    assert options.peers is not None
    triggers: list[float] = []
    waited: list[float] = []

    def measure() -> None:
        folder_of_run = folder / f"kafka-{len(triggers)}"
        triggers.append(_trigger(rows, folder_of_run / "noop", options.seconds)["triggerExecution"])
        waited.extend(latencies(rows, folder_of_run / "rows", options.seconds))

    lines = in_turns(options.peers, "5", measure)
    of_kafka = {line["sink"]: line for line in lines if line["partitions"] == 1}
    yield {
        "figure": "in turns with kafka",
        "trigger_to_noop_ms": round(median(triggers)),
        "kafka_trigger_to_noop_ms": round(of_kafka["noop"]["trigger_p50_ms"]["median"]),
        **percentiles(waited, (50, 99)),
        **{
            f"kafka_p{share}_ms": round(of_kafka["foreachBatch"][f"visible_p{share}_ms"]["median"])
            for share in (50, 99)
        },
    }


def percentiles(waited: list[float], shares: tuple[int, ...]) -> dict[str, int]:
    ordered = sorted(waited)
    return {f"p{share}_ms": round(ordered[len(ordered) * share // 100]) for share in shares}


@contextmanager
def _offering(endpoints: str) -> Iterator[None]:
    """A client that offers at a steady rate."""
    is_ending = threading.Event()

    def offer() -> None:
        with ClusterClient.connect(endpoints) as client:
            due = time.monotonic()
            while not is_ending.wait(max(due - time.monotonic(), 0)):
                client.offer(PAYLOAD.pack(time.time_ns()))
                client.poll_egress()
                due += 1 / MESSAGES_PER_S

    thread = threading.Thread(target=offer, name="offering", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_ending.set()
        thread.join()


def row_source(spark: SparkSession, name: str, options: dict[str, str]) -> DataFrame:
    both = {"startingOffsets": "latest", "entryTypes": "SESSION_MESSAGE", "columns": "position,payload"}
    reader = spark.readStream.format(name).options(**(both if name == "cluster" else {}), **options)
    return (reader if name == "cluster" else reader.schema("position BIGINT, payload BINARY")).load()


def _trigger(rows: DataFrame, checkpoint: Path, seconds: float) -> dict[str, float]:
    """The median of each part of the triggers that had rows, in ms."""
    query = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    time.sleep(SETTLING_S + seconds)
    told = [progress for progress in query.recentProgress if progress["numInputRows"] > 0]
    query.stop()
    durations = [progress["durationMs"] for progress in told[len(told) // 4 :]]
    return {part: median(of.get(part, 0) for of in durations) for part in PARTS}


def latencies(rows: DataFrame, checkpoint: Path, seconds: float) -> list[float]:
    """How long each row took from its offer into the driver's hands, in ms."""
    waited: list[float] = []

    def on_batch(batch: DataFrame, batch_id: int) -> None:
        payloads = [row.payload for row in batch.select("payload").collect()]
        now = time.time_ns()
        waited.extend((now - PAYLOAD.unpack(payload)[0]) / 1e6 for payload in payloads)

    query = rows.writeStream.foreachBatch(on_batch).option("checkpointLocation", str(checkpoint)).start()
    time.sleep(SETTLING_S)
    waited.clear()
    time.sleep(seconds)
    query.stop()
    return waited
