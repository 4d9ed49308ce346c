"""``cluster tool lanes``: what the log in a directory has of lanes, and what a snapshot before it says."""

import errno
import json
from contextlib import contextmanager

import pytest

from cluster.protocol.lane import REGISTRATION, Lane, LanePrincipal
from cluster.protocol.log import SessionOpenEvent
from cluster.protocol.snapshot import SnapshotLane, SnapshotSession
from cluster.reader.lanes import LaneCount
from cluster.reader.served_member import ServedMember
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.grpc_gateway import GrpcGateway
from tests.archive.logs import T0, a_log
from tests.archive.members import write_member

GROUP = "tool"


def opens(log, session_id, lane):
    principal = LanePrincipal(b"alice", lane, 1_000_000).encode()
    log.append(SessionOpenEvent(0, 1, session_id, log._tick(), 102, "channel", principal).encode())


@pytest.fixture
def log():
    """Three rows of two sessions in lane 3, one of them fragmented; two rows of another, which is open."""
    log = a_log(20)
    opens(log, 5, Lane("orders", 3, 17))
    log.message(b"row 0", 5)
    log.message(bytes(5000), 5)
    log.close_session(5)
    opens(log, 6, Lane("orders", 3, 17))
    log.message(b"row 2", 6)
    log.close_session(6)
    opens(log, 7, Lane("orders", REGISTRATION, 16, partitions=4))
    log.close_session(7)
    opens(log, 8, Lane("orders", 1, 18))
    log.message(b"row 0", 8)
    log.message(b"row 1", 8)
    return log


@pytest.mark.conformance("S-185", "S-189")
def test_lanes_are_shown_with_their_rows_by_application_and_partition(run, tmp_path, log):
    write_member(tmp_path, log)

    status, out, err = run("lanes", "--dir", tmp_path)
    assert (status, err) == (0, "")
    whose = f"openedAt={log.time - 2} principal=alice"
    assert out.splitlines() == [
        f"application=orders partition=-1 batch=16 partitions=4 sessionId=-1 {whose}",
        f"application=orders partition=1 batch=18 rows=2 sessionId=8 {whose}",
        f"application=orders partition=3 batch=17 rows=3 sessionId=-1 {whose}",
    ]
    _, out, _ = run("lanes", "--dir", tmp_path, "--json")
    assert json.loads(out)[1] == {
        "application": "orders",
        "partition": 1,
        "batch": 18,
        "rows": 2,
        "sessionId": 8,
        "openedAt": log.time - 2,
        "principal": "alice",
    }


@contextmanager
def served(directory):
    """The endpoint of a member over gRPC."""

    def open_log():
        return ServedMember(
            cluster_dir=str(directory / "cluster"),
            archive_dir=str(directory / "archive"),
            aeron_dir=str(directory / "driver"),
            cluster_id=0,
            member_id=0,
        )

    def no_session(*_):
        raise ConnectionRefusedError(errno.ECONNREFUSED, "there are no sessions here")

    gateway = GrpcGateway(Endpoint(Medium.GRPC, "127.0.0.1", 0), no_session, open_log, 1 << 20)
    try:
        yield f"0={gateway.start()}"
    finally:
        gateway.stop()


def test_over_endpoints_the_lanes_are_the_same(run, tmp_path, log):
    write_member(tmp_path, log)
    _, there, _ = run("lanes", "--dir", tmp_path)
    with served(tmp_path) as endpoints:
        assert run("lanes", "--endpoints", endpoints) == (0, there, "")
    assert len(there.splitlines()) == 3


def test_over_endpoints_a_log_without_its_beginning_takes_a_member_with_a_snapshot(
    run, tmp_path, monkeypatch, log
):
    write_member(tmp_path, log)
    monkeypatch.setattr("cluster.reader.remote.RemoteLog.start_position", 1024)
    with served(tmp_path) as endpoints:
        status, out, err = run("lanes", "--endpoints", endpoints)
    assert (status, out) == (1, "")
    assert err.startswith("no member answers: 127.0.0.1:")
    assert err.endswith("UNAVAILABLE: the member does not answer: there are no sessions here\n")


def test_a_log_without_lanes_has_none(run, tmp_path):
    write_member(tmp_path, a_log())

    assert run("lanes", "--dir", tmp_path, "--json") == (0, "[]\n", "")


@pytest.mark.conformance("S-191")
def test_the_log_goes_on_from_what_a_snapshot_says():
    count = LaneCount()
    lane = SnapshotLane(3, 0, 17, 10, 64, 64, 5, 6, T0, b"orders", b"alice")
    count.load([SnapshotSession(6, 4, 640, b"").encode(), lane.encode()], 960)
    log = a_log(0)
    log.message(b"row 14", 6)
    log.close_session(6)
    count.take(960, log.frames().copy())

    (found,) = count.lanes()
    assert (found.rows, found.holder_session_id) == (15, -1)
