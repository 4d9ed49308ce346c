"""Spark writes into three real members while leader, tasks and driver are killed: each row is there once."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.kills.rounds import KILLS, stage
from cluster.errors import BatchRegistered, ClientClosed
from cluster.protocol.lane import REGISTRATION, Lane
from cluster.reader import LogReader
from spark_connector.options.cluster_options import SinkOptions
from spark_connector.sink.aeron_sending import AeronSender, plan, register
from tests.interop.aeron import RealNode, leader_of, media_driver, real_cluster

pytestmark = pytest.mark.interop
PORT = 26800
CONSENSUS = ",".join(f"localhost:{PORT + 100 * member + 3}" for member in range(3))
MEMBER = [
    *("--service", "echo", "--base-port", str(PORT), "--term-length", "256k", "--segment-length", "256k"),
    *("--heartbeat-timeout", "4s", "--heartbeat-interval", "100ms", "--session-timeout", "4s"),
    *("--max-seconds", "900"),
]
SECONDS = 300  # for a step, on a busy machine


def payloads_in(node: RealNode) -> Counter[bytes]:
    with LogReader.open(dir=str(node.directory)) as reader:
        entries = reader.entries(columns=("payload", "entryType"), entry_types=("SESSION_MESSAGE",))
        return Counter(entry["payload"] for entry in entries)


@pytest.fixture
def aeron_dir() -> Iterator[Path]:
    with media_driver() as aeron_dir:
        yield aeron_dir


@pytest.mark.conformance("M-39")
def test_attempts_of_a_task_that_overlap_and_lose_their_leader_have_each_row_in_the_log_once(
    tmp_path, aeron_dir
):
    rows = [b"%d" % (row % 2900) for row in range(3000)]
    options = SinkOptions.parse({"consensusEndpoints": CONSENSUS, "aeronDir": str(aeron_dir)})
    lane, is_killed, second = Lane("orders", 0, 0), threading.Event(), []

    def send_all() -> None:
        with AeronSender(options, lane, planned) as sender:
            sender.send(record_batch(rows[:2000]))
            while not is_killed.is_set():
                sender.poll()
            sender.send(record_batch(rows[2000:]))
            second.append(sender.finish())

    with real_cluster(tmp_path, *MEMBER) as nodes:
        planned = plan(options)
        other = threading.Thread(target=send_all)
        with AeronSender(options, lane, planned) as first:
            first.send(record_batch(rows[:1000]))
            other.start()
            with pytest.raises(ClientClosed, match="another attempt has opened batch 0 of lane orders/0"):
                poll_for_long(first)
        nodes.pop(leader_of(nodes)).stop(signal.SIGKILL)
        is_killed.set()
        other.join()
        assert [count for count, _ in second] == [len(rows)]
        with AeronSender(options, lane, planned) as late:
            late.send(record_batch(rows))
            assert late.finish()[0] == len(rows)
        register(options, Lane("orders", REGISTRATION, 0), planned.end, second[0][1])
        with pytest.raises(BatchRegistered), AeronSender(options, lane, plan(options)) as later:
            later.send(record_batch(rows))
        assert [payloads_in(node) for node in nodes] == [Counter(rows)] * 2


def record_batch(rows: list[bytes]) -> pa.RecordBatch:
    return pa.record_batch({"payload": rows})


def poll_for_long(sender: AeronSender) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        sender.poll()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_row_is_lost_or_doubled_by_kills_of_spark_and_of_members_at_random_moments(tmp_path):
    """A first slice of ``make faults KILLS=200 ARGS=--aeron``."""
    with stage(tmp_path, print, is_aeron=True) as running:
        found = running.run_round(64, 5, KILLS)
    assert found["rows"] > 0
    assert found["kills"].keys() == KILLS.keys(), "each kind is among them"
