"""For how long a snapshot holds the ingress of a cluster, by the size of its service's state.

One member, a client that sends all the time, and a service with so many GiB. Held is the ingress while the
module is in state SNAPSHOT, by the times in node.log. Beside it stands what the client sees: the longest gap
between two commits, without a snapshot and during one; on few cores the writer competes with the member.

Taken for a service whose process is copied, one that writes in its own process, and one that shares the
member's thread, for which all waits, as in Aeron; the largest state for the first alone.

Goal: held for 20 ms, up to 1 GiB, where the process is copied.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.load import Load
from benchmarks.options import Options
from benchmarks.processes import CLUSTER
from benchmarks.real_members import RealMembers, await_that
from cluster import ClusteredService

VALUE_LENGTH = 16 * 1024
MESSAGES_PER_S = 1_000


class Copied(ClusteredService):
    """Has a state of many values, and answers nothing."""

    gib = 1

    def on_start(self, cluster: Any, snapshot_image: Any) -> None:
        count = self.gib * 2**30 // VALUE_LENGTH
        self.values = {key: key.to_bytes(8, "little") * (VALUE_LENGTH // 8) for key in range(count)}

    def on_session_message(self, session: Any, timestamp: int, buffer: memoryview) -> None:
        key = timestamp * 7919 % len(self.values)
        self.values[key] = bytes(buffer) + self.values[key][len(buffer) :]

    def on_take_snapshot(self, snapshot_publication: Any) -> None:
        for value in self.values.values():
            snapshot_publication.offer(value)


class InItsProcess(Copied):
    """Stops while it writes, and its member does not."""

    forks_for_snapshots = False


class CopiedLarge(Copied):
    gib = 4


class CopiedLargest(Copied):
    gib = 8


class InItsProcessLarge(InItsProcess):
    gib = 4


WAYS = {
    "copied process": ("process", (Copied, CopiedLarge, CopiedLargest)),
    "own process": ("process", (InItsProcess, InItsProcessLarge)),
    "member's thread": ("inline", (Copied, CopiedLarge)),
}


def run(options: Options) -> Iterator[dict[str, Any]]:
    """A figure for each size and way; one round is of the smallest size alone."""
    for size in range(3 if options.rounds > 1 else 1):
        for way, (mode, services) in WAYS.items():
            if size >= len(services):
                continue
            service = services[size]
            snapshots = list(_take(service, mode, options))
            yield {
                "figure": "ingress held during a snapshot",
                "state_gib": service.gib,
                "written_by": way,
                "held_ms": [round(1e3 * taken.held, 1) for taken in snapshots],
                "longest_gap_ms": [round(1e3 * taken.gap, 1) for taken in snapshots],
                "longest_gap_without_ms": [round(1e3 * taken.gap_before, 1) for taken in snapshots],
                "snapshot_s": [round(taken.seconds, 1) for taken in snapshots],
            }


class Taken(NamedTuple):
    """One snapshot, in seconds."""

    held: float
    gap: float
    gap_before: float
    seconds: float


def _take(service: type[Copied], mode: str, options: Options) -> Iterator[Taken]:
    print(f"snapshots: {service.gib} GiB, {service.__name__} in mode {mode}", file=sys.stderr, flush=True)
    keys = {
        "services": [f"{__name__}:{service.__name__}"],
        "service_mode": [mode],
        "session_timeout": "60s",
        "file_sync_level": 1,
    }
    with (
        tempfile.TemporaryDirectory(prefix="cluster-bench-", ignore_cleanup_errors=True) as name,
        RealMembers(Path(name), 1, keys=keys) as members,
    ):
        members.start()
        leader = members.await_leader(within_s=300)
        with Load(members.tcp, messages_per_s=MESSAGES_PER_S) as load:
            for _ in range(options.rounds):
                load.await_progress(members.tell)
                began = time.monotonic()
                load.await_seconds(options.seconds)
                asked = time.monotonic()
                _take_one(members, leader)
                done = time.monotonic()
                gaps = load.longest_gap(asked, done), load.longest_gap(began, asked)
                yield Taken(_held(members.member_dir(leader) / "node.log"), *gaps, done - asked)
        members.stop()


def _take_one(members: RealMembers, leader: int) -> None:
    """Have a snapshot taken, and wait for it however long it takes: the command gives up after 30 s."""
    directory = members.member_dir(leader)

    def count() -> int:
        return sum(line["event"].startswith("snapshot at ") for line in _lines(directory / "node.log"))

    before = count()
    command = [*CLUSTER, "tool", "snapshot", "--dir", str(directory)]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    await_that(lambda: count() > before, "the snapshot is recorded", within_s=600, tell=members.tell)


def _lines(node_log: Path) -> Iterator[dict[str, Any]]:
    whole, _, _ = node_log.read_text().rpartition("\n")
    return map(json.loads, whole.splitlines())


def _held(node_log: Path) -> float:
    """Seconds from the last SNAPSHOT in the log to when the module was ACTIVE again."""
    times = {}
    for line in _lines(node_log):
        event = line["event"]
        if event.startswith("SNAPSHOT at ") or event == "module SNAPSHOT -> ACTIVE":
            times[event[:8]] = datetime.fromisoformat(line["timestamp"])
    return (times["module S"] - times["SNAPSHOT"]).total_seconds()
