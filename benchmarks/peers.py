"""One message alone and 1,000 in flight through three members: ours, real Aeron, NATS JetStream, the floor.

A round has each side once at each sync level, so that what else the machine does meets all of them. Messages
have 100 bytes. Aeron's agents and client spin (``yielding``, over UDP): its fastest setting. JetStream has
three replicas in files; its figures end when a message is acknowledged, which is less work than a service's
echo. At sync level 1 it syncs each message before that (``sync_interval: always``). The floor is one message
through the bare steps. The last figures are the medians of the rounds, and ours as multiples of the others'.

Goals for one alone over ipc: p50 at most 0.75 of Aeron's and 1.7 of the floor's at sync level 1, 0.65 and 2.2
at level 0.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.cluster import (
    AERON_SETTINGS,
    ENDPOINTS,
    IDLE_STRATEGIES,
    measure_aerons,
    measure_floor,
    measure_ours,
)
from benchmarks.options import Options
from benchmarks.processes import running_cluster

OURS = ("ipc", "tcp")
WINDOWS = {"sync": 1, "async": 1_000}  # by JetStream's ways to publish
YIELDING = IDLE_STRATEGIES[1]
SYNC_INTERVAL = {1: "always", 0: "2m"}
JETSTREAM_MESSAGES = 3_000  # alone; in flight 40 times as many
TAKEN = ("p50_us", "p99_us", "messages_per_s")


def run(options: Options) -> Iterator[dict[str, Any]]:
    """Rounds with both levels, and their medians. Raises ValueError without the peers' harnesses."""
    if options.peers is None:
        raise ValueError("peers: name the folder of the peers' harnesses by --peers")
    figures: list[dict[str, Any]] = []
    for number in range(options.rounds):
        for sync_level in (1, 0):
            for figure in _round(options, options.peers, sync_level):
                figures.append({"file_sync_level": sync_level, "round": number} | figure)
                yield figures[-1]
    for sync_level in (1, 0):
        for window in WINDOWS.values():
            yield _medians(figures, sync_level, window)


def _round(options: Options, peers: Path, sync_level: int) -> Iterator[dict[str, Any]]:
    settings = AERON_SETTINGS | YIELDING | {"sync-level": str(sync_level)}
    for window in WINDOWS.values():
        with running_cluster(CLUSTER_FILE_SYNC_LEVEL=str(sync_level)) as cluster:
            for transport in OURS:
                yield measure_ours(cluster[ENDPOINTS[transport]], transport, options.seconds, window, 1)
        yield measure_aerons(peers / "aeron" / "run", settings, options.seconds, window)
    yield from _measure_jetstream(peers / "nats" / "run", sync_level)
    yield from measure_floor(peers / "floor", sync_level)


def _measure_jetstream(harness: Path, sync_level: int) -> Iterator[dict[str, Any]]:
    command = [str(harness), "bench", SYNC_INTERVAL[sync_level], str(JETSTREAM_MESSAGES)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    lines = done.stdout.splitlines()
    if len(lines) < len(WINDOWS):  # else it failed when it cleaned up
        done.check_returncode()
    for line in lines:
        said = {key: value.replace(",", "") for key, value in json.loads(line).items()}
        yield {
            "side": "jetstream",
            "transport": "tcp",
            "window": WINDOWS[said["how"]],
            "messages_per_s": int(said["msgs_per_s"]),
            **{name: round(float(said[name])) for name in ("p50_us", "p99_us")},
        }


def _medians(figures: list[dict[str, Any]], sync_level: int, window: int) -> dict[str, Any]:
    """Of each side; ratios of ours over each transport to the others."""
    values: dict[str, dict[str, list[float]]] = {}
    for figure in figures:
        if (figure["file_sync_level"], figure["window"]) == (sync_level, window) and not figure.get(
            "stalled"
        ):
            side = figure["transport"] if figure["side"] == "ours" else figure["side"]
            for name in figure.keys() & set(TAKEN):
                values.setdefault(side, {}).setdefault(name, []).append(figure[name])
    found = {
        side: {name: round(median(by[name])) for name in TAKEN if name in by} for side, by in values.items()
    }
    ratios = {
        f"{ours} to {side}": {name: round(found[ours][name] / value, 2) for name, value in of.items()}
        for ours in OURS
        for side, of in found.items()
        if side not in OURS
    }
    return {"file_sync_level": sync_level, "window": window, "medians": found, "ratios": ratios}
