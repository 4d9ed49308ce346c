"""Three members, 100-byte messages, each committed, echoed by the service and received: ours and Aeron's.

Both sides run in turns on the same machine, at file sync level 1 and 0, with the same windows (messages on
their way at most) and one message an offer; window 1 is the round trip of a message alone. Beside it stands
what only our client has, 1,024 messages an offer. Aeron runs with both of these idle strategies:
``backoff`` parks an idle agent, as ours sleep on their sockets, and its client sleeps; ``yielding`` keeps
each agent and the client on a core: faster where there are cores enough. A run of Aeron's that stalls (its
client cannot connect, or messages are never echoed) is recorded as that; each of its runs has a new cluster.
The floor is the bare steps of one message through three members in compiled loops, over Unix sockets.

Goals for a message alone over ipc: p50 at most 0.75 of Aeron's and 1.7 of the floor's at sync level 1, and
0.65 and 2.2 at level 0.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.options import Options
from benchmarks.processes import CLUSTER, running_cluster

SIZE = 100
PERCENTILES = ("p50", "p90", "p99", "p99_9")
WARM_UP_S = 2
WINDOWS = (1, 100, 1_000, 10_000)
BATCHED = {"window": 16_384, "batch": 1_024}
ENDPOINTS = {"ipc": "ipcEndpoints", "tcp": "tcpEndpoints", "grpc": "endpoints"}
# Aeron's own names of its settings; all that is not here is its default.
IDLE_STRATEGIES = (
    {"idle": "backoff", "client-idle": "sleeping"},
    {"idle": "yielding", "client-idle": "yielding"},
)
AERON_SETTINGS = {"threading": "shared", "term-length": "64m"}


def run(options: Options) -> Iterator[dict[str, Any]]:
    """Alternate ours and Aeron's, round by round, for both sync levels."""
    figures = []
    for sync_level in (1, 0):
        for number in range(options.rounds):
            context = {"file_sync_level": sync_level, "round": number}
            for figure in _both(options, sync_level):
                figures.append(context | figure)
                yield figures[-1]
    if options.plots is not None:
        draw(figures, options.plots / "cluster.png")


def _both(options: Options, sync_level: int) -> Iterator[dict[str, Any]]:
    with running_cluster(CLUSTER_FILE_SYNC_LEVEL=str(sync_level)) as cluster:
        for transport, key in ENDPOINTS.items():
            for window in WINDOWS:
                yield measure_ours(cluster[key], transport, options.seconds, window, 1)
            yield measure_ours(cluster[key], transport, options.seconds, **BATCHED)
    if options.peers is not None:
        for idle in IDLE_STRATEGIES:
            settings = AERON_SETTINGS | idle | {"sync-level": str(sync_level)}
            for window in WINDOWS:
                yield measure_aerons(options.peers / "aeron" / "run", settings, options.seconds, window)
        yield from measure_floor(options.peers / "floor", sync_level)


def measure_ours(
    endpoints: str, transport: str, seconds: float, window: int, batch: int, size: int = SIZE, *options: str
) -> dict[str, Any]:
    """A figure of ``cluster bench`` with the members at these endpoints."""
    command = [*CLUSTER, "bench", "--endpoints", endpoints, "--size", str(size), "--json"]
    lengths = ["--warm-up", str(WARM_UP_S), "--duration", str(seconds)]
    loads = ["--window", str(window), "--batch", str(batch)]
    done = subprocess.run(
        [*command, *lengths, *loads, *options], stdout=subprocess.PIPE, text=True, check=True
    )
    told = json.loads(done.stdout)
    return {
        "side": "ours",
        "transport": transport,
        "size": size,
        "window": window,
        "batch": batch,
        "messages_per_s": round(told["messagesPerSecond"]),
        **{f"{name}_us": told["latencyUs"][name.replace("_", ".")] for name in PERCENTILES},
        "echoed": told["echoed"],
        "never_echoed": told["offered"] - told["echoed"],
    }


