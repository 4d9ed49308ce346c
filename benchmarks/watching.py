"""What watching costs: throughput of three members whom nobody watches, scraped ones, and with 20 pages open.

A cluster with ``metrics_endpoint`` a round, in turns. Scraped: each member's /metrics once a second, 15 times
as often as Prometheus does by itself. Pages: that, and ``cluster live`` asked by 20 pages, as their script
does it. The last figures are the ratios to the unwatched run of the same round. Rounds differ by more than
watching costs, and who asks is on this machine, too: ``live_share`` is the share of a core that
``cluster live`` took.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from benchmarks.cluster import BATCHED, measure_ours
from benchmarks.options import Options
from benchmarks.processes import CLUSTER, cpu_seconds, running_cluster

KINDS = ("nobody", "scraped", "pages")
LOADS = ({"window": 1_000, "batch": 1}, BATCHED)
PAGES = 20
PAGE_INTERVAL_S, SCRAPE_INTERVAL_S = 0.5, 1.0
METRICS_PORT = 3  # after the first of a member


def run(options: Options) -> Iterator[dict[str, Any]]:
    """Throughput by load and kind, round by round; then the ratios."""
    rates: dict[tuple[int, str], list[int]] = {}
    shares: dict[int, list[float]] = {}
    for number in range(options.rounds):
        # A cluster a round: one that stays would fill 66 GB of disk in four minutes.
        with running_cluster(3, "--set", "metrics_endpoint=auto") as cluster:
            for load in LOADS:
                for kind in KINDS if number % 2 else KINDS[::-1]:  # so that no kind is always the last
                    with watched(cluster, kind) as live_share:
                        figure = measure_ours(cluster["ipcEndpoints"], "ipc", options.seconds, **load)
                        figure["live_share"] = round(live_share(), 3)
                    rates.setdefault((load["window"], kind), []).append(figure["messages_per_s"])
                    if kind == "pages":
                        shares.setdefault(load["window"], []).append(figure["live_share"])
                    yield {"watched_by": kind, "round": number} | figure
    for load in LOADS:
        unwatched = rates[load["window"], KINDS[0]]
        for kind in KINDS[1:]:
            ratios = [a / b for a, b in zip(rates[load["window"], kind], unwatched, strict=True)]
            lowest, middle, highest = min(ratios), median(ratios), max(ratios)
            shown = {"median": middle, "lowest": lowest, "highest": highest}
            if kind == "pages":
                shown["live_share"] = median(shares[load["window"]])
            yield {"ratio_of": kind, **load, **{name: round(ratio, 4) for name, ratio in shown.items()}}


@contextmanager
def watched(cluster: dict[str, Any], kind: str) -> Iterator[Callable[[], float]]:
    """While the members are scraped and pages are open, each by a process; gives ``live_share``."""
    with ExitStack() as opened:
        pid, began, before = None, time.monotonic(), 0.0
        if kind != "nobody":
            opened.enter_context(asking(SCRAPE_INTERVAL_S, [f"{at}/metrics" for at in metrics_of(cluster)]))
        if kind == "pages":
            command = [*CLUSTER, "live", "--dir", cluster["dir"]]
            live = opened.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            opened.callback(live.terminate)
            assert live.stdout is not None
            page = live.stdout.readline().strip()
            opened.enter_context(asking(PAGE_INTERVAL_S, [f"{page}frame"] * PAGES))
            pid, began, before = live.pid, time.monotonic(), cpu_seconds(live.pid)
        yield lambda: 0.0 if pid is None else (cpu_seconds(pid) - before) / (time.monotonic() - began)


def metrics_of(cluster: dict[str, Any]) -> list[str]:
    """Where the members serve their metrics."""
    places = [each.rpartition(":") for each in cluster["endpoints"].split(",")]
    return [f"http://127.0.0.1:{int(port) + METRICS_PORT}" for _, _, port in places]


@contextmanager
def asking(interval_s: float, urls: list[str]) -> Iterator[None]:
    """A process that asks for each of them, again and again."""
    command = [sys.executable, "-m", __name__, str(interval_s), *urls]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "all have answered\n"
            yield
            assert process.poll() is None, "somebody does not answer any more"
        finally:
            process.terminate()


def ask_forever(url: str, interval_s: float, answered: Callable[[], object]) -> None:
    parts = urlsplit(url)
    assert parts.hostname is not None
    while True:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
        connection.request("GET", parts.path)
        answer = connection.getresponse()
        assert answer.read() and answer.status == 200, answer.status
        connection.close()
        answered()
        due_ms = answer.headers["X-Due-Ms"]  # by which the page's script goes
        time.sleep(interval_s if due_ms is None else int(due_ms) / 1_000)


def main() -> None:
    interval_s, urls = float(sys.argv[1]), sys.argv[2:]
    silent = set(range(len(urls)))

    def answered(number: int) -> None:
        if number in silent:
            silent.discard(number)
            if not silent:
                print("all have answered", flush=True)

    with ThreadPoolExecutor(len(urls)) as pool:
        asked = [
            pool.submit(ask_forever, url, interval_s, lambda number=number: answered(number))
            for number, url in enumerate(urls)
        ]
        for ended in as_completed(asked):  # none does, but by an error
            print(ended.exception(), file=sys.stderr, flush=True)
            os._exit(1)


if __name__ == "__main__":
    main()
