"""What a session costs that is supervised, or over TLS: beside a plain one, in turns.

Three members and their echo in compiled code, over tcp, file sync level 1. TLS is that of clients and links.
Goals: 0.7 of a plain session's throughput, and a message alone in 1.5 times its p50.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from statistics import median
from typing import Any
from unittest.mock import patch

from benchmarks.cluster import SIZE, measure_ours
from benchmarks.options import Options
from benchmarks.processes import running_cluster

LOADS = ((1, 1), (1_000, 1), (1_024, 64))  # window, messages an offer
KINDS = ("plain", "supervised", "tls")


def run(options: Options) -> Iterator[dict[str, Any]]:
    """Rounds with all kinds, then the medians of each load as multiples of the plain ones."""
    figures: list[dict[str, Any]] = []
    with running_cluster() as cluster, running_cluster(3, "--tls") as secured:
        for number in range(options.rounds):
            for window, batch in LOADS:
                for kind in KINDS:
                    members = secured if kind == "tls" else cluster
                    with patch.dict(
                        os.environ, {"CLUSTER_TLS_CA": secured["tlsCa"]} if kind == "tls" else {}
                    ):
                        figure = measure_ours(
                            members["tcpEndpoints"],
                            "tcp",
                            options.seconds,
                            window,
                            batch,
                            SIZE,
                            *(["--supervised"] if kind == "supervised" else []),
                        )
                    figures.append({"round": number, "kind": kind} | figure)
                    yield figures[-1]
    for window, batch in LOADS:
        of = {kind: _medians(figures, kind, window, batch) for kind in KINDS}
        for kind in KINDS[1:]:
            yield {
                "kind": kind,
                "window": window,
                "batch": batch,
                **{f"{name}_of_plain": round(of[kind][name] / of["plain"][name], 2) for name in of[kind]},
            }


def _medians(figures: list[dict[str, Any]], kind: str, window: int, batch: int) -> dict[str, float]:
    chosen = [
        figure
        for figure in figures
        if (figure["kind"], figure["window"], figure["batch"]) == (kind, window, batch)
    ]
    return {name: median(figure[name] for figure in chosen) for name in ("messages_per_s", "p50_us")}
