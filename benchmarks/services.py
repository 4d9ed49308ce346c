"""What a service costs: inline beside a process of its own, from the Log and from clients.

A vectorised service with a compiled callback replays a log of messages of 100 bytes in a cluster of one, and
takes what a client sends it there without answers. The round trip is that of ``cluster``, with three members
that echo. Rates of a member's processor are there to compare loaded machines by. A counter that answers each
message runs inline in three members, called from Python and in compiled code.

Goals: 5,000,000 messages a second from the Log, 2,000,000 from clients.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.cluster import measure_ours
from benchmarks.options import Options
from benchmarks.processes import tree_cpu_seconds
from benchmarks.real_members import RealMembers
from benchmarks.recovery import Start, start_all, write_log
from cluster import ClusterClient

MODES = ("inline", "process")
TOTALS = "benchmarks.totals:Totals"
ECHO = "cluster.service.echo:EchoService"
# A replay's rate is that of the messages which the longer log has more: starting a member is not counted.
SHORT_LOG, LONG_LOG = 1_000_000, 9_000_000
PAYLOAD_LENGTHS = (32, 100)
BATCH = 8192
WINDOW_BYTES = 64 << 20
ROUND_TRIP_WINDOW = 1
COUNTERS = ("PythonCounter", "CompiledCounter")
COUNTER_LOADS = ((16_384, 1024), (1_000, 1), (1, 1))  # messages in flight, and in one offer


def run(options: Options) -> Iterator[dict[str, Any]]:
    """Each figure in both modes, one after the other, round by round."""
    for number in range(options.rounds):
        for mode in MODES:
            context = {"round": number, "service_mode": mode}
            yield context | _replay(mode)
            for length in PAYLOAD_LENGTHS:
                for sync_level in (1, 0):
                    yield context | _from_a_client(mode, length, sync_level, options.seconds)
            yield context | _round_trip(mode, options.seconds)
        for counter in COUNTERS:
            for figure in _counted(counter, options.seconds):
                yield {"round": number, "service_mode": "inline", "service": counter} | figure


def _replay(mode: str) -> dict[str, Any]:
    short, long = _start(mode, SHORT_LOG), _start(mode, LONG_LOG)
    seconds = (long.seconds - long.listening) - (short.seconds - short.listening)
    return {
        "figure": "replay into a vectorised service",
        "messages": LONG_LOG - SHORT_LOG,
        "messages_per_s": round((LONG_LOG - SHORT_LOG) / max(seconds, 1e-3)),
    }


def _start(mode: str, messages: int) -> Start:
    """The better of two starts on a log of so many messages."""
    with _members(1, mode, TOTALS) as members:
        end = write_log(members, messages)
        starts = [start_all(members, end) for _ in range(2)]
        return min(starts, key=lambda start: start.seconds - start.listening)


def _from_a_client(mode: str, length: int, sync_level: int, seconds: float) -> dict[str, Any]:
    with _members(1, mode, TOTALS, file_sync_level=sync_level) as members:
        members.start()
        members.await_leader()
        payloads = [bytes(length)] * BATCH
        with ClusterClient.connect(members.ipc, window_bytes=WINDOW_BYTES) as client:
            pid = members.processes[0].pid
            began, spent = time.monotonic(), tree_cpu_seconds(pid)
            while time.monotonic() - began < seconds:
                if client.offer_batch(payloads) < 0:
                    client.wait(0.001)
                client.poll_egress()
            client.await_committed(60)
            elapsed, spent = time.monotonic() - began, tree_cpu_seconds(pid) - spent
            return {
                "figure": "from a client into a vectorised service",
                "size": length,
                "file_sync_level": sync_level,
                "messages_per_s": round(client.acknowledged / elapsed),
                "messages_per_cpu_s_of_member": round(client.acknowledged / spent),
            }


def _round_trip(mode: str, seconds: float) -> dict[str, Any]:
    with _members(3, mode, ECHO) as members:
        members.start()
        members.await_leader()
        return {"figure": "round trip"} | measure_ours(members.ipc, "ipc", seconds, ROUND_TRIP_WINDOW, 1)


def _counted(counter: str, seconds: float) -> Iterator[dict[str, Any]]:
    with _members(3, "inline", f"benchmarks.counters:{counter}") as members:
        members.start()
        members.await_leader()
        for window, batch in COUNTER_LOADS:
            figure = measure_ours(members.ipc, "ipc", seconds, window, batch)
            yield {"figure": "a counter by key, each message answered"} | figure


@contextmanager
def _members(count: int, mode: str, service: str, **keys: Any) -> Iterator[RealMembers]:
    configured = {"services": [service], "service_mode": [mode], **keys}
    with (
        tempfile.TemporaryDirectory(prefix="cluster-bench-", ignore_cleanup_errors=True) as name,
        RealMembers(Path(name), count, keys=configured) as members,
    ):
        yield members
