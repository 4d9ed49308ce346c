"""Snapshots of a running member, as its operator takes them with ``cluster tool``."""

from __future__ import annotations

import json
import shutil

import pytest

from cluster import ClusterClient, ClusteredService, ClusterNode, DataLoss, LogReader
from cluster.cli.main import main
from cluster.errors import OtherMembers
from tests.node.processes import await_that, fill, free_base_port, keys_of, run, tool
from tests.reader.real import a_copy, remove_unpacked

SERVICES = [f"{__name__}:Remembering"]


class Remembering(ClusteredService):
    """Keeps every message, in one record of its snapshot."""

    made: list[Remembering] = []

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.restored: list[bytes] | None = None
        Remembering.made.append(self)

    def on_start(self, cluster, snapshot_image):
        if snapshot_image is not None:
            self.restored = [bytes(item) for item in json.loads(next(iter(snapshot_image)))]
            self.messages = list(self.restored)

    def on_take_snapshot(self, snapshot_publication):
        snapshot_publication.offer(json.dumps([list(m) for m in self.messages]).encode())

    def on_session_message(self, session, timestamp, buffer):
        self.messages.append(bytes(buffer))


def send(node, *payloads):
    with ClusterClient.connect(f"0=ipc:{node.config.ipc_path}") as client:
        for payload in payloads:
            while client.offer(payload) < 0:
                client.poll_egress()
        client.await_committed()


@pytest.mark.conformance("S-74", "S-132", "S-142")
def test_a_member_starts_again_from_the_snapshot_that_its_operator_had_taken(tmp_path):
    keys = keys_of(tmp_path, services=SERVICES, service_mode="inline")
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "a leader")
        send(node, b"one", b"two")
        taken = tool(node, "snapshot")
        assert (taken.returncode, taken.stdout) == (0, "[0] SNAPSHOT completed\n"), taken.stderr
        send(node, b"three")
        described = tool(node, "describe-latest-cm-snapshot", "--json")
        names = [record["record"] for record in json.loads(described.stdout)["records"]]
        assert names[0] == "SnapshotMarker" and names[-1] == "SnapshotChecksum"
    with ClusterNode.launch(**keys) as node:
        service = Remembering.made[-1]
        await_that(lambda: service.messages == [b"one", b"two", b"three"], "the message behind the snapshot")
        assert service.restored == [b"one", b"two"]
        plan = json.loads(tool(node, "recovery-plan", "--json").stdout)
        assert [snapshot["serviceId"] for snapshot in plan["snapshots"]] == [-1, 0]


@pytest.mark.conformance("S-133", "S-135")
def test_a_suspended_cluster_takes_no_snapshot_and_goes_on_when_it_is_resumed(tmp_path):
    with ClusterNode.launch(**keys_of(tmp_path, services=SERVICES, service_mode="inline")) as node:
        await_that(lambda: node.is_leader, "a leader")
        assert tool(node, "resume").stderr == "member 0 is ACTIVE, expected SUSPENDED\n"
        assert tool(node, "suspend").stdout == "[0] SUSPEND completed\n"
        refused = tool(node, "snapshot")
        assert (refused.returncode, refused.stderr) == (1, "member 0 is SUSPENDED, expected ACTIVE\n")
        assert tool(node, "shutdown").returncode == tool(node, "abort").returncode == 1
        assert tool(node, "resume").returncode == 0
        assert tool(node, "snapshot", "--json").returncode == 0


def test_a_wiped_member_is_filled_again_and_started_again_from_the_others_snapshot(tmp_path):
    port = free_base_port(ports=30)
    keys = {
        "members": [
            f"{i},127.0.0.1:{port + 10 * i}" + f",127.0.0.1:{port + 10 * i + 2}" * 4 for i in range(3)
        ],
        "dir": str(tmp_path / "member-{member_id}"),
        "services": [f"{__name__}:Remembering"],
        "service_mode": "inline",
        "archive_segment_file_length": "1m",
        "log_term_length": "1m",
    }
    nodes = {i: ClusterNode.launch(member_id=i, **keys) for i in range(3)}
    try:
        leader = await_that(lambda: next((n for n in nodes.values() if n.is_leader), None), "a leader")
        sent = [b"%d" % number for number in range(20)]
        send(leader, *sent)
        assert tool(leader, "snapshot").returncode == 0
        member_id = next(i for i in nodes if nodes[i] is not leader)
        wiped = nodes.pop(member_id)
        wiped.close()
        shutil.rmtree(wiped.config.path)
        made = len(Remembering.made)
        nodes[member_id] = ClusterNode.launch(member_id=member_id, **keys)
        send(leader, b"last")
        await_that(lambda: len(Remembering.made) == made + 2, "its second start")
        service = Remembering.made[-1]
        await_that(lambda: service.messages == [*sent, b"last"], "all messages")
        assert service.restored == sent
        assert nodes[member_id].is_running
    finally:
        for node in nodes.values():
            node.close()


