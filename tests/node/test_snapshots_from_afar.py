"""What the begin of a log had, over endpoints, where members have dropped it: from a member's snapshot."""

from contextlib import closing
from pathlib import Path

import pytest

from cluster import ClusterClient, Consumer, Lane, LogReader
from cluster.archive.files import OsFiles
from cluster.errors import ClusterError, LogPurged
from cluster.node.node import ClusterNode
from cluster.reader.remote import RemoteLog
from cluster.reader.snapshots import stored_snapshots
from cluster.transport.endpoint import parse_endpoint
from cluster.transport.log_client import open_log_client
from tests.node.processes import await_that, endpoints_of, fill, keys_of, run, tool


@pytest.fixture(scope="module")
def purged(tmp_path_factory):
    """A member whose log begins behind what lanes and groups had, some of which goes on behind it."""
    keys = keys_of(
        tmp_path_factory.mktemp("purged"),
        services=["echo"],
        archive_segment_file_length="1m",
        log_term_length="1m",
        log_retained_snapshots=1,
        consumer_hold_bytes=0,
    )
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "a leader")
        endpoints = endpoints_of(node, "ipc")
        for application, batch in (("orders", 17), ("trades", 4)):
            with ClusterClient.connect(endpoints, lane=Lane(application, 0, batch)) as client:
                for number in range(3):
                    client.offer(b"row %d" % number)
                client.await_committed()
        for group, position in (("billing", 64), ("audit", 32)):
            ClusterClient.connect(endpoints, consumer=Consumer(group, position)).close()
        fill(node, 3)
        assert tool(node, "snapshot").returncode == 0
        with LogReader.open(dir=str(node.config.path)) as reader:
            await_that(lambda: reader.commit_position() and reader.start_position > 0, "the begin to go")
            start = reader.start_position
        ClusterClient.connect(endpoints, consumer=Consumer("audit", start)).close()
        with ClusterClient.connect(endpoints, lane=Lane("orders", 0, 17)) as client:
            assert client.lane_rows == 3
            client.offer(b"row 3")
            client.await_committed()
        yield node, start


def test_a_member_knows_its_leader_though_the_terms_begin_is_purged(purged):
    """Who leads is told by the member, not read from a log that may be cut."""
    node, _ = purged
    assert run("tool", "is-leader", "--endpoints", endpoints_of(node, "tcp")).returncode == 0
    client = open_log_client(parse_endpoint(f"ipc:{node.config.ipc_path}"), 5)
    assert client.status().leader_member_id == 0
    client.close()


@pytest.mark.parametrize("medium", ["ipc", "tcp", "grpc"])
def test_lanes_and_groups_are_those_that_the_directory_has(purged, medium):
    node, start = purged
    for verb, shown in (
        ("lanes", ("application=orders partition=0 batch=17 rows=4", "application=trades")),
        ("consumers", (f"group=audit position={start} ", "group=billing position=64 ")),
    ):
        there = run("tool", verb, "--endpoints", endpoints_of(node, medium))
        assert (there.returncode, there.stderr) == (0, "")
        assert there.stdout == tool(node, verb).stdout
        for line, begin in zip(there.stdout.splitlines(), shown, strict=True):
            assert line.startswith(begin)


def test_a_group_whose_report_was_dropped_is_known_to_its_reader(purged):
    node, start = purged
    with LogReader.open(endpoints=endpoints_of(node, "ipc"), consumer_group="billing") as reader:
        assert reader.group_position == 64
        with pytest.raises(LogPurged, match=f"position 64 was purged, the log begins at {start}"):
            next(reader.entries())


def test_a_module_snapshot_that_is_damaged_at_its_member_is_refused(purged):
    node, _ = purged
    stored = stored_snapshots(OsFiles(), str(node.config.path))
    recording_id = next(snapshot.recording_id for snapshot in stored if snapshot.service_id < 0)
    (segment,) = Path(node.config.archive_path).glob(f"{recording_id}-*.rec")
    whole, where = segment.read_bytes(), rf"{recording_id}-0\.rec at offset 96"
    try:
        segment.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
        with closing(RemoteLog(endpoints_of(node, "ipc"))) as log, pytest.raises(ClusterError, match=where):
            log.module_snapshot()
    finally:
        segment.write_bytes(whole)
