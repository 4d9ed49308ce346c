"""What a member takes for each session, lane, timer, consumer group and reader, and for a message of its log.

One member over ipc: its anonymous memory and descriptors before and after so many of them, divided.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.options import Options
from benchmarks.processes import anonymous_mib, running_cluster
from cluster import ClusterClient, ClusteredService, Lane, LogReader
from cluster.transport.member_status import member_status

SESSIONS, LANES, TIMERS, GROUPS, READERS, MESSAGES = 500, 500, 100_000, 100, 40, 1_000
BOUNDS = {
    "CLUSTER_MAX_SESSIONS": "2000",
    "CLUSTER_CONNECTIONS_MAX": "4000",
    "CLUSTER_READERS_MAX": "200",
    "CLUSTER_SESSION_TIMEOUT": "3600s",
}
HOUR_MS = 3_600_000
NAME = f"{__name__}:Timers"


class Timers(ClusteredService):
    """A message is a number: of timers that are scheduled for later; it is answered."""

    def on_start(self, cluster: Any, snapshot_image: Any) -> None:
        self._cluster = cluster
        self._count = 0

    def on_session_message(self, session: Any, timestamp: int, buffer: memoryview) -> None:
        for _ in range(int(bytes(buffer) or b"0")):
            self._count += 1
            while not self._cluster.schedule_timer(self._count, timestamp + HOUR_MS + self._count):
                self._cluster.idle()
        session.offer(b"done")


def run(options: Options) -> Iterator[dict[str, Any]]:
    """One figure of each kind."""
    with running_cluster(1, "--service", NAME, "--set", "service_mode=inline", **BOUNDS) as up:
        ipc, pid, folder = up["ipcEndpoints"], up["members"][0]["pid"], Path(up["members"][0]["dir"])
        yield {
            "figure": "a member alone",
            "ready_seconds": round(up["ready_seconds"], 2),
            "anonymous_mib": round(anonymous_mib(pid)),
            "descriptors": _descriptors(pid),
            "files": sum(path.is_file() for path in folder.rglob("*")),
            "disk_mib": round(sum(p.stat().st_blocks for p in folder.rglob("*")) / 2048),
        }
        with ExitStack() as opened:
            client = opened.enter_context(ClusterClient.connect(ipc))
            yield _bytes_of_messages(client, ipc)
            clients: list[ClusterClient] = []
            yield _each("session", SESSIONS, pid, lambda i: clients.append(ClusterClient.connect(ipc)))
            for other in clients:
                other.close()
            yield _each(
                "lane", LANES, pid, lambda i: ClusterClient.connect(ipc, lane=Lane("capacity", i, 1)).close()
            )
            yield _each("timer", TIMERS, pid, lambda i: _schedule(client, 1_000), 1_000)
            yield _each("consumer group", GROUPS, pid, lambda i: _report(ipc, f"g{i}"))
            yield _each("reader", READERS, pid, lambda i: next(_reader(opened, ipc)))


def _each(what: str, count: int, pid: int, one: Callable[[int], object], at_once: int = 1) -> dict[str, Any]:
    before_mib, before = anonymous_mib(pid), _descriptors(pid)
    for number in range(count // at_once):
        one(number)
    return {
        "figure": f"a {what}",
        "count": count,
        "bytes_of_memory": round((anonymous_mib(pid) - before_mib) * 2**20 / count),
        "descriptors": round((_descriptors(pid) - before) / count, 1),
    }


def _bytes_of_messages(client: ClusterClient, endpoint: str) -> dict[str, Any]:
    figure: dict[str, Any] = {"figure": "a message in the log", "count": MESSAGES}
    for length in (10, 100, 1_000):
        before = _commit_position(endpoint)
        for _ in range(MESSAGES):
            client.send(b"0".rjust(length))
        client.await_committed()
        figure[f"bytes_for_{length}"] = round((_commit_position(endpoint) - before) / MESSAGES, 1)
    return figure


def _schedule(client: ClusterClient, count: int) -> None:
    client.request(b"%d" % count, timeout_s=60)


def _report(endpoints: str, group: str) -> None:
    with LogReader.open(endpoints=endpoints, consumer_group=group) as reader:
        reader.processed(next(iter(reader.entries()))["endPosition"])
        reader.report()


def _reader(opened: ExitStack, endpoints: str) -> Iterator[dict[str, Any]]:
    reader = opened.enter_context(LogReader.open(endpoints=endpoints))
    entries = reader.entries(follow=True)
    opened.callback(entries.close)
    return entries


def _commit_position(endpoint: str) -> int:
    return member_status(endpoint.partition("=")[2]).commit_position


def _descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
