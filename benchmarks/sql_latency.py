"""From the Log to a result of SQL: DuckDB and polars over the live log, by Arrow's C stream.

Goal: p99 of 250 ms from the commit of a message to the SQL result that counts it, at 200,000 messages of 100
bytes a second. What is measured begins earlier, at the cluster time of each entry, which its leader takes
before it appends it; so the goal holds if this does. A query groups what is new by that time and counts it.
One query follows another; where nothing is new it waits as ``LogReader.follow`` does.

Three members, the client and the reader share the machine. The reader takes the log from a follower,
over gRPC or ``tcp:``, or from a member's directory on the same disk.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks.options import Options
from benchmarks.processes import running_cluster
from cluster import ClusterClient, LogReader

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event

MESSAGES_PER_S = 200_000
PAYLOAD = bytes(100)
BATCH = 1_000  # messages of one offer: one in 5 ms
SETTLING_S = 4.0
WAIT_S = 0.02

Query = Callable[[pa.RecordBatchReader], list[tuple[datetime, int]]]


def run(options: Options) -> Iterator[dict[str, Any]]:
    """A figure for each place and each engine; the rounds of all take turns."""
    engines: dict[str, Query] = {"duckdb": _duckdb, "polars": _polars}
    with running_cluster() as cluster:
        places = {
            "grpc": {"endpoints": cluster["endpoints"]},
            "tcp": {"endpoints": cluster["tcpEndpoints"]},
            "directory": {"dir": str(Path(cluster["dir"]) / "member-1")},
        }
        sides = [(place, engine) for place in places for engine in engines]
        waited: dict[tuple[str, str], Counter[int]] = {side: Counter() for side in sides}
        queries: Counter[tuple[str, str]] = Counter()
        for query in engines.values():  # loads it
            query(
                pa.RecordBatchReader.from_batches(pa.schema([("timestamp", pa.timestamp("us", "UTC"))]), [])
            )
        with _offering(cluster["tcpEndpoints"]):
            time.sleep(SETTLING_S)
            for _ in range(options.rounds):
                for place, engine in sides:
                    with LogReader.open(**places[place]) as reader:
                        found, count = _waits(reader, engines[engine], options.seconds)
                    waited[place, engine] += found
                    queries[place, engine] += count
    for place, engine in sides:
        found, seconds = waited[place, engine], options.seconds * options.rounds
        yield {
            "figure": "append to SQL",
            "log": place,
            "engine": engine,
            "messages_per_s": round(found.total() / seconds),
            "queries_per_s": round(queries[place, engine] / seconds, 1),
            **{f"p{share}_ms": _percentile(found, share) for share in (50, 90, 99)},
            "max_ms": max(found),
        }


@contextmanager
def _offering(endpoints: str) -> Iterator[None]:
    """A client in a process of its own that offers at a steady rate."""
    context = multiprocessing.get_context("spawn")
    is_ending = context.Event()
    process = context.Process(target=_offer, args=(endpoints, is_ending), daemon=True)
    process.start()
    try:
        yield
        assert process.is_alive(), "the client has ended"
    finally:
        is_ending.set()
        process.join()


def _offer(endpoints: str, is_ending: Event) -> None:
    batch = [PAYLOAD] * BATCH
    with ClusterClient.connect(endpoints) as client:
        due = time.monotonic()
        while not is_ending.wait(max(due - time.monotonic(), 0)):
            if client.offer_batch(batch) > 0:
                due += BATCH / MESSAGES_PER_S
            client.poll_egress()


def _waits(reader: LogReader, query: Query, seconds: float) -> tuple[Counter[int], int]:
    """How many messages waited for so many ms, and how many queries there were."""
    waited: Counter[int] = Counter()
    queries = 0
    position, until = reader.commit_position(), time.monotonic() + seconds
    while time.monotonic() < until:
        end = reader.commit_position()
        if end == position:
            time.sleep(WAIT_S)
            continue
        log = reader.to_arrow_reader(position, end, columns=["timestamp"], entry_types=["SESSION_MESSAGE"])
        found = query(log)
        now, position = time.time(), end
        queries += 1
        for appended, count in found:
            waited[round((now - appended.timestamp()) * 1000)] += count
    return waited, queries


def _duckdb(log: pa.RecordBatchReader) -> list[tuple[datetime, int]]:
    import duckdb

    return duckdb.sql("SELECT timestamp, count(*) FROM log GROUP BY timestamp").fetchall()


def _polars(log: pa.RecordBatchReader) -> list[tuple[datetime, int]]:
    import polars

    return (
        polars.SQLContext(log=polars.DataFrame(log))
        .execute("SELECT timestamp, count(*) FROM log GROUP BY timestamp", eager=True)
        .rows()
    )


def _percentile(waited: Counter[int], share: int) -> int:
    """The least time, in ms, within which that share of the messages, in percent, was counted."""
    left = waited.total() * share / 100
    for time_ms, count in sorted(waited.items()):
        left -= count
        if left <= 0:
            return time_ms
    raise AssertionError("no message was counted")
