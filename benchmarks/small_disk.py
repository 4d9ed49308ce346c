"""A disk of 1 GiB for each of three members, written at full speed: what it holds, and whom it stops.

Each member's directory is a tmpfs, so that only the room is small. ``disk_free_min`` alone bounds the log, as
docs/capacity.md has it: snapshots are taken and old log goes before clients are refused. The members end and
start again over what is left. Needs the right to mount; --seconds 3600 for an hour.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.options import Options
from benchmarks.processes import CLUSTER, running_cluster

MEMBERS = 3
DISK_MIB = 1024
FREE_MIN_MIB = 128
KEYS = (
    f"disk_free_min={FREE_MIN_MIB}m", "log_retained_snapshots=2", "snapshot_every_bytes=128m",
    "archive_segment_file_length=16m", "log_term_length=16m",
)  # fmt: skip
SETTINGS = tuple(f"--set={key}" for key in KEYS)
LOOKS = 60  # of the disks, while it is written
MESSAGE_BYTES = 192  # of log: 100 of payload


def run(options: Options) -> Iterator[dict[str, Any]]:
    """What is used and free of the fullest disk, look by look; then the whole, and the start after it."""
    with tempfile.TemporaryDirectory(prefix="cluster-bench-") as folder, small_disks(Path(folder)) as disks:
        with running_cluster(MEMBERS, *SETTINGS, directory=Path(folder)) as cluster:
            lasting = ["--endpoints", cluster["tcpEndpoints"], "--duration", f"{options.seconds:g}s"]
            command = [*CLUSTER, "bench", *lasting, "--json"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as bench:
                began, least_free = time.monotonic(), DISK_MIB
                while bench.poll() is None:
                    time.sleep(max(options.seconds / LOOKS, 1))
                    free = [shutil.disk_usage(disk).free >> 20 for disk in disks]
                    least_free = min(least_free, *free)
                    yield {"second": round(time.monotonic() - began), "free_mib": free}
                assert bench.stdout is not None
                found = json.loads(bench.stdout.read())
            verdict = verdict_of(folder)
        with running_cluster(MEMBERS, *SETTINGS, directory=Path(folder)) as cluster:
            yield {
                **{key: found[key] for key in ("offered", "committed", "echoed", "messagesPerSecond")},
                "log_gib_written": round(found["committed"] * MESSAGE_BYTES / 2**30, 1),
                "least_free_mib": least_free,
                "verdict": verdict,
                "start_again_s": round(cluster["ready_seconds"], 2),
                "verdict_then": verdict_of(folder),
            }


def verdict_of(directory: str) -> str:
    command = [*CLUSTER, "status", "--dir", directory, "--json"]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
    return str(json.loads(said)["verdict"])


@contextmanager
def small_disks(folder: Path) -> Iterator[list[Path]]:
    """The members' directories, each a file system of its own."""
    with ExitStack() as mounted:
        disks = [folder / f"member-{member}" for member in range(MEMBERS)]
        for disk in disks:
            disk.mkdir()
            size = f"size={DISK_MIB}m"
            subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(disk)], check=True)
            mounted.callback(subprocess.run, ["umount", "--lazy", str(disk)], check=False)
        yield disks
