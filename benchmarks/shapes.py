"""Throughput by the shape of the work: size of a message, number of members, batches, TLS; ours and Aeron's.

A thousand messages on their way at most, one an offer, on both sides; then ours in batches of 64. Over tcp,
plain and with TLS 1.3 (clients and the links between members); Aeron has none. File sync level 1. Aeron's
harness runs 1 or 3 members, yielding (``cluster`` has its other idle strategies).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from benchmarks.cluster import AERON_SETTINGS, measure_aerons, measure_ours
from benchmarks.options import Options
from benchmarks.processes import running_cluster

SIZES = (32, 100, 1024, 60_000)
MEMBERS = (1, 3, 5)
AERONS_MEMBERS = (1, 3)
WINDOW = 1_000
BATCHED = {"window": 1_024, "batch": 64}
SETTINGS = AERON_SETTINGS | {"idle": "yielding", "client-idle": "yielding", "sync-level": "1"}


def run(options: Options) -> Iterator[dict[str, Any]]:
    """All shapes once a round, both sides of one number of members after each other."""
    for number in range(options.rounds):
        for members in MEMBERS:
            context = {"round": number, "members": members, "file_sync_level": 1}
            for is_tls in (False, True):
                for figure in _ours(members, is_tls, options.seconds):
                    yield context | {"tls": is_tls} | figure
            if options.peers is not None and members in AERONS_MEMBERS:
                settings = SETTINGS | {"members": str(members)}
                for size in SIZES:
                    harness = options.peers / "aeron" / "run"
                    yield context | measure_aerons(harness, settings, options.seconds, WINDOW, size)


def _ours(members: int, is_tls: bool, seconds: float) -> Iterator[dict[str, Any]]:
    with running_cluster(members, *(["--tls"] if is_tls else [])) as cluster:
        variables = {"CLUSTER_TLS_CA": cluster["tlsCa"]} if is_tls else {}
        with patch.dict(os.environ, variables):
            for size in SIZES:
                for load in ({"window": WINDOW, "batch": 1}, BATCHED):
                    yield measure_ours(cluster["tcpEndpoints"], "tcp", seconds, **load, size=size)
