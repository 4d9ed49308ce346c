"""What ``cluster demo`` reads of the log: SQL while it grows, and every member's log at the end."""

from __future__ import annotations

import importlib.util
import time
from datetime import datetime
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cluster.cli.demo_sender import NUMBERS_PER_PAYLOAD, PAYLOAD_BYTES
from cluster.errors import ClusterError
from cluster.reader.log_reader import LogReader

if TYPE_CHECKING:
    import pyarrow as pa

SQL = "SELECT count(*), max(timestamp) FROM log"
QUERY_S = 0.25


class Counted(NamedTuple):
    """One query over what is new: how many messages all have counted, and how old the newest was then."""

    messages: int
    age_ms: float


def engine() -> str:
    """What counts the log: DuckDB where it is installed, else Arrow's own functions."""
    return "duckdb" if importlib.util.find_spec("duckdb") else "arrow"


def query_log(link: Connection, endpoints: str) -> None:
    """Count what is new every QUERY_S, until something comes by ``link``; a Counted goes back each time."""
    count = _by_duckdb if engine() == "duckdb" else _by_arrow
    messages = 0
    with LogReader.open(endpoints=endpoints) as reader:
        position = reader.earliest_position()
        while not link.poll(QUERY_S):
            try:
                end = reader.commit_position()
                columns = {"columns": ["timestamp"], "entry_types": ["SESSION_MESSAGE"]}
                counted, newest = count(reader.to_arrow_reader(position, end, **columns))
            except ClusterError:
                continue  # the member that was asked is the one that was killed: the next query asks another
            position = end
            if newest is not None:
                messages += counted
                link.send(Counted(messages, 1_000 * (time.time() - newest.timestamp())))


def _by_duckdb(log: pa.RecordBatchReader) -> tuple[int, datetime | None]:
    import duckdb

    found = duckdb.sql(SQL)
    assert found is not None
    counted, newest = found.fetchall()[0]
    return counted, newest


def _by_arrow(log: pa.RecordBatchReader) -> tuple[int, datetime | None]:
    import pyarrow.compute as pc

    table = log.read_all()
    return table.num_rows, pc.max(table["timestamp"]).as_py()


def check_log(directory: str, committed: int) -> tuple[int, int]:
    """How many of the first ``committed`` messages a member's log lacks, and how many it has twice."""
    numbers: list[np.ndarray] = []
    with LogReader.open(dir=directory) as reader:
        for batch in reader.batches(columns=["payload"], entry_types=["SESSION_MESSAGE"]):
            numbers.append(_numbers(batch["payload"]))
    found = np.concatenate(numbers) if numbers else np.empty(0, np.int64)
    once = np.unique(found)
    return committed - int(np.count_nonzero(once < committed)), len(found) - len(once)


def _numbers(payloads: Any) -> np.ndarray:
    import pyarrow as pa

    fixed = payloads.cast(pa.binary(PAYLOAD_BYTES))
    begin = fixed.offset * NUMBERS_PER_PAYLOAD
    numbers = np.frombuffer(fixed.buffers()[1], "<i8")[begin : begin + len(fixed) * NUMBERS_PER_PAYLOAD]
    return numbers[::NUMBERS_PER_PAYLOAD].copy()
