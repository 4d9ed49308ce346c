"""One message alone through three members: ours, real Aeron at its fastest, and the floor, in turns.

A round has each side once at each sync level, so that what else the machine does meets all of them.
Aeron's agents and client spin (``yielding``). The last figures are the medians of the rounds, and ours as
multiples of both others'. Goals: p50 at most 0.75 of Aeron's and 1.7 of the floor's at sync level 1, 0.65
and 2.2 at level 0.
"""

from __future__ import annotations

from collections.abc import Iterator
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

YIELDING = IDLE_STRATEGIES[1]
TAKEN = ("p50_us", "p99_us")


def run(options: Options) -> Iterator[dict[str, Any]]:
    """Rounds with both levels, and their medians."""
    figures: list[dict[str, Any]] = []
    for number in range(options.rounds):
        for sync_level in (1, 0):
            for figure in _round(options, sync_level):
                figures.append({"file_sync_level": sync_level, "round": number} | figure)
                yield figures[-1]
    for sync_level in (1, 0):
        yield _medians(figures, sync_level)


def _round(options: Options, sync_level: int) -> Iterator[dict[str, Any]]:
    with running_cluster(CLUSTER_FILE_SYNC_LEVEL=str(sync_level)) as cluster:
        for transport, key in ENDPOINTS.items():
            yield measure_ours(cluster[key], transport, options.seconds, 1, 1)
    if options.peers is not None:
        settings = AERON_SETTINGS | YIELDING | {"sync-level": str(sync_level)}
        yield measure_aerons(options.peers / "aeron" / "run", settings, options.seconds, 1)
        yield from measure_floor(options.peers / "floor", sync_level)


def _medians(figures: list[dict[str, Any]], sync_level: int) -> dict[str, Any]:
    """Of each side the medians in µs; of ours over ipc also the ratios to the others."""
    values: dict[str, dict[str, list[float]]] = {}
    for figure in figures:
        if figure["file_sync_level"] == sync_level and not figure.get("stalled"):
            side = figure["transport"] if figure["side"] == "ours" else figure["side"]
            for name in TAKEN:
                values.setdefault(side, {}).setdefault(name, []).append(figure[name])
    found = {side: {name: median(of) for name, of in by.items()} for side, by in values.items()}
    ratios = {
        f"ipc to {side}": {name: round(found["ipc"][name] / found[side][name], 2) for name in TAKEN}
        for side in ("aeron", "floor")
        if side in found
    }
    return {"file_sync_level": sync_level, "medians": found, "ratios": ratios}
