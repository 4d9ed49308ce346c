"""Members whose states have come apart are found by the snapshots that they take at one place in the log."""

from __future__ import annotations

import re

import pytest

from cluster.archive.snapshot_archive import SnapshotArchive
from cluster.protocol.link import PartDigest, SnapshotDigest
from tests.member.cluster_steps import a_busy_cluster, send, take_snapshot
from tests.member.in_memory.cluster import SECOND, SimulatedCluster

APART = re.compile(
    r"error: consensus module: (.+) has come apart: its snapshot at position (\d+) on member (\d) "
    r"is not that of member (\d), the leader"
)


def told(cluster: SimulatedCluster) -> list[tuple[str, str, str, str]]:
    """(what, position, member, leader) of each difference that was told."""
    return [match.groups() for event in cluster.events if (match := APART.search(event))]


def test_members_with_one_state_have_one_digest():
    cluster = a_busy_cluster()
    take_snapshot(cluster)
    send(cluster, 20)
    take_snapshot(cluster)
    cluster.run(1 * SECOND)
    assert told(cluster) == []


@pytest.mark.conformance("S-184")
@pytest.mark.parametrize("is_leader", [False, True])
def test_a_service_whose_state_differs_on_one_member_is_told_and_goes_on(is_leader):
    cluster = a_busy_cluster()
    odd = cluster.leader if is_leader else cluster.followers[0]
    odd.service.applied.append(b"only here")
    errors = cluster.leader.counters.errors.get()
    position = str(take_snapshot(cluster))
    cluster.run(1 * SECOND)

    leader = str(cluster.leader.member_id)
    others = cluster.followers if is_leader else [odd]
    assert sorted(told(cluster)) == sorted(
        ("service 0", position, str(member.member_id), leader) for member in others
    )
    assert cluster.leader.counters.errors.get() == errors + len(others)
    send(cluster, 5)
    assert cluster.leader.counters.election_count.get() == 1


def test_a_service_that_asks_not_to_be_compared_is_not():
    cluster = a_busy_cluster()
    cluster.followers[0].service.applied.append(b"only here")
    for member in cluster.members:
        member.service_agent._callbacks.compares_snapshots = False
    take_snapshot(cluster)
    cluster.run(1 * SECOND)
    assert told(cluster) == []


def test_a_module_whose_state_differs_is_told():
    cluster = a_busy_cluster()
    odd = cluster.followers[0]
    odd.timers.schedule(77, 1 << 60)
    position = str(take_snapshot(cluster))
    cluster.run(1 * SECOND)
    ids = str(odd.member_id), str(cluster.leader.member_id)
    assert told(cluster) == [("the consensus module", position, *ids)]


def test_digests_are_compared_whoever_is_first_and_only_of_one_position():
    cluster = a_busy_cluster()
    leader = cluster.leader
    other = cluster.followers[0].member_id

    def report(position: int, digest: int) -> None:
        leader.snapshot_digests.on_reported(other, SnapshotDigest(position, (PartDigest(-1, digest),)))

    report(4096, 1)
    own, module = leader.member_id, (PartDigest(-1, 2),)
    leader.snapshot_digests.on_taken(4096, module, own)
    assert [difference[1] for difference in told(cluster)] == ["4096"]
    report(8192, 1)
    leader.snapshot_digests.on_taken(4096 + 32, module, own)
    assert len(told(cluster)) == 1
    leader.snapshot_digests.on_taken(8192, module, own)
    report(8192, 2)
    assert len(told(cluster)) == 2


def test_a_digest_is_of_the_messages_and_not_of_the_frames_that_they_are_in():
    archive = a_busy_cluster().leader.archive
    digests = []
    for mtu, messages in ((1408, (b"a" * 3000, b"b")), (4096, (b"a" * 3000, b"b")), (4096, (b"a" * 3001,))):
        publication = SnapshotArchive(archive, term_length=64 * 1024, mtu=mtu).create(106, 0, 64)
        for message in messages:
            publication.offer(message)
        digests.append(publication.digest)
    assert digests[0] == digests[1] != digests[2]
