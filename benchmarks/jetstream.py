"""Three members beside NATS JetStream, three replicas in files, in turns: one message alone, 1,000 in flight.

Both sides take 100 bytes over TCP, and commit by a majority. Our figure ends when a service's echo has been
received, JetStream's when the message is acknowledged, which is less work. At sync level 1 both sync each
message before that (JetStream's ``sync_interval: always``); at level 0 neither does. The last figures are the
medians of the rounds, and ours as multiples of JetStream's.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.cluster import ENDPOINTS, measure_ours
from benchmarks.options import Options
from benchmarks.processes import running_cluster

WINDOWS = {"sync": 1, "async": 1_000}
SYNC_INTERVAL = {1: "always", 0: "2m"}
MESSAGES = 3_000  # alone; in flight 40 times as many
TAKEN = ("p50_us", "p99_us", "messages_per_s")


def run(options: Options) -> Iterator[dict[str, Any]]:
    """Rounds with both levels, and their medians. Raises ValueError without the peer's harness."""
    if options.peers is None:
        raise ValueError("jetstream: name the folder of the peers' harnesses by --peers")
    figures: list[dict[str, Any]] = []
    for number in range(options.rounds):
        for sync_level in (1, 0):
            for figure in _round(options, options.peers / "nats" / "run", sync_level):
                figures.append({"file_sync_level": sync_level, "round": number} | figure)
                yield figures[-1]
    for sync_level in (1, 0):
        for window in WINDOWS.values():
            yield _medians(figures, sync_level, window)


def _round(options: Options, harness: Path, sync_level: int) -> Iterator[dict[str, Any]]:
    with running_cluster(CLUSTER_FILE_SYNC_LEVEL=str(sync_level)) as cluster:
        for window in WINDOWS.values():
            yield measure_ours(cluster[ENDPOINTS["tcp"]], "tcp", options.seconds, window, 1)
    command = [str(harness), "bench", SYNC_INTERVAL[sync_level], str(MESSAGES)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    for line in done.stdout.splitlines():
        said = {key: value.replace(",", "") for key, value in json.loads(line).items()}
        yield {
            "side": "jetstream",
            "transport": "tcp",
            "window": WINDOWS[said["how"]],
            "messages_per_s": int(said["msgs_per_s"]),
            **{name: round(float(said[name])) for name in ("p50_us", "p99_us")},
        }


def _medians(figures: list[dict[str, Any]], sync_level: int, window: int) -> dict[str, Any]:
    of = {
        side: {
            name: median(
                figure[name]
                for figure in figures
                if (figure["file_sync_level"], figure["side"], figure["window"]) == (sync_level, side, window)
            )
            for name in TAKEN
        }
        for side in ("ours", "jetstream")
    }
    ratios = {name: round(of["ours"][name] / of["jetstream"][name], 2) for name in TAKEN}
    return {"file_sync_level": sync_level, "window": window, "medians": of, "ratios": ratios}
