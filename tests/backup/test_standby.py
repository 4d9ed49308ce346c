"""A backup that runs the services: they follow as a member's do, and take the Log's snapshots."""

import pytest

from tests.backup.standby_in_memory import StandbyInMemory, records_at, take_standby_snapshot
from tests.member.cluster_steps import a_busy_cluster, send, take_snapshot
from tests.member.in_memory.cluster import SECOND


def is_like_the_members(standby, cluster):
    service = cluster.leader.service
    return (standby.service.applied, standby.service.timers, standby.service.chain) == (
        service.applied,
        service.timers,
        service.chain,
    )


def test_services_follow_the_copied_log_and_nothing_leaves_them():
    cluster = a_busy_cluster()
    standby = StandbyInMemory(cluster)
    standby.await_services()
    assert is_like_the_members(standby, cluster)
    cluster.clients[0].send(b"timer 7")
    cluster.clients[0].send(b"again 0:more")
    cluster.await_settled()
    cluster.run(SECOND)
    send(cluster, 5)
    standby.await_services()
    assert is_like_the_members(standby, cluster)
    assert standby.service.timers == [7] and standby.service.applied.count(b"0:more") == 1
    assert standby.service.cluster.member_id() == -1
    cluster.check()


@pytest.mark.conformance("S-113", "C-298")
def test_at_a_snapshot_for_standbys_the_standby_alone_takes_one_of_the_members_state():
    cluster = a_busy_cluster()
    standby = StandbyInMemory(cluster)
    cluster.clients[0].send(b"timer 9")
    cluster.await_settled()
    standby.await_services()
    position = take_standby_snapshot(standby)
    assert standby.snapshots() == [(0, position), (-1, position)]
    assert all(member.recording_log.latest_snapshot() is None for member in cluster.members)

    leaver = cluster.add_client()
    cluster.await_settled()
    leaver.close()
    cluster.await_settled()
    both = take_snapshot(cluster)
    standby.run_until(lambda: standby.taken[-1] == both)
    leader = cluster.leader
    theirs = records_at(leader.recording_log, leader.life.consensus_module.parts.snapshots.archive, both)
    assert standby.module_snapshot(both) == theirs, "sessions, timers, messages: all that a member has"
    assert not standby.errors


def test_a_standby_that_was_killed_begins_with_its_own_snapshot():
    cluster = a_busy_cluster()
    standby = StandbyInMemory(cluster)
    standby.await_services()
    position = take_standby_snapshot(standby)
    send(cluster, 10)
    standby.await_services()
    standby.kill()
    standby.start()
    standby.await_services()
    assert f"the services begin with the snapshot at {position}" in standby.events
    assert is_like_the_members(standby, cluster)


def test_of_a_snapshot_that_members_and_standby_took_one_is_kept():
    cluster = a_busy_cluster()
    standby = StandbyInMemory(cluster)
    standby.await_services()
    position = take_snapshot(cluster)
    standby.await_query()
    standby.run_until(lambda: standby.taken == [position])
    assert standby.snapshots() == [(0, position), (-1, position)]
