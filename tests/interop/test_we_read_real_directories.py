"""What real nodes wrote, whatever their settings, running or not, reads as their services were told it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from cluster.cli.main import main
from cluster.log.checksum import Checksum
from cluster.reader import LogReader
from tests.interop.aeron import archive_tool, cluster_tool, entries_as_told, real_node, told_by, workload

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
        assert len(read) == len(told)
    capsys.readouterr()
    _say_the_same(directory, capsys)


def _say_the_same(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Our tools print what the real ones print, whatever the directory."""
    recording_log = cluster_tool(directory / "cluster", "recording-log").out
    assert main(["tool", "recording-log", "--dir", str(directory)]) == 0
    ours = capsys.readouterr().out.splitlines()
    assert all(line in recording_log for line in ours)
    assert recording_log.count("Entry{") == len(ours)

    described = cluster_tool(directory / "cluster", "describe").out
    assert main(["tool", "describe", "--dir", str(directory)]) == 0
    ours = capsys.readouterr().out.splitlines()
    headers = [line.split("):", 1)[1] for line in ours if line.startswith("[MarkFileHeader]")]
    assert len(headers) >= 2
    assert all(header in described for header in headers)

    described = archive_tool(directory / "archive", "describe").out
    assert main(["archive", "describe", "--dir", str(directory)]) == 0
    ours = capsys.readouterr().out.splitlines()
    descriptors = [line.split("):", 1)[1] for line in ours if line.startswith("[RecordingDescriptor]")]
    assert descriptors
    assert all(descriptor in described for descriptor in descriptors)
