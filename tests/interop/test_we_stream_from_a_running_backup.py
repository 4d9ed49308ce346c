"""A stream over a running ClusterBackup's directory advances through leader changes, restarts and purges."""

from __future__ import annotations

import signal
import struct
import time
from contextlib import ExitStack
from typing import Any

import pytest

from cluster.errors import LogPurged
from cluster.media.aeron import Aeron
from cluster.media.aeron_archive import AeronArchive
from cluster.reader import LogReader
from tests.interop.aeron import START_SECONDS, RealNode, cluster_tool, real_backup, real_cluster, workload

pytestmark = [pytest.mark.interop, pytest.mark.slow]
PORT = 25800
OPTIONS = [
    *("--members", "3", "--base-port", str(PORT), "--term-length", "64k", "--segment-length", "64k"),
    *("--heartbeat-timeout", "2s", "--heartbeat-interval", "100ms", "--session-timeout", "2s"),
]
WALK = ["--messages", "150", "--seed", "7", *OPTIONS]
OF_BACKUP = ["--member-id", "3", *OPTIONS]


def purge(backup: RealNode, position: int) -> None:
    """PurgeSegmentsRequest of the log's recording, by a client of the backup's own driver."""
    endpoint = f"localhost:{PORT + 300 + 1}"
    with Aeron.connect(str(backup.aeron_dir)) as aeron, AeronArchive.connect(aeron, endpoint) as archive:
        correlation_id = aeron.next_correlation_id()
        body = struct.pack("<qqqq", archive._session_id, correlation_id, 0, position)
        assert archive._requests.offer(struct.pack("<HHHH", len(body), 55, 101, 12) + body) > 0
        archive._await_response(correlation_id)


@pytest.mark.timeout(280)
def test_a_stream_goes_on_through_a_leader_s_death_a_restart_and_a_purge(tmp_path):
    copy = tmp_path / "copy"
    copied: list[dict[str, Any]] = []

    def await_level(member: RealNode) -> None:
        with LogReader.open(dir=str(member.directory)) as reader:
            end = reader.commit_position()
        deadline = time.monotonic() + START_SECONDS
        while stream.commit_position() < end:
            assert time.monotonic() < deadline, f"at {stream.commit_position()} of {end}: {backup.errors()}"
            time.sleep(0.05)
        assert stream.is_live
        copied.extend(stream.entries(copied[-1]["endPosition"] if copied else 0, stream.commit_position()))

    with ExitStack() as running:
        nodes = running.enter_context(real_cluster(tmp_path, "--service", "script", *OPTIONS[2:]))
        backup = running.enter_context(real_backup(copy, *OF_BACKUP))
        workload(tmp_path, *WALK, "--phase", "1")
        while not (copy / "archive" / "0-0.rec").exists():
            time.sleep(0.05)
        stream = running.enter_context(LogReader.open(dir=str(copy)))
        await_level(nodes[0])

        leader = next(n for n in nodes if cluster_tool(n.directory / "cluster", "is-leader").status == 0)
        leader.stop(signal.SIGKILL)
        left = [node for node in nodes if node is not leader]
        workload(tmp_path, *WALK, "--phase", "2")
        await_level(left[0])
        assert len({entry["leadershipTermId"] for entry in copied}) > 1

        backup.stop()
        assert not stream.is_live
        backup = running.enter_context(real_backup(copy, *OF_BACKUP))
        workload(tmp_path, *WALK, "--phase", "3")
        await_level(left[0])

        purge(backup, 65536)
        assert stream.earliest_position() == 65536
        with pytest.raises(LogPurged):
            list(stream.entries(0, 128))
        workload(tmp_path, *WALK, "--phase", "4")
        await_level(left[0])
        assert stream.warnings == []
    with LogReader.open(dir=str(left[0].directory)) as reader:
        assert copied == list(reader.entries(0, copied[-1]["endPosition"]))
