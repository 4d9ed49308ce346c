"""Announcements of standbys: what a member records of them, what it refuses, and what it fetches."""

import re

import pytest

from cluster.member.disk import standby_snapshots
from cluster.protocol.backup import StandbySnapshot, StandbySnapshotRecording
from cluster.protocol.enums import EventCode, NodeControlToggle
from cluster.protocol.recording_log import SNAPSHOT, STANDBY_SNAPSHOT
from cluster.protocol.versions import CLIENT_PROTOCOL_VERSION
from tests.member.asker import Asker
from tests.member.cluster_steps import a_busy_cluster, send
from tests.member.in_memory.cluster import MS

ENDPOINT = "10.0.9.1:9100"


def an_accepting_cluster():
    return a_busy_cluster(accept_standby_snapshots=True)


def announcement(position, *, term=0, base=0, endpoint=ENDPOINT, first_id=10, service_ids=(0, -1)):
    recordings = [
        StandbySnapshotRecording(first_id + index, term, base, position, 7, service_id, endpoint)
        for index, service_id in enumerate(service_ids)
    ]
    return StandbySnapshot(9, CLIENT_PROTOCOL_VERSION, 108, tuple(recordings), "standby")


def announced(cluster, member, message):
    """What the member answers; it closes the connection."""
    asker = Asker(member).asks(message)
    cluster.run(100 * MS)
    assert asker.is_closed
    return asker.answers


def recorded(member):
    return [
        (entry.recording_id, entry.log_position, entry.service_id, entry.archive_endpoint)
        for entry in member.recording_log.entries
        if entry.is_valid and entry.entry_type is STANDBY_SNAPSHOT
    ]


@pytest.mark.conformance("C-314", "C-334")
def test_a_snapshot_is_recorded_once_the_log_reaches_it_and_no_member_starts_from_it():
    cluster = an_accepting_cluster()
    position = cluster.leader.commit_position
    ahead = position + 3_200
    for member in cluster.members:
        assert announced(cluster, member, announcement(position)) == []
        assert announced(cluster, member, announcement(ahead, first_id=20)) == []
        expected = [(10, position, 0, ENDPOINT), (11, position, -1, ENDPOINT)]
        assert recorded(member) == expected
        counter = member.counters.standby_snapshots_received
        assert counter.get() == 1
        assert announced(cluster, member, announcement(position)) == [], "it is known"
        assert (recorded(member), counter.get()) == (expected, 1)
    send(cluster, 40)
    cluster.run(100 * MS)
    for member in cluster.members:
        assert recorded(member)[2:] == [(20, ahead, 0, ENDPOINT), (21, ahead, -1, ENDPOINT)]
        assert member.recording_log.latest_snapshot() is None
    follower = cluster.followers[0]
    follower.kill()
    follower.start()
    assert follower.processed_position == 0
    assert len(recorded(follower)) == 4


def test_a_standby_that_has_lost_its_directory_replaces_what_it_announced():
    cluster = an_accepting_cluster()
    position, leader = cluster.leader.commit_position, cluster.leader
    announced(cluster, leader, announcement(position))
    announced(cluster, leader, announcement(position, first_id=3))
    assert recorded(leader) == [(3, position, 0, ENDPOINT), (4, position, -1, ENDPOINT)]
    announced(cluster, leader, announcement(position - 32, first_id=5))
    assert len(recorded(leader)) == 2, "an older one is of no use"


@pytest.mark.conformance("C-333")
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"term": 5}, "of term 5: the log has no such term"),
        ({"base": 32}, "the term begins at 0, and not at 32"),
        ({"position": 33}, "expected a multiple of 32"),
        ({"position": -32}, "expected a multiple of 32"),
        ({"term": -1}, "expected a multiple of 32"),
        ({"service_ids": (-1,)}, r"a snapshot of services \[-1\], expected \[-1, 0\]"),
        ({"service_ids": ()}, r"a snapshot of services \[\], expected"),
        ({"service_ids": (0, 0, -1)}, r"a snapshot of services \[-1, 0, 0\]"),
        ({"first_id": -1}, "recording -1, expected an id of at least 0"),
        ({"endpoint": ""}, "archive endpoint '': expected host:port"),
        ({"endpoint": "nowhere"}, "archive endpoint 'nowhere': expected host:port"),
        ({"endpoint": "ipc:/etc/passwd"}, "expected host:port, not a file"),
    ],
)
def test_what_is_no_snapshot_of_this_log_is_refused_and_leaves_nothing(change, why):
    cluster = an_accepting_cluster()
    member = cluster.followers[0]
    [event] = announced(cluster, member, announcement(**{"position": member.commit_position, **change}))
    assert event.code is EventCode.ERROR
    assert re.search(why, event.detail), event.detail
    assert recorded(member) == []


def test_recordings_of_two_snapshots_are_refused():
    cluster = an_accepting_cluster()
    position = cluster.leader.commit_position
    service, module = announcement(position).snapshots
    for other in (module.replace(log_position=position - 32), module.replace(archive_endpoint="a:1")):
        message = announcement(position).replace(snapshots=(service, other))
        [event] = announced(cluster, cluster.leader, message)
        assert "recordings of two snapshots" in event.detail


def test_a_snapshot_ahead_of_the_log_that_does_not_fit_it_then_is_told_and_not_recorded():
    cluster = an_accepting_cluster()
    leader = cluster.leader
    announced(cluster, leader, announcement(leader.commit_position + 320, term=7))
    errors = leader.counters.errors.get()
    send(cluster, 10)
    cluster.run(100 * MS)
    assert recorded(leader) == []
    assert leader.counters.errors.get() == errors + 1


def test_so_many_wait_and_so_many_standbys_are_named_at_most(monkeypatch):
    monkeypatch.setattr(standby_snapshots, "ANNOUNCED_MAX", 2)
    monkeypatch.setattr(standby_snapshots, "STANDBYS_MAX", 2)
    cluster = an_accepting_cluster()
    leader = cluster.leader
    position = leader.commit_position
    for number in range(2):
        assert announced(cluster, leader, announcement(position, endpoint=f"a:{number + 1}")) == []
    [event] = announced(cluster, leader, announcement(position, endpoint="a:3"))
    assert event.detail == "recording.log names 2 standbys, as many as it may"
    for number in range(2):
        ahead = announcement(position + 3_200 * (number + 1), endpoint="a:1")
        assert announced(cluster, leader, ahead) == []
    [event] = announced(cluster, leader, announcement(position + 32_000, endpoint="a:1"))
    assert event.detail.startswith("2 standby snapshots wait for the log")


@pytest.mark.conformance("C-310")
def test_without_a_newer_snapshot_of_a_standby_nothing_is_replicated():
    cluster = an_accepting_cluster()
    leader = cluster.leader
    toggle = leader.counters.node_control_toggle
    errors = leader.counters.errors.get()
    toggle.set(NodeControlToggle.REPLICATE_STANDBY_SNAPSHOT)
    cluster.run(100 * MS)
    assert toggle.get() == NodeControlToggle.NEUTRAL
    assert leader.counters.errors.get() == errors + 1
    assert not [entry for entry in leader.recording_log.entries if entry.entry_type is SNAPSHOT]
