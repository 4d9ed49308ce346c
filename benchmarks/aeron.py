"""Our client of Aeron's media beside Java's, and a real Aeron Cluster from its clients to Spark's rows.

Both sides are in one run, in turns, on the same driver or the same three members, and sleep when they have
nothing to do: for microseconds and, while Spark is measured, for a millisecond, because Java's agents would
take more than one of two cores for looking. Where processor time is given it is that of the process named,
which other work on the machine does not change as it changes a rate. Goals: a bounded replay gives rows at
0.8 of the rate at which its bytes come, and from a Java client's offer to the row in ``foreachBatch`` the
median is 150 ms.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.options import Options
from benchmarks.processes import CLUSTER
from benchmarks.spark_latency import (
    MANAGER_KEY,
    MANAGERS,
    MESSAGES_PER_S,
    PAYLOAD,
    SETTLING_S,
    latencies,
    percentiles,
    row_source,
)
from cluster import LogReader
from cluster.media.aeron import Aeron
from tests.interop.aeron import java_client, media_driver, real_cluster

CHANNEL = "aeron:ipc?term-length=16m"
STREAMS = itertools.count(1001)  # one publication each: the driver keeps those that have ended for a while
MESSAGES, FRAME_LENGTH = 300_000, 160  # 100 bytes of payload and a header, aligned
PORT = 28_800
ENDPOINTS = ",".join(f"localhost:{PORT + 100 * member + 3}" for member in range(3))
MEMBER = [*("--service", "echo", "--base-port", str(PORT), "--term-length", "16m", "--segment-length", "16m")]
MEMBER += ["--heartbeat-timeout", "20s", "--session-timeout", "30s", "--max-seconds", "3000"]
CLIENT = ["--base-port", str(PORT), "--members", "3"]
# As Java's client has its driver sleep: 1 us, and the timer's slack. And a millisecond.
AS_JAVAS_CLIENT = "org.agrona.concurrent.SleepingIdleStrategy"
A_MILLISECOND = "org.agrona.concurrent.SleepingMillisIdleStrategy"
IDLE_S = 0.00005
WINDOWS = (1, 1_000)

Figure = dict[str, Any]


def run(options: Options) -> Iterator[Figure]:
    """The medium, then a cluster: its clients, its log, and Spark."""
    with media_driver(aeron_shared_idle_strategy=AS_JAVAS_CLIENT) as aeron_dir:
        for number in range(options.rounds):
            for figure in _medium(str(aeron_dir)):
                yield {"round": number, **figure}
        with (
            tempfile.TemporaryDirectory(prefix="cluster-bench-") as folder,
            real_cluster(Path(folder), *MEMBER),
        ):
            for number in range(options.rounds):
                for window in WINDOWS:
                    for measure in (_echo_by_ours, _echo_by_java):
                        yield {"round": number, **measure(str(aeron_dir), options.seconds, window)}
            for number in range(options.rounds):
                yield {"round": number, **_replay(str(aeron_dir))}
    with (
        media_driver(aeron_shared_idle_strategy=A_MILLISECOND) as aeron_dir,
        tempfile.TemporaryDirectory(prefix="cluster-bench-") as folder,
        real_cluster(Path(folder), *MEMBER, "--idle", "millis"),
    ):
        yield from _offer_to_row(str(aeron_dir), options, Path(folder))


# ---- the medium


def _medium(aeron_dir: str) -> Iterator[Figure]:
    """Messages through one driver, with a Java client at the other end."""
    stream = next(STREAMS)
    with _java("subscribe", aeron_dir, stream) as subscriber:
        assert subscriber.stdout is not None
        subscriber.stdout.readline()
        yield {"figure": "publication", "side": "ours", **_published_by_ours(aeron_dir, stream)}
        yield {"figure": "subscription", "side": "java", **json.loads(subscriber.stdout.readline())}
    stream = next(STREAMS)
    with _java("publish", aeron_dir, stream) as publisher:
        assert publisher.stdout is not None
        yield {"figure": "subscription", "side": "ours", **_subscribed_by_ours(aeron_dir, stream)}
        yield {"figure": "publication", "side": "java", **json.loads(publisher.stdout.readline())}


@contextmanager
def _java(what: str, aeron_dir: str, stream: int) -> Iterator[subprocess.Popen[str]]:
    options = ["--messages", str(MESSAGES), "--aeron-dir", aeron_dir]
    with java_client("Bench", what, CHANNEL, str(stream), *options) as client:
        yield client


def _published_by_ours(aeron_dir: str, stream: int) -> Figure:
    message = bytes(100)
    with Aeron.connect(aeron_dir) as aeron:
        publication = aeron.add_exclusive_publication(CHANNEL, stream)
        aeron.conductor.await_value(lambda: publication.is_connected, 60, "a subscriber")

        def publish() -> None:
            for _ in range(MESSAGES):
                while publication.offer(message) < 0:
                    aeron.conductor.do_work()
                    time.sleep(IDLE_S)

        return _timed(publish)


def _subscribed_by_ours(aeron_dir: str, stream: int) -> Figure:
    out = np.zeros(1 << 20, np.uint8)
    with Aeron.connect(aeron_dir) as aeron:
        subscription = aeron.add_subscription(CHANNEL, stream)
        image = aeron.conductor.await_value(
            lambda: next(iter(subscription.images.values()), None), 60, "an image"
        )

        def subscribe() -> None:
            read = 0
            while read < MESSAGES * FRAME_LENGTH:
                taken = image.poll(out)
                read += taken
                if taken == 0:
                    aeron.conductor.do_work()
                    time.sleep(IDLE_S)

        return _timed(subscribe)


def _timed(work: Callable[[], None]) -> Figure:
    began, cpu = time.perf_counter(), time.process_time()
    work()
    return {
        "messages": MESSAGES,
        "seconds": round(time.perf_counter() - began, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
    }


# ---- a cluster


def _echo_by_ours(aeron_dir: str, seconds: float, window: int) -> Figure:
    command = [*CLUSTER, "bench", "--endpoints", f"aeron:{ENDPOINTS}", "--warm-up", "2", "--json"]
    command += ["--duration", str(seconds), "--window", str(window), "--batch", "1"]
    environment = os.environ | {"CLUSTER_CLIENT_AERON_DIR": aeron_dir}
    told = json.loads(subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True).stdout)
    p50, p99 = (round(told["latencyUs"][name]) for name in ("p50", "p99"))
    rate = round(told["messagesPerSecond"])
    return {
        "figure": "echo",
        "side": "ours",
        "window": window,
        "messages_per_s": rate,
        "p50_us": p50,
        "p99_us": p99,
    }


def _echo_by_java(aeron_dir: str, seconds: float, window: int) -> Figure:
    """Its client has a driver in its own process."""
    options = ["--window", str(window), "--warmup", "2s", "--seconds", f"{round(seconds)}s", *CLIENT]
    with java_client("Bench", "echo", *options) as client:
        said, errors = client.communicate()
    assert said, errors
    return {"figure": "echo", "side": "java", "window": window, **json.loads(said)}


def _replay(aeron_dir: str) -> Figure:
    """The whole log from another host's archive: its bytes alone, and as rows."""

    def read(rows: Callable[[LogReader], int]) -> tuple[int, float, float]:
        began, cpu = time.perf_counter(), time.process_time()
        with LogReader.open(consensus_endpoints=ENDPOINTS, aeron_dir=aeron_dir) as reader:
            count = rows(reader)
        return count, time.perf_counter() - began, time.process_time() - cpu

    bytes_read, medium_s, medium_cpu_s = read(lambda log: sum(len(block) for _, block in log.blocks()))
    columns = ("position", "clusterSessionId", "payload")
    entries, rows_s, rows_cpu_s = read(lambda log: sum(len(rows) for rows in log.batches(columns=columns)))
    return {
        "figure": "bounded replay",
        "bytes": bytes_read,
        "rows": entries,
        "medium_s": round(medium_s, 3),
        "rows_s": round(rows_s, 3),
        "rate_of_the_medium_s": round(medium_s / rows_s, 2),
        "cpu_s": [round(medium_cpu_s, 3), round(rows_cpu_s, 3)],
    }


