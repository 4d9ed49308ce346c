"""Three members and a client on one core, on two, and so on, to all that the machine has; the rest on paper.

All processes share the first so many cores; where there are four or more, each process also gets one of its
own. A figure says what a message costs each process of its core. With a core for each the slowest of them
sets the pace, so the last figure is 1 / its cost: an upper bound for machines with more cores than this.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.cluster import BATCHED, measure_ours
from benchmarks.options import Options
from benchmarks.processes import cpu_seconds, running_cluster

LOADS = ({"window": 1, "batch": 1}, {"window": 1_000, "batch": 1}, BATCHED)
SHORT_S = 2.0  # of the run whose cost is taken off: what a client spends until it offers
PROCESSES = 4


def run(options: Options) -> Iterator[dict[str, Any]]:
    """Each number of cores in turn, at both sync levels."""
    all_cores = sorted(os.sched_getaffinity(0))
    for number in range(options.rounds):
        for count in range(1, len(all_cores) + 1):
            if count & (count - 1) == 0 or count == len(all_cores):
                for figure in _on(all_cores[:count], options.seconds, are_own=False):
                    yield {"round": number} | figure
        if len(all_cores) >= PROCESSES:
            for figure in _on(all_cores[:PROCESSES], options.seconds, are_own=True):
                yield {"round": number} | figure


def _on(cores: Sequence[int], seconds: float, *, are_own: bool) -> Iterator[dict[str, Any]]:
    for sync_level in (1, 0):
        with _bound_to(cores), running_cluster(CLUSTER_FILE_SYNC_LEVEL=str(sync_level)) as cluster:
            pids = [member["pid"] for member in cluster["members"]]
            if are_own:
                for pid, core in zip(pids, cores):
                    _bind(pid, core)
                os.sched_setaffinity(0, {cores[-1]})
            for load in LOADS:
                figure = _measure(cluster["ipcEndpoints"], pids, seconds, load)
                context = {"cores": len(cores), "a_core_each": are_own, "file_sync_level": sync_level}
                yield context | figure


def _measure(endpoints: str, pids: Sequence[int], seconds: float, load: dict[str, int]) -> dict[str, Any]:
    short, of_short = _cost(endpoints, pids, SHORT_S, load)
    whole, of_whole = _cost(endpoints, pids, seconds, load)
    messages = whole["echoed"] - short["echoed"]
    client, *members = [1e6 * (b - a) / messages for a, b in zip(of_short, of_whole)]
    leader, *followers = sorted(members, reverse=True)
    costs = {"leader": leader, "follower": max(followers), "client": client}
    bound = {} if load["window"] == 1 else {"bound_per_s": round(1e6 / max(costs.values()))}
    taken = {key: whole[key] for key in ("window", "batch", "messages_per_s", "p50_us", "p99_us")}
    return taken | {"cpu_us": {name: round(cost, 3) for name, cost in costs.items()}} | bound


def _cost(
    endpoints: str, pids: Sequence[int], seconds: float, load: dict[str, int]
) -> tuple[dict[str, Any], list[float]]:
    """A run's figure, and the processor time in s that it took of the client and of each member."""

    def spent() -> list[float]:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return [children.ru_utime + children.ru_stime, *map(cpu_seconds, pids)]

    before = spent()
    figure = measure_ours(endpoints, "ipc", seconds, **load)
    return figure, [after - begun for after, begun in zip(spent(), before)]


@contextmanager
def _bound_to(cores: Sequence[int]) -> Iterator[None]:
    """What this process starts runs on these cores alone."""
    were = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, were)


def _bind(pid: int, core: int) -> None:
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), {core})
