"""Churn for as long as SOAK_MINUTES says (``make soak MINUTES=30``): what processes take does not grow.

Clients, readers, snapshots, purges, leaders, processes of services and queries of Spark come and go under a
steady load. The samples, and a picture of them, are kept in ``build/``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from benchmarks.load import Load
from benchmarks.real_members import await_that
from cluster import ClusterClient, LogReader
from cluster.errors import ClientClosed, ClusterError, LogPurged
from cluster.protocol.session import NO_ROOM
from tests.faults.conftest import STEADY_TIMEOUTS
from tests.faults.slopes import Samples, children_of, draw, growth, taken_by
from tests.node.counting_service import COUNTING, pid_of
from tests.node.processes import run
from tests.tree import ROOT

MINUTES = float(os.environ.get("SOAK_MINUTES", "0.75"))
WARM_UP_ROUNDS = 5  # of a process that was killed, and began again
ROUNDS_MIN = 15  # however slow the machine is: fewer samples say nothing
KEYS = {
    "services": [COUNTING],
    "log_bytes_max": "96m",
    "log_term_length": "1m",
    "archive_segment_file_length": "1m",
    **STEADY_TIMEOUTS,
}


@pytest.mark.parametrize(
    ("values", "grows"),
    [
        ([5] * 30, 0),
        ([0, 9, 9] * 10, 0),
        (list(range(30)), 19),
        ([100, 1, 50, *[7] * 27], 0),
        ([*[5] * 19, *[90] * 11], 0),
    ],
)
def test_growth_is_that_of_the_line_after_the_warm_up(values, grows):
    assert abs(growth(values) - grows) < 1


def test_a_leak_of_one_descriptor_a_round_is_found_and_one_that_comes_and_goes_is_not():
    samples = Samples()
    for number in range(ROUNDS_MIN):
        samples.take("a", {"descriptors": 40 + number, "memory": 100 << 20})
        samples.take("b", {"descriptors": 40 + number % 3 * 4, "memory": (100 + number % 2) << 20})
    assert [line.partition(" grows")[0] for line in samples.growing()] == ["a: descriptors"]


@pytest.mark.slow
@pytest.mark.timeout(600 + 90 * MINUTES)
def test_memory_descriptors_threads_and_files_of_every_process_stay_flat_through_churn(members_of):
    members = members_of(keys=KEYS)
    members.start()
    kept = ROOT / "build" / f"soak-{MINUTES:g}m.json"
    kept.parent.mkdir(exist_ok=True)
    samples, until, rounds = Samples(), time.monotonic() + 60 * MINUTES, 0
    with Load(members.tcp, messages_per_s=1_000, payload_bytes=500) as load, spark_reads(members) as driver:
        members.await_leader()
        read = members.directory / "checkpoint" / "commits"
        while time.monotonic() < until or rounds < ROUNDS_MIN or not list(read.glob("[0-9]*")):
            churn(members, rounds)
            load.await_progress(members.tell)
            take(samples, members)
            samples.take("driver of Spark", taken_by(driver.pid))
            for jvm in children_of(driver.pid):
                # Spark 4.2 keeps a thread with two descriptors of each Python runner that it has started.
                samples.take("JVM of Spark", {"memory": taken_by(jvm)["memory"]})
            rounds += 1
            samples.write(kept)
        load.finish()
        members.stop()
    draw(kept, picture := kept.with_suffix(".png"))
    print(f"{rounds} rounds, {load.acknowledged:,} messages; {kept}, {picture}")
    assert load.acknowledged > 1_000
    assert not (growing := samples.growing()), "\n".join(growing)


@contextmanager
def spark_reads(members) -> Iterator[subprocess.Popen]:
    """A driver whose queries come and go."""
    command = [sys.executable, "-m", "tests.faults.soak_query", members.endpoints]
    with (
        (members.directory / "spark.log").open("wb") as log,
        subprocess.Popen(
            [*command, str(members.directory / "checkpoint")],
            stdout=log,
            stderr=log,
            start_new_session=True,
        ) as driver,
    ):
        try:
            yield driver
        finally:
            os.killpg(driver.pid, signal.SIGKILL)


def connected(endpoints: str) -> ClusterClient:
    """Once the leader has room for more log: snapshots take their time on a busy machine."""

    def connect() -> ClusterClient | None:
        try:
            return ClusterClient.connect(endpoints, message_timeout_s=60)
        except ClusterError as error:
            if NO_ROOM not in str(error):
                raise
            return None

    client = await_that(connect, "there is room for a session", within_s=300)
    assert client is not None
    return client


def churn(members, number: int) -> None:
    for _ in range(2):
        endpoints = members.endpoints if number % 2 else members.tcp
        with connected(endpoints) as client, suppress(ClientClosed):
            client.offer(b"short")
            client.await_committed(60)  # or no leader takes its session up in time, on a busy machine
    leader = members.await_leader()
    # The log's head may go while it is read.
    with suppress(LogPurged), LogReader.open(endpoints=members.endpoints) as reader:
        for _, _ in zip(range(50), reader.entries(), strict=False):
            pass
    follower = members.member_dir((leader + 1) % 3)
    match number % 4:
        case 0:  # logs are opened again; snapshots come by log_bytes_max
            os.kill(members.pid(leader), signal.SIGHUP)
        case 1:
            with suppress(ProcessLookupError):
                os.kill(pid_of(follower), signal.SIGKILL)
        case 2:
            run("tool", "transfer-leadership", "--dir", str(members.directory))  # or it does not, under load
    members.await_leader()


def take(samples: Samples, members) -> None:
    for member_id in members.ids:
        name, pid = f"member {member_id}", members.pid(member_id)
        files = [path for path in Path(members.member_dir(member_id)).rglob("*") if path.is_file()]
        kept = [path for path in files if path.suffix != ".rec"]  # recordings come and go
        samples.take(name, taken_by(pid) | {"files": len(kept)})
        for child in children_of(pid):
            with suppress(OSError):  # it has just been killed
                taken = taken_by(child)
                samples.rounds_of[child] += 1
                if samples.rounds_of[child] > WARM_UP_ROUNDS:  # one that has just begun still grows
                    samples.take(f"child of {name}", taken)
