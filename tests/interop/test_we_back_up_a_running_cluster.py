"""Three real members are copied by our backup over their own medium; real tools accept its directory."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.archive.files import OsFiles
from cluster.archive.recording_log import RecordingLog
from cluster.node.backup_config import BackupConfig
from cluster.node.backup_process import BackupProcess
from cluster.reader import LogReader
from tests.interop.aeron import (
    START_SECONDS,
    archive_tool,
    cluster_tool,
    media_driver,
    real_cluster,
    workload,
)

pytestmark = [pytest.mark.interop, pytest.mark.slow]
PORT = 25400
CONSENSUS = ",".join(f"localhost:{PORT + 100 * member + 3}" for member in range(3))
OPTIONS = [
    *("--base-port", str(PORT), "--term-length", "64k", "--segment-length", "64k"),
    *("--heartbeat-timeout", "2s", "--heartbeat-interval", "100ms", "--session-timeout", "2s"),
]
WALK = ["--members", "3", "--messages", "150", "--seed", "7", *OPTIONS]


@contextmanager
def backup(directory: Path, aeron_dir: Path) -> Iterator[BackupProcess]:
    """Our backup, which runs in a thread."""
    config = BackupConfig(
        dir=str(directory),
        consensus_endpoints=CONSENSUS,
        aeron_dir=str(aeron_dir),
        cool_down_interval="500ms",
        interval="2s",
    )
    with BackupProcess(config) as process:
        thread = threading.Thread(target=process.run)
        thread.start()
        try:
            yield process
        finally:
            process.stop()
            thread.join()


def until(what: Callable[[], bool], directory: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not what():
        assert time.monotonic() < deadline, (directory / "backup.log").read_text()
        time.sleep(0.1)


@pytest.mark.timeout(240)
def test_a_backup_of_a_running_cluster_has_its_log_and_snapshots_and_real_tools_accept_it(tmp_path):
    copy = tmp_path / "copy"

    def snapshots() -> list[int]:
        log = RecordingLog.open(str(copy / "cluster"), files=OsFiles(), write=False)
        return [entry.log_position for entry in log.entries if entry.service_id >= 0]

    with media_driver() as aeron_dir, real_cluster(tmp_path, "--service", "script", *OPTIONS) as nodes:
        workload(tmp_path, *WALK, "--phase", "1")
        assert any(cluster_tool(node.directory / "cluster", "snapshot").status == 0 for node in nodes)
        with backup(copy, aeron_dir) as process:
            until(lambda: "is level at" in (copy / "backup.log").read_text(), copy)
            workload(tmp_path, *WALK, "--phase", "2")
            leader = next(
                node for node in nodes if cluster_tool(node.directory / "cluster", "is-leader").status == 0
            )
            leader.stop(signal.SIGKILL)
            left = [node for node in nodes if node is not leader]
            workload(tmp_path, *WALK, "--phase", "3")
            with LogReader.open(dir=str(left[0].directory)) as reader:
                end = reader.commit_position()
            until(lambda: process.agent.position >= end, copy)
        with backup(copy, aeron_dir) as process:
            assert any(cluster_tool(node.directory / "cluster", "snapshot").status == 0 for node in left)
            until(lambda: len(set(snapshots())) == 2, copy)
            end = process.agent.position
    with LogReader.open(dir=str(copy)) as reader, LogReader.open(dir=str(left[0].directory)) as member:
        copied = list(reader.entries(0, end))
        assert copied == list(member.entries(0, end))
    assert len({entry["leadershipTermId"] for entry in copied}) > 1
    assert cluster_tool(copy / "cluster", "recording-log").out.count("type=SNAPSHOT, isValid=true") == 4
    verified = archive_tool(copy / "archive", "verify", "-a")
    assert verified.out.split() == [f"(recordingId={i // 2})" if i % 2 == 0 else "OK" for i in range(10)]
