"""Snapshots that leaders take by themselves: when the log has grown so far, or the last one is so old."""

import pytest

from cluster.protocol.enums import ClusterControlToggle, ConsensusModuleState
from cluster.protocol.log import ClusterActionRequest
from cluster.testing.world import SECOND
from tests.member.cluster_steps import a_cluster, entries, send, set_away, take_snapshot, toggle

EVERY_BYTES = 16 * 1024
# A client that keeps alive writes nothing into the log.
LASTING = {"session_timeout_ns": 1_000 * SECOND}


def positions(member):
    """Of the module's snapshots."""
    return [e.log_position for e in member.recording_log.entries if e.service_id == -1 and e.log_position > 0
            and e.entry_type.name == "SNAPSHOT"]  # fmt: skip


def fill(cluster):
    """Write what is less than EVERY_BYTES, and more than half of it."""
    send(cluster, 40)
    cluster.run(SECOND)


def a_busy(**settings):
    cluster = a_cluster(**LASTING, **settings)
    cluster.add_client()
    return cluster


@pytest.mark.parametrize("members", [1, 3])
def test_one_is_taken_on_all_members_whenever_the_log_has_grown_so_far(members):
    cluster = a_busy(members=members, snapshot_every_bytes=EVERY_BYTES)
    for _ in range(20):
        fill(cluster)
    cluster.run(SECOND)

    taken = positions(cluster.leader)
    assert all(positions(member) == taken for member in cluster.members)
    steps = [after - before for before, after in zip([0, *taken], taken)]
    assert len(steps) >= 5 and min(steps) > EVERY_BYTES
    assert max(steps) < 2 * EVERY_BYTES
    assert cluster.leader.commit_position - taken[-1] < EVERY_BYTES
    assert len({member.service.chain for member in cluster.members}) == 1


def test_one_is_taken_when_the_last_is_so_old_and_anything_was_appended():
    cluster = a_busy(snapshot_every_ns=5 * SECOND)
    cluster.run(7 * SECOND)
    assert len(positions(cluster.leader)) == 1, "the session, and what began the term"
    cluster.run(25 * SECOND)
    assert len(positions(cluster.leader)) == 1, "a snapshot of nothing new says nothing new"

    send(cluster, 1)
    cluster.run(SECOND)
    assert len(positions(cluster.leader)) == 2
    send(cluster, 1)
    cluster.run(3 * SECOND)
    assert len(positions(cluster.leader)) == 2
    cluster.run(3 * SECOND)
    assert len(positions(cluster.leader)) == 3


def test_one_that_an_operator_asked_for_counts():
    cluster = a_busy(snapshot_every_bytes=EVERY_BYTES)
    fill(cluster)
    by_operator = take_snapshot(cluster)
    fill(cluster)
    assert positions(cluster.leader) == [by_operator]
    fill(cluster)
    cluster.run(SECOND)
    assert len(positions(cluster.leader)) == 2


def test_none_is_taken_unless_it_is_configured():
    cluster = a_busy()
    send(cluster, 400)
    cluster.run(20 * SECOND)
    assert positions(cluster.leader) == []


def test_a_suspended_cluster_takes_it_when_it_is_resumed():
    cluster = a_busy(snapshot_every_ns=5 * SECOND)
    toggle(cluster, ClusterControlToggle.SUSPEND)
    cluster.run(15 * SECOND)
    assert cluster.leader.module_state is ConsensusModuleState.SUSPENDED
    assert positions(cluster.leader) == []
    toggle(cluster, ClusterControlToggle.RESUME)
    cluster.run(2 * SECOND)
    assert len(positions(cluster.leader)) == 1


def test_a_new_leader_goes_on_from_the_last_snapshot():
    cluster = a_busy(snapshot_every_bytes=EVERY_BYTES)
    for _ in range(6):
        fill(cluster)
    before = positions(cluster.leader)
    assert before
    cluster.leader.kill()
    cluster.await_leader()
    cluster.run(2 * SECOND)
    assert positions(cluster.leader) == before
    fill(cluster)
    assert positions(cluster.leader) == before
    fill(cluster)
    assert len(positions(cluster.leader)) == len(before) + 1


def test_log_before_a_snapshot_of_the_policy_goes_as_configured():
    cluster = a_busy(snapshot_every_bytes=EVERY_BYTES, log_retained_snapshots=1)
    for _ in range(20):
        fill(cluster)
    cluster.run(3 * SECOND)
    for member in cluster.members:
        assert member.start_position > 0


def test_a_service_that_takes_none_is_asked_once_for_so_much_log():
    cluster = a_busy(snapshot_every_bytes=EVERY_BYTES)

    def refuse(*_):
        raise RuntimeError("no state is to be had")

    for member in cluster.members:
        member.service.on_take_snapshot = refuse
    for _ in range(10):
        fill(cluster)
    cluster.run(20 * SECOND)
    assert positions(cluster.leader) == []
    asked = [entry for entry in entries(cluster.leader) if isinstance(entry, ClusterActionRequest)]
    assert len(asked) == 5


def test_a_leader_whose_service_is_away_waits_with_it_so_that_clients_need_not():
    cluster = a_busy(members=1, snapshot_every_bytes=EVERY_BYTES)
    set_away(cluster.leader)
    for _ in range(4):
        fill(cluster)
    assert positions(cluster.leader) == []
    set_away(cluster.leader, False)
    cluster.run(SECOND)
    assert len(positions(cluster.leader)) == 1
