"""Kafka's harness in turns with ours: it gives up a lock every 150 s, and then ours is measured once.

So what else the machine does meets both. The work folder of the harness is kept for the next time.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LOCK_PAUSE_S = 1.0  # for the harness to take the lock


def in_turns(peers: Path, figure: str, ours: Callable[[], None], **variables: str) -> list[dict[str, Any]]:
    """Kafka's lines of one figure, a digit of its README; ``ours`` is called between its runs.

    Raises RuntimeError when the harness fails.
    """
    command = peers / "kafka" / "run"
    work = Path(tempfile.gettempdir()) / "cluster-bench-kafka"
    work.mkdir(exist_ok=True)
    environment = os.environ | {
        "WORK": str(work),
        "BENCH_LOCK": str(work / "lock"),
        "FIGURES": figure,
        "PYSPARK_PYTHON": sys.executable,
        **variables,
    }
    with (work / "lock").open("a") as lock, tempfile.TemporaryFile("w+") as said:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kafka = subprocess.Popen([str(command)], stdout=said, env=environment)
        while kafka.poll() is None:
            ours()
            fcntl.flock(lock, fcntl.LOCK_UN)
            time.sleep(LOCK_PAUSE_S)
            fcntl.flock(lock, fcntl.LOCK_EX)
        if kafka.returncode != 0:
            raise RuntimeError(f"{command} ended with status {kafka.returncode}")
        said.seek(0)
        return [json.loads(line) for line in said]
