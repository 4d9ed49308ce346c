"""What a member costs when nothing happens, and how soon it is there.

Goals: ready within 2 s of its start (warm), at most 3 % of a core and 200 MB of anonymous memory when idle.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from benchmarks.options import Options
from benchmarks.processes import anonymous_mib, cpu_seconds, running_cluster


def run(options: Options) -> Iterator[dict[str, Any]]:
    """One figure a round, over three members that elected a leader and were left alone."""
    for number in range(options.rounds):
        with running_cluster(members=1) as alone:
            ready_alone = alone["ready_seconds"]
        with running_cluster() as cluster:
            pids = [member["pid"] for member in cluster["members"]]
            time.sleep(2)  # what start-up left to do is not the cost of idling
            before, began = [cpu_seconds(pid) for pid in pids], time.monotonic()
            time.sleep(options.seconds)
            elapsed = time.monotonic() - began
            spent = [cpu_seconds(pid) - cpu for pid, cpu in zip(pids, before, strict=True)]
            yield {
                "figure": "idle member",
                "round": number,
                "ready_seconds_one_member": round(ready_alone, 2),
                "ready_seconds_three_members": round(cluster["ready_seconds"], 2),
                "cpu_percent": [round(100 * seconds / elapsed, 2) for seconds in spent],
                "anonymous_mib": [round(anonymous_mib(pid)) for pid in pids],
            }