@pytest.mark.conformance("S-131")
def test_a_follower_refuses_and_names_its_leader(tmp_path):
    port = free_base_port(ports=30)
    members = [f"{i},127.0.0.1:{port + 10 * i}" + f",127.0.0.1:{port + 10 * i + 2}" * 4 for i in range(3)]
    nodes = [
        ClusterNode.launch(members=members, member_id=i, dir=str(tmp_path / f"member-{i}")) for i in range(3)
    ]
    try:
        leader = await_that(lambda: next((n for n in nodes if n.is_leader), None), "a leader")
        follower = next(node for node in nodes if node is not leader)
        refused = tool(follower, "snapshot")
        expected = f"does not lead: this is for the leader, which is member {leader.config.member_id}\n"
        assert (refused.returncode, refused.stderr.endswith(expected)) == (1, True), refused.stderr
    finally:
        for node in nodes:
            node.close()


@pytest.mark.conformance("S-124")
def test_a_shutdown_ends_the_member_in_order_behind_a_snapshot(tmp_path):
    keys = keys_of(tmp_path, services=SERVICES, service_mode="inline")
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "a leader")
        send(node, b"last")
        assert tool(node, "shutdown").stdout == "[0] SHUTDOWN completed\n"
        refused = tool(node, "snapshot")
        assert (refused.returncode, "the member does not run" in refused.stderr) == (1, True)
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "a leader")
        assert Remembering.made[-1].restored == [b"last"]


@pytest.mark.conformance("S-186")
def test_a_member_drops_what_a_snapshot_stands_for_once_it_is_exported_and_readers_are_told(tmp_path):
    keys = keys_of(
        tmp_path,
        services=["echo"],
        archive_segment_file_length="1m",
        log_term_length="1m",
        log_retained_snapshots=1,
        log_export_watermark=True,
    )

    def segments():
        return sorted(int(path.stem[2:]) for path in (node.config.archive_path).glob("0-*.rec"))

    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "a leader")
        fill(node, 3)
        assert tool(node, "snapshot").returncode == 0
        assert tool(node, "export-watermark", str((1 << 20) + 4096)).returncode == 0
        await_that(lambda: segments()[0] == 1 << 20, "the first segment to go")
        assert tool(node, "export-watermark", str(1 << 40)).returncode == 0
        await_that(lambda: segments()[0] == 3 << 20, "what is before the snapshot to go")
        with LogReader.open(dir=str(node.config.path)) as reader:
            assert reader.start_position == 3 << 20
            identity = reader.identity
            with pytest.raises(DataLoss, match="position 0 was purged, the log begins at 3145728 now"):
                next(iter(reader.entries(from_position=0)))
        endpoints = f"0=ipc:{node.config.ipc_path}"
        with LogReader.open(endpoints=endpoints) as reader:
            assert reader.start_position == 3 << 20
            assert reader.identity == identity
            with pytest.raises(DataLoss, match="position 0 was purged"):
                next(iter(reader.entries(from_position=0)))
        verified = run("archive", "verify", "--dir", str(node.config.path), "--all")
        assert verified.returncode == 0, verified.stderr
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "a leader, from snapshot and the rest of the log")
        fill(node, 1)


class Replaying(ClusteredService):
    """Notes what it is told."""

    made: list[Replaying] = []

    def __init__(self) -> None:
        Replaying.made.append(self)
        self.restored: list[bytes] = []
        self.positions: list[int] = []

    def on_start(self, cluster, snapshot_image):
        self._cluster = cluster
        self.restored = [] if snapshot_image is None else [bytes(record) for record in snapshot_image]
        self.sessions = [session.id for session in cluster.client_sessions()]

    def on_session_message(self, session, timestamp, buffer):
        self.positions.append(self._cluster.log_position())


@pytest.fixture
def real_directory(tmp_path):
    yield a_copy(tmp_path)
    remove_unpacked()


def test_our_member_goes_on_from_a_directory_and_a_snapshot_of_real_aeron(tmp_path, real_directory):
    keys = keys_of(
        tmp_path,
        dir=str(real_directory),
        services=[f"{__name__}:Replaying"],
        service_mode="inline",
        member_id=0,
    )
    with pytest.raises(OtherMembers, match="but members has 0 alone"), ClusterNode.launch(**keys):
        raise AssertionError("it was a member of three")
    words = ("accept-data-loss", "--dir", str(real_directory), "--alone", "--member", "0")
    assert main(["tool", *words]) == 0
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "a leader")
        service = Replaying.made[-1]
        assert service.restored == [(411).to_bytes(8, "little")]
        assert service.sessions
        assert min(service.positions) > 139_424
        assert tool(node, "snapshot").returncode == 0
