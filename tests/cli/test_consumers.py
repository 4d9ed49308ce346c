"""``cluster tool consumers``: what the log says of consumer groups, and a snapshot of those before it."""

import json

import pytest

from cluster.protocol.consumer import Consumer, ConsumerPrincipal
from cluster.protocol.log import SessionOpenEvent
from cluster.protocol.snapshot import SnapshotConsumer
from cluster.reader.consumers import ConsumerCount
from tests.archive.logs import a_log
from tests.archive.members import write_member

GROUP = "tool"


def reports(log, session_id, group, position):
    principal = ConsumerPrincipal(b"alice", Consumer(group, position), 1_000_000).encode()
    log.append(SessionOpenEvent(0, 1, session_id, log._tick(), 102, "channel", principal).encode())
    log.close_session(session_id)


@pytest.fixture
def log():
    log = a_log(20)
    reports(log, 5, "billing", 64)
    log.message(bytes(5000), 1)
    reports(log, 6, "audit", 128)
    reports(log, 7, "billing", 1024)
    return log


def test_groups_are_shown_with_what_lies_behind_them(run, tmp_path, log):
    write_member(tmp_path, log)
    end = log.position

    status, out, err = run("consumers", "--dir", tmp_path)
    assert (status, err) == (0, "")
    audit, billing = out.splitlines()
    assert audit.startswith(f"group=audit position=128 bytesBehind={end - 128} reportedAt=")
    assert billing.startswith(f"group=billing position=1024 bytesBehind={end - 1024} reportedAt=")
    assert billing.endswith(" principal=alice")

    _, out, _ = run("consumers", "--dir", tmp_path, "--json")
    found = json.loads(out)
    assert [(group["group"], group["position"]) for group in found] == [("audit", 128), ("billing", 1024)]


def test_a_log_without_reports_has_no_groups_and_no_lanes(run, tmp_path):
    write_member(tmp_path, a_log())

    assert run("consumers", "--dir", tmp_path, "--json") == (0, "[]\n", "")
    assert run("consumers", "--dir", tmp_path) == (0, "no consumer groups\n", "")
    assert run("lanes", "--dir", tmp_path) == (0, "no lanes\n", "")


def test_one_of_directory_and_endpoints_is_to_be_given(run):
    status, _, err = run("consumers", "--dir", ".", "--endpoints", "localhost:9000")
    assert status == 2
    assert "give either --dir or --endpoints" in err


def test_a_snapshot_says_what_groups_were_before_the_log_begins():
    count = ConsumerCount()
    count.load([SnapshotConsumer(640, 1000, 5000, b"billing", b"alice").encode()], 4096)

    assert [(group.group, group.position) for group in count.groups()] == [(b"billing", 640)]
