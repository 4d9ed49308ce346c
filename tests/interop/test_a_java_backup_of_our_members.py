"""A real ClusterBackup copies three of our members over the network: their archives replay to its own."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cluster import ClusterClient, LogReader
from cluster.archive.files import OsFiles
from cluster.archive.recording_log import RecordingLog
from cluster.errors import ClusterError
from cluster.protocol.frame import header_at
from cluster.protocol.recording_log import SNAPSHOT
from cluster.reader.recordings import open_recording
from tests.interop.aeron import EACH_VERSION, START_SECONDS, RealNode, archive_tool, media_driver, real_backup
from tests.node.processes import Up, run

pytestmark = pytest.mark.interop


def members(directory: Path, aeron_dir: Path) -> Up:
    """Three whose log has many terms and segments."""
    keys = {
        "archive_control_channel": "aeron:udp",
        "aeron_dir": aeron_dir,
        "log_term_length": "64k",
        "archive_segment_file_length": "128k",
        "leader_heartbeat_timeout": "2s",
        "startup_canvass_timeout": "4s",
    }
    return Up(directory, *(word for key, value in keys.items() for word in ("--set", f"{key}={value}")))


def send(up: Up, count: int) -> None:
    """Messages of up to a few fragments."""
    with ClusterClient.connect(up.endpoints) as client:
        for number in range(count):
            client.send(b"%d:" % number + b"x" * (number * 37 % 3000))
        client.await_committed()


def entries(directory: Path) -> list[dict[str, Any]]:
    with LogReader.open(dir=str(directory)) as reader:
        return list(reader.entries())


def await_level(up: Up, backup: RealNode, copy: Path, member_id: int) -> list[dict[str, Any]]:
    """All entries of a member, once the copy has them."""
    own, copied, why = entries(up.member_dir(member_id)), [], ""
    deadline = time.monotonic() + START_SECONDS
    while len(copied) < len(own):
        assert time.monotonic() < deadline, f"{len(copied)} of {len(own)} {why}: {backup.errors()}"
        time.sleep(0.1)
        try:
            copied = entries(copy)
        except ClusterError as error:  # nothing is there yet
            why = str(error)
    assert copied[: len(own)] == own
    return own


def snapshots(directory: Path) -> list[tuple[int, int, bytes]]:
    """Of each in recording.log its log position, its service, and its recording, without sessions."""
    log = RecordingLog.open(str(directory / "cluster"), files=OsFiles(), write=False)
    log.close()
    found = []
    for entry in log.entries:
        if entry.entry_type is SNAPSHOT and entry.is_valid:
            stored = open_recording(OsFiles(), str(directory / "archive"), entry.recording_id)
            data, at = bytearray(stored.read(stored.start_position, 1 << 20)), 0
            stored.close_readers()
            while at < len(data):
                data[at + 12 : at + 16] = bytes(4)
                at += header_at(data, at).aligned_length
            found.append((entry.log_position, entry.service_id, bytes(data)))
    return found


@pytest.mark.timeout(280)
@pytest.mark.parametrize("version", EACH_VERSION)
def test_it_has_snapshots_and_log_entry_by_entry_through_a_killed_supplier(tmp_path, version):
    copy = tmp_path / "copy"
    with ExitStack() as running:
        aeron_dir = running.enter_context(media_driver(aeron_client_liveness_timeout="2s"))
        up = running.enter_context(members(tmp_path / "ours", aeron_dir))
        leader = up.leader
        follower = (leader + 1) % 3
        send(up, 300)
        taken = run("tool", "snapshot", "--dir", str(up.member_dir(leader)))
        assert taken.returncode == 0, taken.stderr
        send(up, 300)
        consensus = ",".join(f"localhost:{up.base_port + 10 * member + 2}" for member in range(3))
        options = ["--member-id", "3", "--consensus-endpoints", consensus, "--base-port", str(up.base_port)]
        options += ["--term-length", "64k", "--segment-length", "128k", "--source-type", "LEADER"]
        backup = running.enter_context(real_backup(copy, *options, version=version))
        await_level(up, backup, copy, follower)
        send(up, 100)
        own = await_level(up, backup, copy, follower)
        archive = {"aeron_archive": consensus.split(",")[follower], "aeron_dir": str(aeron_dir)}
        with LogReader.open(**archive, recording_id=0) as reader:
            assert list(reader.entries(0, own[-1]["endPosition"])) == own
        os.kill(up.pid(leader), signal.SIGKILL)
        send(up, 100)
        own = await_level(up, backup, copy, follower)
        assert len({entry["leadershipTermId"] for entry in own}) > 1
        assert len(snapshots(copy)) == 2
        assert snapshots(copy) == snapshots(up.member_dir(follower))
    assert archive_tool(copy / "archive", "verify", answer="y\n").status == 0
