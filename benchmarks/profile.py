"""Where a message's time goes on the leader and on a follower: perf, with the names of compiled functions.

Three members over ipc, one message in flight and then batches, at both sync levels. A figure has the shares
of a member's own processor time by what it was in: the operating system by the call that asked for it,
compiled functions by their names, and Python. Needs ``perf`` and the right to use it for one's own processes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.cluster import BATCHED, measure_ours
from benchmarks.named_kernels import map_path
from benchmarks.options import Options
from benchmarks.processes import running_cluster
from cluster.errors import ConfigurationError

SAMPLES_PER_S = 2_000
SHOWN = 12
NAMED = [sys.executable, "-m", "benchmarks.named_kernels"]
LOADS = {"alone": {"window": 1, "batch": 1}, "batches": BATCHED}
_LINE = re.compile(r"\s*(\S+)\s+(\S+)\s+(.*)")


def run(options: Options) -> Iterator[dict[str, Any]]:
    """A figure for each sync level, load and role."""
    if shutil.which("perf") is None:
        raise ConfigurationError("perf is not there: install the kernel's tools (linux-perf, linux-tools)")
    for sync_level in (1, 0):
        with running_cluster(program=NAMED, CLUSTER_FILE_SYNC_LEVEL=str(sync_level)) as cluster:
            pids = {member["memberId"]: member["pid"] for member in cluster["members"]}
            leader = cluster["leaderMemberId"]
            try:
                for load, shape in LOADS.items():
                    for role, member_id in (("leader", leader), ("follower", (leader + 1) % 3)):
                        context = {"file_sync_level": sync_level, "load": load, "role": role}
                        yield context | _profile(cluster, pids[member_id], options.seconds, **shape)
            finally:
                for pid in pids.values():
                    map_path(pid).unlink(missing_ok=True)


def _profile(cluster: dict[str, Any], pid: int, seconds: float, *, window: int, batch: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="cluster-bench-") as folder:
        data = f"{folder}/perf.data"
        record = subprocess.Popen(
            ["perf", "record", "-e", "cpu-clock", "-F", str(SAMPLES_PER_S), "-g", "-p", str(pid), "-o", data],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        load = measure_ours(cluster["ipcEndpoints"], "ipc", seconds, window, batch)
        record.terminate()
        record.wait()
        shares = _shares(Path(data))
    return {"p50_us": load["p50_us"], "messages_per_s": load["messages_per_s"], "shares": shares}


def _shares(data: Path) -> dict[str, float]:
    """Percent of the samples by what was at work, the greatest first."""
    script = subprocess.run(
        ["perf", "script", "-i", str(data), "-F", "ip,sym,dso"], stdout=subprocess.PIPE, text=True, check=True
    )
    counts: Counter[str] = Counter()
    for sample in script.stdout.split("\n\n"):
        frames = [match.groups() for line in sample.splitlines() if (match := _LINE.match(line))]
        if frames:
            counts[_what(frames)] += 1
    total = sum(counts.values())
    return {name: round(100 * count / total, 1) for name, count in counts.most_common(SHOWN)}


def _what(frames: list[tuple[str, ...]]) -> str:
    """The call of the operating system, the compiled function, or the library that a sample was in."""
    _, name, library = frames[0]
    name = name.removeprefix("cpython.")  # a kernel's door from Python
    if "kernel" in library:
        calls = [name for _, name, _ in frames if name.startswith("__x64_sys_")]
        return f"{calls[-1].removeprefix('__x64_sys_')}()" if calls else "kernel, no call"
    if Path(library.strip("()")).name.startswith("perf-"):
        return name
    if "libpython" in library or "cpython" in library:
        return "Python"
    return Path(library.strip("()")).name
