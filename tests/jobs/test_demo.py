"""The demo as a user starts it, on the first flights of the year."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.node.processes import await_that

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(400)

BEGIN_S = 240  # for members, Spark and the first flights, on a machine that may be busy


def demo(home: Path, *arguments: str, cwd: Path = ROOT) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "jobs.demo", "--dir", str(home), *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd,
    )  # fmt: skip


def processes_that_name(home: Path) -> list[str]:
    """The command lines of processes that work in ``home``."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it ended meanwhile
        if str(home) in command:
            found.append(command)
    return found


@pytest.mark.slow
def test_the_demo_counts_the_same_from_three_sides_and_says_nothing_else(tmp_path):
    home = tmp_path / "demo"
    started_in = tmp_path / "elsewhere"
    started_in.mkdir()
    process = demo(home, "--flights", "3000", "--seconds", "5", cwd=started_in)
    said, errors = process.communicate(timeout=380)
    assert process.returncode == 0, said + errors
    assert errors == ""
    assert "three sides counted the same" in said and "✗" not in said
    assert "three members stopped in order" in said
    assert "3,000" in next(line for line in said.splitlines() if "flights sent  " in line)
    assert "kill -9 of member" in said and "is started again" in said
    assert "SPARK_CONF_DIR=conf spark-sql -e 'SELECT" in said
    assert (home / "demo.png").stat().st_size > 20_000
    for table in ("log", "sessions", "timers", "leadership_terms"):
        assert (home / "delta" / table / "_delta_log").is_dir()
    assert processes_that_name(home) == []
    assert list(started_in.iterdir()) == []


@pytest.mark.slow
def test_a_demo_that_is_interrupted_while_spark_starts_leaves_no_process_behind(tmp_path):
    home = tmp_path / "demo"
    process = demo(home, "--flights", "3000")
    try:
        await_that(lambda: any("SparkSubmit" in line for line in processes_that_name(home)), "a starting JVM")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)  # the JVM has the same standard error
    finally:
        process.kill()
    assert process.returncode == 130
    assert errors == ""
    assert processes_that_name(home) == []


@pytest.mark.faults
def test_a_demo_that_is_terminated_in_the_middle_leaves_no_process_behind(tmp_path):
    home = tmp_path / "demo"
    process = demo(home, "--flights", "3000", "--seconds", "300")
    try:
        assert process.stdout is not None
        began = time.monotonic()
        for line in process.stdout:
            if "sessions, one a carrier" in line:
                break
            assert time.monotonic() - began < BEGIN_S
        members = processes_that_name(home)
        assert len(members) >= 4, "the members and what started them"
        process.terminate()
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert errors == ""
    assert processes_that_name(home) == []
