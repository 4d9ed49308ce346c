"""``python -m jobs.log_to_delta`` on a log of two million entries of 100 bytes.

Goal: 300,000 rows/s into Delta, start-up apart. The rate is the job's own: rows over the time of its
triggers.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.options import Options
from benchmarks.synthetic_log import write_messages

ENTRIES = 2_000_000
_DONE = re.compile(r"done, ([\d,]+) rows \(([\d,]+) rows/s\)")


def run(options: Options) -> Iterator[dict[str, Any]]:
    """One figure a round, each into a new table."""
    with tempfile.TemporaryDirectory(prefix="cluster-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        write_messages(folder / "member-0", ENTRIES, payload_length=100)
        for number in range(options.rounds):
            command = [sys.executable, "-m", "jobs.log_to_delta", "--cluster-dir", str(folder / "member-0")]
            began = time.monotonic()
            done = subprocess.run(
                [*command, "--table", str(folder / f"table-{number}")],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=True,
            )
            seconds = time.monotonic() - began
            found = _DONE.search(done.stdout)
            assert found is not None, done.stdout
            rows, rate = (int(group.replace(",", "")) for group in found.groups())
            yield {
                "figure": "log_to_delta",
                "round": number,
                "rows": rows,
                "rows_per_s": rate,
                "command_seconds": round(seconds, 1),
            }
