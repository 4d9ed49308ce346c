"""The cluster as a user starts it, and what its processes cost."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CLUSTER = [sys.executable, "-m", "cluster"]
_TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def running_cluster(
    members: int = 3,
    *options: str,
    directory: Path | None = None,
    program: list[str] = CLUSTER,
    **environment: str,
) -> Iterator[dict[str, Any]]:
    """``cluster up`` in ``directory``, or one of its own: what it printed, with the seconds until it did.

    Keyword arguments are set in its environment, which overrides configuration keys; ``options`` are its own.
    ``program`` takes the cluster's commands.
    """
    with tempfile.TemporaryDirectory(prefix="cluster-bench-", ignore_cleanup_errors=True) as own:
        folder = own if directory is None else str(directory)
        started = time.monotonic()
        command = [*program, "up", "--members", str(members), "--dir", folder, "--json"]
        process = subprocess.Popen(
            [*command, *options, "--base-port", str(free_base_port(members))],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"cluster up ended with status {process.wait()}")
            yield json.loads(line) | {"ready_seconds": time.monotonic() - started, "dir": folder}
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def free_base_port(members: int) -> int:
    """A base port whose blocks of ten look free for all members."""
    for base in range(21_000, 29_000, 10 * members):
        if all(port_is_free(base + 10 * member + offset) for member in range(members) for offset in range(3)):
            return base
    raise RuntimeError("no free ports between 21000 and 29000")


def port_is_free(port: int) -> bool:
    """Whether nobody listens at the port of the loopback interface."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def idle_share(seconds: float = 3.0) -> float:
    """The share of all cores' time that nobody used in the next ``seconds``."""
    before = _idle_and_all_ticks()
    time.sleep(seconds)
    idle, total = (after - old for after, old in zip(_idle_and_all_ticks(), before))
    return idle / total


def _idle_and_all_ticks() -> tuple[int, int]:
    ticks = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return ticks[3] + ticks[4], sum(ticks)  # idle, and waiting for a device


def cpu_seconds(pid: int) -> float:
    """User and system time of the process so far, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def tree_cpu_seconds(pid: int) -> float:
    """User and system time of the process and of all that it started, as far as they still run or were
    waited for."""
    children: dict[int, list[int]] = {}
    spent: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        child = int(path.parent.name)
        children.setdefault(int(fields[1]), []).append(child)
        spent[child] = sum(int(field) for field in fields[11:15]) / _TICKS
    total, tree = 0.0, [pid]
    while tree:
        process = tree.pop()
        total += spent.get(process, 0.0)
        tree += children.get(process, [])
    return total


def anonymous_mib(pid: int) -> float:
    """Anonymous memory that is resident: what no file could give back."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no RssAnon of process {pid}")
