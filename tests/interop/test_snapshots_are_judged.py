"""A real node starts from a snapshot that our member took, and real tools read it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import ClusterClient, ClusteredService, ClusterNode
from cluster.reader import LogReader
from tests.interop.aeron import archive_tool, cluster_tool, entries_as_told, real_node, told_by
from tests.node.processes import await_that, run

pytestmark = pytest.mark.interop
BASE_PORT = 24500
FAR_AWAY = 4_000_000_000_000  # cluster time of a timer that is not to fire
STATE = (12_345).to_bytes(8, "little") + (67_890).to_bytes(8, "little")


class Stateful(ClusteredService):
    """Sets a timer, asks its cluster for a message, and saves a state of the real recorder's form."""

    def on_start(self, cluster: Any, snapshot_image: Any) -> None:
        self._cluster = cluster
        self.restored = [] if snapshot_image is None else [bytes(record) for record in snapshot_image]

    def on_session_message(self, session: Any, timestamp: int, buffer: memoryview) -> None:
        if bytes(buffer) == b"timer":
            assert self._cluster.schedule_timer(77, FAR_AWAY)

    def on_take_snapshot(self, snapshot_publication: Any) -> None:
        snapshot_publication.offer(STATE)


def keys(folder: Path) -> dict[str, Any]:
    member = f"0,localhost:{BASE_PORT},localhost:{BASE_PORT + 1},localhost:{BASE_PORT + 2}"
    return {
        "members": [f"{member},localhost:{BASE_PORT + 3},localhost:{BASE_PORT + 4}"],
        "dir": str(folder / "member-0"),
        "services": [f"{__name__}:Stateful"],
        "tcp_ingress": "none",
    }


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """A stopped member's directory and where its snapshot is: a session is open in it, a timer set."""
    folder = tmp_path_factory.mktemp("snapshot")
    with ClusterNode.launch(**keys(folder)) as node:
        await_that(lambda: node.is_leader, "a leader")
        with ClusterClient.connect(f"0=ipc:{node.config.ipc_path}") as client:
            for payload in [b"before %d" % number for number in range(50)] + [b"timer"]:
                while client.offer(payload) < 0:
                    client.poll_egress()
            client.await_committed()
            taken = run("tool", "snapshot", "--dir", str(node.config.path))
            assert taken.returncode == 0, taken.stderr
            for number in range(30):
                while client.offer(b"behind %d" % number) < 0:
                    client.poll_egress()
            client.await_committed()
        directory = node.config.path
    plan = json.loads(run("tool", "recovery-plan", "--json", "--dir", str(directory)).stdout)
    yield directory, plan["snapshots"][0]["logPosition"]


def test_the_real_tools_find_the_snapshot_and_no_fault_in_its_recordings(ours):
    directory, position = ours
    said = cluster_tool(directory / "cluster", "recording-log")
    assert said.status == 0, said.err
    entries = [entry for entry in re.findall(r"Entry\{([^}]*)\}", said.out) if "type=SNAPSHOT" in entry]
    assert len(entries) == 2
    assert all(f"logPosition={position}," in entry and "isValid=true" in entry for entry in entries)
    assert ["serviceId=-1" in entry for entry in entries] == [False, True]

    said = archive_tool(directory / "archive", "verify", "-a")
    assert (said.status, said.out.split("\n")[:3]) == (0, [f"(recordingId={i}) OK" for i in range(3)]), (
        said.err
    )
    said = archive_tool(directory / "archive", "describe")
    assert "streamId=106|" in said.out and "streamId=107|" in said.out


@pytest.mark.conformance("S-137", "S-142")
def test_a_real_node_starts_from_it_and_replays_the_log_behind_it(ours, tmp_path):
    directory, position = ours
    with LogReader.open(dir=str(directory)) as reader:
        behind = entries_as_told(reader.entries(from_position=position))
    assert sum(callback == "sessionMessage" for callback, *_ in behind) == 30
    record = tmp_path / "record.jsonl"
    options = ["--base-port", "24600", "--service", "record", "--record", str(record)]
    with real_node(directory, *options) as node:
        described = cluster_tool(directory / "cluster", "describe-latest-cm-snapshot")
        node.stop()
        assert "Exception" not in node.errors()
    start, told = told_by(record)
    assert start == position
    assert told[: len(behind)] == behind
    first = json.loads(record.read_text().splitlines()[0])
    assert (first["snapshot"], first["sessions"]) == ([STATE.hex()], [1])

    assert described.status == 0, described.err
    assert "Cluster Session: clusterSessionId=1 " in described.out
    assert f"Timer: correlationId=77 deadline={FAR_AWAY}" in described.out
    assert "Consensus Module Snapshot End: memberId=0" in described.out
