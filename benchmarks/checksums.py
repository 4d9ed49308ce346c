"""What the checksums of frames cost: ``archive_record_checksum`` crc32c, the default, beside none.

Throughput is that of three members at file sync level 1 over ipc with 1,024 messages an offer, where the
bytes are most of the work; a start is that of one member over a log of 10 million messages without a
snapshot, which is read, checked and replayed whole. Both kinds in turns.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.cluster import BATCHED, measure_ours
from benchmarks.options import Options
from benchmarks.processes import running_cluster
from benchmarks.real_members import RealMembers
from benchmarks.recovery import start_all, write_log

KINDS = ("none", "crc32c")
MESSAGES = 10_000_000


def run(options: Options) -> Iterator[dict[str, Any]]:
    """Throughput by kind, round by round; then starts."""
    for number in range(options.rounds):
        for kind in KINDS:
            with running_cluster(CLUSTER_ARCHIVE_RECORD_CHECKSUM=kind) as cluster:
                figure = measure_ours(cluster["ipcEndpoints"], "ipc", options.seconds, **BATCHED)
            yield {"figure": "throughput", "checksum": kind, "round": number} | figure
    with tempfile.TemporaryDirectory(prefix="cluster-bench-", ignore_cleanup_errors=True) as name:
        all_members = {kind: RealMembers(Path(name) / kind, 1) for kind in KINDS}
        ends = {kind: write_log(members, MESSAGES, checksum=kind) for kind, members in all_members.items()}
        for number in range(options.rounds):
            for kind, members in all_members.items():
                with members:
                    seconds = start_all(members, ends[kind]).seconds
                yield {
                    "figure": "start",
                    "checksum": kind,
                    "round": number,
                    "log_gb": round(ends[kind] / 1e9, 2),
                    "seconds": round(seconds, 2),
                }