def _offer_to_row(aeron_dir: str, options: Options, folder: Path) -> Iterator[Figure]:
    """Over the medium, and in turns from a member's directory, which takes nothing of the medium."""
    from jobs.session import spark_session

    spark = spark_session("benchmark", master="local[2]", extra={"spark.driver.memory": "2g"})
    member = folder / "member-1"
    places = {
        "medium": {"consensusEndpoints": ENDPOINTS, "aeronDir": aeron_dir},
        "directory": {"clusterDir": str(member / "cluster"), "archiveDir": str(member / "archive")},
    }
    sources = {name: row_source(spark, "cluster", place) for name, place in places.items()}
    rounds: dict[tuple[str, str], list[list[float]]] = {}
    count = (options.rounds + 1) * len(sources) * len(MANAGERS)
    lasts = f"{round((options.seconds + 2 * SETTLING_S) * count) + 60}s"
    rate = ["--rate", str(MESSAGES_PER_S), "--size", str(PAYLOAD.size), "--seconds", lasts]
    with java_client("Bench", "offer", *rate, *CLIENT, "--client-idle", "millis"):
        for number in range(options.rounds + 1):
            for (name, rows), (manager, kind) in itertools.product(sources.items(), MANAGERS.items()):
                spark.conf.set(MANAGER_KEY, kind)
                checkpoint = folder / f"rows-{name}-{manager}-{number}"
                waited = latencies(rows, checkpoint, options.seconds)
                if number > 0:  # the first one compiles
                    rounds.setdefault((name, manager), []).append(waited)
    spark.stop()
    for (name, manager), counted in rounds.items():
        waited = [each for latencies_of in counted for each in latencies_of]
        yield {
            "figure": "Java's offer to foreachBatch",
            "by": name,
            "checkpoint": manager,
            "rows": len(waited),
            **percentiles(waited, (50, 90, 99)),
            "p50_of_rounds_ms": [round(median(latencies_of)) for latencies_of in counted],
        }