def measure_aerons(
    harness: Path, settings: dict[str, str], seconds: float, window: int, size: int = SIZE
) -> dict[str, Any]:
    """A figure of three members of real Aeron Cluster and their client, by the peer's harness ``run``."""
    kind = ["latency"] if window == 1 else ["throughput", "--window", str(window)]
    lengths = ["--size", str(size), "--warmup", str(WARM_UP_S), "--seconds", str(round(seconds))]
    options = [word for name, value in settings.items() for word in (f"--{name}", value)]
    done = subprocess.run(
        [str(harness), "bench", *kind, *lengths, *options], stdout=subprocess.PIPE, text=True
    )
    figure = {"side": "aeron", "transport": "udp", "size": size, "window": window, "batch": 1}
    figure["settings"] = settings
    told = [json.loads(line) for line in done.stdout.splitlines()]
    results = [result for result in told if result.get("bench") == kind[0]]
    if done.returncode != 0 or not results:
        return figure | {"stalled": True}
    result = results[0]
    return figure | {
        "messages_per_s": result["msgs_per_s"] if window > 1 else round(result["round_trips"] / seconds),
        **{f"{name}_us": result[f"{name}_us"] for name in PERCENTILES},
        "never_echoed": result["never_echoed"],
        "stalled": result["never_echoed"] > 0,
    }


def measure_floor(peer: Path, sync_level: int) -> Iterator[dict[str, Any]]:
    """A round trip of the bare steps, as often as the peer's program takes it at this sync level."""
    with tempfile.TemporaryDirectory(prefix="cluster-bench-") as folder:
        command = [sys.executable, str((peer / "floor").with_suffix(".py")), folder]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    for line in done.stdout.splitlines():
        found = re.fullmatch(rf"sync {min(sync_level, 1)} early 0 p50 us (\d+) p99 (\d+)", line)
        if found is not None:
            p50, p99 = map(int, found.groups())
            yield {
                "side": "floor",
                "transport": "floor",
                "window": 1,
                "batch": 1,
                "p50_us": p50,
                "p99_us": p99,
            }


def draw(figures: list[dict[str, Any]], path: Path) -> None:
    """Throughput by window, and percentiles of a message alone, at each sync level: medians of the rounds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    picture, (panels, below) = pyplot.subplots(2, 2, figsize=(10, 8), layout="constrained", sharey="row")
    for sync_level, axes in zip((1, 0), below):
        for name, points in _percentiles(figures, sync_level).items():
            axes.plot(
                list(points),
                list(points.values()),
                "-" if name.startswith("ours") else "--",
                marker="o",
                label=name,
            )
        axes.set(xlabel="percentile of a message alone", yscale="log")
    below[0].set(ylabel="round trip, µs")
    below[0].legend(fontsize="small")
    for sync_level, axes in zip((1, 0), panels):
        for name, points in _lines(figures, sync_level).items():
            style = "--" if name.startswith("Aeron") else "-"
            axes.plot(list(points), [points[window] for window in points], style, marker="o", label=name)
        axes.set(
            xlabel="messages on their way at most, one an offer",
            title=f"file sync level {sync_level}",
            xscale="log",
            yscale="log",
        )
    panels[0].set(ylabel="messages/s, committed and echoed")
    panels[0].legend(fontsize="small")
    picture.savefig(path, dpi=120)


def _name(figure: dict[str, Any]) -> str:
    if figure["side"] == "floor":
        return "floor"
    of_ours = figure["side"] == "ours"
    return f"ours, {figure['transport']}" if of_ours else f"Aeron, {figure['settings']['idle']}"


def _percentiles(figures: list[dict[str, Any]], sync_level: int) -> dict[str, dict[str, float]]:
    """Of each side the median of each percentile of a message alone, in µs."""
    found: dict[str, dict[str, list[float]]] = {}
    for figure in figures:
        if figure["file_sync_level"] == sync_level and figure["window"] == 1 and not figure.get("stalled"):
            for name in PERCENTILES:
                if f"{name}_us" in figure:
                    by_name = found.setdefault(_name(figure), {})
                    by_name.setdefault(name.replace("_", "."), []).append(figure[f"{name}_us"])
    return {side: {name: median(values) for name, values in by.items()} for side, by in found.items()}


def _lines(figures: list[dict[str, Any]], sync_level: int) -> dict[str, dict[int, float]]:
    """Of each side its median rate by window; runs that stalled are left out."""
    rates: dict[str, dict[int, list[float]]] = {}
    for figure in figures:
        if (
            figure["file_sync_level"] == sync_level
            and figure["batch"] == 1
            and figure["side"] != "floor"
            and not figure.get("stalled")
        ):
            by_window = rates.setdefault(_name(figure), {})
            by_window.setdefault(figure["window"], []).append(figure["messages_per_s"])
    return {
        name: {window: median(values) for window, values in sorted(by_window.items())}
        for name, by_window in rates.items()
    }
