"""``python -m jobs.log_to_delta`` on a log of two million entries of 100 bytes.

Goal: 300,000 rows/s into Delta, start-up apart. What counts as start-up is told apart in two ways, since a
JVM goes on starting long after its first line: it loads and compiles what it runs while it runs it.

- *command*: the job as a user runs it, after the same over a log of a thousand entries, which has all of the
  start and nothing of the rate. ``rows_per_s`` is what the job itself says, rows over the time of its
  triggers; ``rows_per_s_beyond_start`` leaves out the time of the small log's trigger.
- *warm*: the job's query again and again in one session, each time into a new table, a first one not counted:
  the rate of a job that keeps running.

``cpu_seconds`` is of all processes and does not grow with what else the machine does.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.options import Options
from benchmarks.processes import tree_cpu_seconds
from benchmarks.synthetic_log import write_messages

ENTRIES = 2_000_000
FEW = 1_000
CPU_INTERVAL_S = 0.25
_BATCH = re.compile(r"batch \d+, ([\d,]+) rows in ([\d.]+) s")


def run(options: Options) -> Iterator[dict[str, Any]]:
    """For each round a figure of the command, then for each one of the query in a warm session."""
    with tempfile.TemporaryDirectory(prefix="cluster-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        write_messages(folder / "few", FEW, payload_length=100)
        write_messages(folder / "many", ENTRIES, payload_length=100)
        for number in range(options.rounds):
            few = _command(folder / "few", folder / f"few-{number}")
            many = _command(folder / "many", folder / f"many-{number}")
            beyond_start = many["trigger_seconds"] - few["trigger_seconds"]
            yield {
                "figure": "log_to_delta, command",
                "round": number,
                "rows": many["rows"],
                "rows_per_s": round(many["rows"] / many["trigger_seconds"]),
                "rows_per_s_beyond_start": round((many["rows"] - few["rows"]) / beyond_start),
                "trigger_seconds_of_start": few["trigger_seconds"],
                "command_seconds": many["command_seconds"],
                "command_seconds_of_start": few["command_seconds"],
                "cpu_seconds": many["cpu_seconds"],
                "cpu_seconds_of_start": few["cpu_seconds"],
            }
        yield from _warm(folder, options.rounds)


def _command(member: Path, table: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "jobs.log_to_delta", "--cluster-dir", str(member), "--table", str(table)]
    with tempfile.TemporaryFile("w+") as said:
        began, cpu_seconds = time.monotonic(), 0.0
        job = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        while job.poll() is None:  # what a process spent is gone with it, so it is asked while it runs
            cpu_seconds = max(cpu_seconds, tree_cpu_seconds(job.pid))
            time.sleep(CPU_INTERVAL_S)
        seconds = time.monotonic() - began
        said.seek(0)
        text = said.read()
    batches = _BATCH.findall(text)
    if job.returncode != 0 or not batches:
        raise RuntimeError(f"the job ended with status {job.returncode}: {text}")
    return {
        "rows": sum(int(rows.replace(",", "")) for rows, _ in batches),
        "trigger_seconds": round(sum(float(in_batch) for _, in_batch in batches), 1),
        "command_seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
    }


def _warm(folder: Path, rounds: int) -> Iterator[dict[str, Any]]:
    from jobs.keeping import keeping
    from jobs.log_to_delta import log_job
    from jobs.session import spark_session

    spark = spark_session("benchmark")
    source = {"clusterDir": str(folder / "many")}
    for number in range(-1, rounds):
        table, cpu_before = str(folder / f"warm-{number}"), tree_cpu_seconds(os.getpid())
        writer = keeping(spark, {table: log_job()}, source, f"{table}/_checkpoint")
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        batches = [batch for batch in query.recentProgress if batch["numInputRows"]]
        rows = sum(batch["numInputRows"] for batch in batches)
        busy_ms = sum(batch["durationMs"]["triggerExecution"] for batch in batches)
        if number >= 0:
            yield {
                "figure": "log_to_delta, warm",
                "round": number,
                "rows": rows,
                "rows_per_s": round(rows * 1000 / busy_ms),
                "cpu_seconds": round(tree_cpu_seconds(os.getpid()) - cpu_before, 1),
            }
    spark.stop()
