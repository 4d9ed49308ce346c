"""What real nodes wrote, whatever their settings, running or not, reads as their services were told it."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cluster.cli.main import main
from cluster.log.checksum import Checksum
from cluster.reader import LogReader
from tests.interop.aeron import (
    START_SECONDS,
    archive_tool,
    cluster_tool,
    entries_as_told,
    real_backup,
    real_node,
    told_by,
    workload,
)

pytestmark = pytest.mark.interop
PORT = "24200"

LOGS = {
    "milliseconds, two services": ["--services", "2", "--term-length", "1m", "--segment-length", "4m"],
    "nanoseconds and CRC-32": ["--clock", "ns", "--checksum", "crc32", "--cluster-id", "5"],
    "small segments, large frames and CRC-32C": [
        *("--checksum", "crc32c", "--term-length", "64k", "--segment-length", "64k", "--mtu", "8k")
    ],
}
CHECKSUMS = {
    "nanoseconds and CRC-32": Checksum.CRC_32,
    "small segments, large frames and CRC-32C": Checksum.CRC_32C,
}


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("end", ["orderly", "killed"])
def test_the_log_of_a_real_node_is_read_while_it_runs_and_after(tmp_path, name, end, capsys):
    directory, record = tmp_path / "member-0", tmp_path / "record.jsonl"
    options = ["--base-port", PORT, "--term-length", "256k", "--segment-length", "512k", *LOGS[name]]
    script = ["--service", "script", "--session-timeout", "2s", "--record", str(record)]
    walk = ["--messages", "150", "--seed", "7", *options]
    with real_node(directory, *script, *options) as node:
        workload(tmp_path, *walk, "--phase", "1")
        assert cluster_tool(directory / "cluster", "snapshot").status == 0
        workload(tmp_path, *walk, "--phase", "2")
        with LogReader.open(dir=str(directory)) as reader:
            assert reader.is_live
            assert reader.commit_position() == reader.end_position() > 0
            running = list(reader.entries())
            assert running[-1]["endPosition"] <= reader.commit_position()
        assert main(["tool", "is-leader", "--dir", str(directory)]) == 0
        assert main(["archive", "verify", "--dir", str(directory)]) == 0
        node.stop(signal.SIGKILL if end == "killed" else signal.SIGTERM)

    with LogReader.open(dir=str(directory)) as reader:
        assert not reader.is_live
        assert reader.log.checksum == CHECKSUMS.get(name)
        entries = list(reader.entries())
        assert bool(reader.warnings) == (end == "killed")
    assert entries[: len(running)] == running
    start, told = told_by(record)
    assert start == 0
    read = entries_as_told(iter(entries))
    assert read[: len(told)] == told, "the service was told something else"
    if end == "orderly":
        untold = read[len(told) :]  # its consensus module may sequence once more after its service was closed
        assert all(callback in ("sessionClose", "timer") for callback, *_ in untold), untold
    capsys.readouterr()
    _say_the_same(directory, capsys)


def test_a_stream_over_a_running_backup_advances_through_restarts_of_its_member_and_of_itself(tmp_path):
    """A restarted member leads a new term, and replays to the backup in another session."""
    member, copy = tmp_path / "member-0", tmp_path / "backup"
    options = ["--base-port", "24700", "--term-length", "256k", "--segment-length", "512k"]
    script = ["--service", "script", "--session-timeout", "2s"]
    walk = ["--messages", "100", "--seed", "7", *options]
    copied: list[dict[str, Any]] = []

    def await_level() -> None:
        with LogReader.open(dir=str(member)) as reader:
            end = reader.commit_position()
        deadline = time.monotonic() + START_SECONDS
        while stream.commit_position() < end:
            assert time.monotonic() < deadline, f"at {stream.commit_position()} of {end}: {backup.errors()}"
            time.sleep(0.05)
        assert stream.is_live
        begin = copied[-1]["endPosition"] if copied else 0
        copied.extend(stream.entries(begin))

    with ExitStack() as running:
        node = running.enter_context(real_node(member, *script, *options))
        backup = running.enter_context(real_backup(copy, *options))
        workload(tmp_path, *walk, "--phase", "1")
        while not (copy / "archive" / "0-0.rec").exists():
            time.sleep(0.05)
        stream = running.enter_context(LogReader.open(dir=str(copy)))
        await_level()
        node.stop()
        node = running.enter_context(real_node(member, *script, *options))
        await_level()
        backup.stop()
        backup = running.enter_context(real_backup(copy, *options))
        workload(tmp_path, *walk, "--phase", "2")
        await_level()
        assert stream.warnings == []
        node.stop()
    with LogReader.open(dir=str(member)) as reader:
        assert copied == list(reader.entries(0, copied[-1]["endPosition"]))
    assert {entry.get("leadershipTermId") for entry in copied} >= {0, 1}


def _say_the_same(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Our tools print what the real ones print, whatever the directory."""
    recording_log = cluster_tool(directory / "cluster", "recording-log").out
    assert main(["tool", "recording-log", "--raw", "--dir", str(directory)]) == 0
    ours = capsys.readouterr().out.splitlines()
    assert all(line in recording_log for line in ours)
    assert recording_log.count("Entry{") == len(ours)

    described = cluster_tool(directory / "cluster", "describe").out
    assert main(["tool", "describe", "--raw", "--dir", str(directory)]) == 0
    ours = capsys.readouterr().out.splitlines()
    headers = [line.split("):", 1)[1] for line in ours if line.startswith("[MarkFileHeader]")]
    assert len(headers) >= 2
    assert all(header in described for header in headers)

    described = archive_tool(directory / "archive", "describe").out
    assert main(["archive", "describe", "--raw", "--dir", str(directory)]) == 0
    ours = capsys.readouterr().out.splitlines()
    descriptors = [line.split("):", 1)[1] for line in ours if line.startswith("[RecordingDescriptor]")]
    assert descriptors
    assert all(descriptor in described for descriptor in descriptors)
