"""Three members, 100-byte messages, each committed, echoed by the service and received: ours and Aeron's.

Both sides run in turns on the same machine, file sync level 1 (and 0), so that ratios mean something:

- throughput: ours by ``offer_batch`` over ipc, tcp and gRPC; Aeron's with its best window;
- round trip: one message outstanding.

Goals at sync level 1: 300,000 msg/s over tcp and ipc, 150,000 over gRPC; p50 350 µs and 800 µs.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

from benchmarks.options import Options
from benchmarks.processes import CLUSTER, running_cluster

SIZE = 100
ENDPOINTS = {"ipc": "ipcEndpoints", "tcp": "tcpEndpoints", "grpc": "endpoints"}


def run(options: Options) -> Iterator[dict[str, Any]]:
    """Alternate ours and Aeron's, round by round, for both sync levels."""
    for sync_level in (1, 0):
        for number in range(options.rounds):
            context = {"file_sync_level": sync_level, "round": number, "size": SIZE}
            with running_cluster(CLUSTER_FILE_SYNC_LEVEL=str(sync_level)) as cluster:
                for transport, key in ENDPOINTS.items():
                    yield context | _ours(cluster[key], transport, options.seconds, [])
                    yield context | _ours(cluster[key], transport, options.seconds, ["--window", "1"])
            if options.peers is not None:
                for figure in _aeron(options, sync_level):
                    yield context | figure


def _ours(endpoints: str, transport: str, seconds: float, arguments: list[str]) -> dict[str, Any]:
    command = [*CLUSTER, "bench", "--endpoints", endpoints, "--size", str(SIZE), "--duration", str(seconds)]
    done = subprocess.run([*command, *arguments, "--json"], stdout=subprocess.PIPE, text=True, check=True)
    kind = "round trip" if arguments else "throughput"
    return {"figure": kind, "side": "ours", "transport": transport} | json.loads(done.stdout)


def _aeron(options: Options, sync_level: int) -> Iterator[dict[str, Any]]:
    assert options.peers is not None
    with tempfile.TemporaryDirectory(prefix="aeron-peer-", ignore_cleanup_errors=True) as work:
        for bench, kind in (("throughput", "throughput"), ("latency", "round trip")):
            command = [options.peers / "aeron" / "run", "bench", bench, "--size", str(SIZE), "--warmup", "3"]
            settings = ["--seconds", str(round(options.seconds)), "--sync-level", str(sync_level)]
            done = subprocess.run(
                [*command, *settings],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                env=os.environ | {"AERON_PEER_WORK": work},
            )
            for line in done.stdout.splitlines():
                figure = json.loads(line)
                if figure.get("bench") == bench:
                    yield {"figure": kind, "side": "aeron", "transport": "udp"} | figure
