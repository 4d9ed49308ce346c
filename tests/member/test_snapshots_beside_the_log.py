"""A snapshot that is being written stops nobody, whatever happens to its member or its cluster meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.errors import ClusterError
from cluster.protocol import streams
from cluster.protocol.enums import ClusterControlToggle, ConsensusModuleState
from cluster.protocol.link import ServiceSnapshot
from tests.member.cluster_steps import a_busy_cluster, content_of, entries_of, send, toggle
from tests.member.in_memory.cluster import MS, SECOND

ACTIVE, SNAPSHOT = ConsensusModuleState.ACTIVE, ConsensusModuleState.SNAPSHOT


class Withheld(dict[int, ServiceSnapshot]):
    """What services have written, which nobody is told before ``release``."""

    is_released = False

    def __contains__(self, recording_id: object) -> bool:
        return self.is_released and super().__contains__(recording_id)


def services_of(member: Any) -> Any:
    return member.life.consensus_module.parts.services


def taker_of(member: Any) -> Any:
    return member.life.consensus_module.parts.snapshots


def withhold(*members: Any) -> None:
    """Let the services of these take for ever to write their snapshots."""
    for member in members:
        services_of(member).written_snapshots = Withheld()


def release(*members: Any) -> None:
    for member in members:
        services_of(member).written_snapshots.is_released = True


def ask(cluster: Any) -> int:
    """Have a snapshot asked for, and return its position once all members have captured their state."""
    toggle(cluster)
    running = [member for member in cluster.members if member.is_running]
    cluster.run_until(lambda: all(taker_of(member).is_making for member in running))
    position = cluster.leader.published_position
    assert all(member.processed_position == position for member in running)
    return position


def recordings_of(member: Any) -> list[int]:
    return sorted(descriptor.stream_id for descriptor in member.archive.recordings())


@pytest.mark.conformance("C-289", "C-291", "C-292", "C-293")
def test_the_log_goes_on_while_a_snapshot_is_written_which_is_of_its_position_nevertheless():
    cluster = a_busy_cluster()
    withhold(*cluster.members)
    leader = cluster.leader
    for member in cluster.members:
        member.timers.schedule(7, 1 << 60)
    position = ask(cluster)
    send(cluster, 20)
    for member in cluster.members:
        member.timers.cancel(7)
        assert member.module_state is ACTIVE
        assert member.processed_position > position
        assert entries_of(member) == []
    assert leader.counters.control_toggle.get() == ClusterControlToggle.SNAPSHOT
    assert leader.counters.snapshot_count.get() == 0

    release(*cluster.members)
    cluster.run(1 * SECOND)
    assert leader.counters.control_toggle.get() == ClusterControlToggle.NEUTRAL
    assert leader.counters.max_snapshot_duration_ns.get() > 0
    for member in cluster.members:
        assert entries_of(member) == [(0, position), (-1, position)]
        assert content_of(member, -1) == content_of(leader, -1)
    member = cluster.followers[0]
    member.kill()
    member.start()
    assert member.processed_position == position
    assert [id_ for id_, _ in member.timers] == [7], "the state at the position, and not what it was later"
    cluster.await_level()
    cluster.check_promises()


def test_a_second_one_is_refused_as_long_as_the_first_is_written():
    cluster = a_busy_cluster()
    withhold(*cluster.members)
    position = ask(cluster)
    toggles = cluster.leader.life.consensus_module.parts.toggles
    for wanted in (ClusterControlToggle.SNAPSHOT, ClusterControlToggle.SHUTDOWN, ClusterControlToggle.ABORT):
        assert not toggles.request(wanted)
    cluster.run(1 * SECOND)
    assert cluster.leader.published_position == position, "it is not asked for again either"
    release(*cluster.members)
    cluster.run(1 * SECOND)
    assert toggles.request(ClusterControlToggle.SNAPSHOT)


def test_a_new_leader_finishes_the_one_of_before_and_then_takes_its_own():
    cluster = a_busy_cluster()
    withhold(*cluster.members)
    old = cluster.leader
    first = ask(cluster)
    old.kill()
    cluster.run_until(lambda: cluster.leader is not None and cluster.leader is not old)
    new = cluster.leader
    send(cluster, 10)
    assert new.counters.control_toggle.get() == ClusterControlToggle.NEUTRAL
    before = new.published_position
    toggle(cluster)
    cluster.run(1 * SECOND)
    assert new.published_position == before, "one at a time, and nobody is held for it"
    assert new.counters.control_toggle.get() == ClusterControlToggle.SNAPSHOT

    running = [member for member in cluster.members if member is not old]
    release(*running)
    cluster.run_until(lambda: all(len(entries_of(member)) == 4 for member in running))
    assert {position for _, position in entries_of(new)} == {first, new.published_position}
    assert new.counters.control_toggle.get() == ClusterControlToggle.NEUTRAL
    old.start()
    cluster.await_level()
    cluster.run_until(lambda: entries_of(old) == entries_of(new))
    cluster.check_promises()


def test_a_follower_that_is_not_done_when_the_next_one_comes_takes_one_after_the_other():
    cluster = a_busy_cluster()
    late = cluster.followers[0]
    withhold(late)
    toggle(cluster)
    cluster.run(1 * SECOND)
    send(cluster, 5)
    toggle(cluster)
    cluster.run(1 * SECOND)
    assert late.module_state is SNAPSHOT, "it holds its log at the second one's position"
    assert entries_of(late) == []
    assert len(entries_of(cluster.leader)) == 4
    client = cluster.clients[0]
    client.send(b"0:%d:" % len(client.sent))
    cluster.await_settled()

    release(late)
    cluster.await_level()
    cluster.run_until(lambda: entries_of(late) == entries_of(cluster.leader))
    assert content_of(late, -1) == content_of(cluster.leader, -1)
    cluster.check_promises()


def test_a_member_that_dies_meanwhile_drops_what_was_written_and_takes_it_again_in_its_replay():
    cluster = a_busy_cluster()
    member = cluster.followers[0]
    withhold(member)
    position = ask_of(cluster, member)
    assert streams.SERVICE_SNAPSHOT in recordings_of(member)
    member.kill()
    assert entries_of(member) == []
    member.start()
    assert recordings_of(member) == [streams.LOG]
    cluster.await_level()
    cluster.run_until(lambda: entries_of(member) == [(0, position), (-1, position)])
    assert content_of(member, -1) == content_of(cluster.leader, -1)


def ask_of(cluster: Any, member: Any) -> int:
    """As ``ask``, where one member alone is late."""
    toggle(cluster)
    cluster.run_until(lambda: taker_of(member).is_making and len(entries_of(cluster.leader)) == 2)
    return cluster.leader.recording_log.latest_snapshot().log_position


@pytest.mark.conformance("C-301", "C-302")
def test_an_abort_waits_for_no_snapshot_that_is_being_written():
    cluster = a_busy_cluster()
    member = cluster.followers[0]
    withhold(member)
    ask_of(cluster, member)
    send(cluster, 5)
    toggle(cluster, ClusterControlToggle.ABORT)
    cluster.run(2 * SECOND)
    for other in cluster.members:
        assert not other.is_running and other.death == ""
    assert entries_of(member) == []
    member.start()
    assert recordings_of(member) == [streams.LOG]


@pytest.mark.conformance("C-299", "S-124")
def test_a_shutdown_ends_behind_its_own_snapshot_on_a_member_that_is_late_with_the_one_before():
    cluster = a_busy_cluster()
    late = cluster.followers[0]
    withhold(late)
    ask_of(cluster, late)
    send(cluster, 5)
    toggle(cluster, ClusterControlToggle.SHUTDOWN)
    cluster.run(2 * SECOND)
    assert late.is_running
    assert late.module_state is SNAPSHOT
    release(late)
    cluster.run(2 * SECOND)
    assert [member.is_running for member in cluster.members] == [False] * 3
    assert [len(entries_of(member)) for member in cluster.members] == [4] * 3


@pytest.mark.conformance("C-299", "C-305")
def test_behind_the_snapshot_of_a_shutdown_the_leader_takes_nothing_more():
    cluster = a_busy_cluster()
    leader = cluster.leader
    withhold(*cluster.members)
    toggle(cluster, ClusterControlToggle.SHUTDOWN)
    cluster.run_until(lambda: all(taker_of(member).is_making for member in cluster.members))
    end = leader.published_position
    cluster.clients[0].send(b"0:%d:" % len(cluster.clients[0].sent))
    cluster.run(1 * SECOND)
    assert leader.module_state is SNAPSHOT
    assert leader.published_position == end
    assert all(member.is_running for member in cluster.members)
    release(*cluster.members)
    cluster.run(1 * SECOND)
    assert [member.is_running for member in cluster.members] == [False] * 3
    assert [entries_of(member) for member in cluster.members] == [[(0, end), (-1, end)]] * 3


@pytest.mark.slow
def test_a_leader_that_is_deposed_in_a_shutdown_follows_when_its_snapshot_is_written():
    cluster = a_busy_cluster()
    old, followers = cluster.leader, cluster.followers
    withhold(*cluster.members)
    toggle(cluster, ClusterControlToggle.SHUTDOWN)
    cluster.run_until(lambda: all(taker_of(member).is_making for member in cluster.members))
    for other in followers:
        cluster.links.block(old.member_id, other.member_id)
        cluster.links.block(other.member_id, old.member_id)
        other.kill()  # and knows of no end any more
        other.start()
    cluster.run_until(lambda: any(member.is_leading for member in followers), timeout_ns=90 * SECOND)
    cluster.links.heal()
    cluster.run_until(lambda: not old.is_leading)
    cluster.run(1 * SECOND)
    assert old.module_state is SNAPSHOT
    release(old)
    cluster.run_until(lambda: old.is_following)
    assert old.module_state is ACTIVE
    cluster.await_level()
    assert [len(entries_of(member)) for member in cluster.members] == [2] * 3
    cluster.check_promises()


def test_one_that_the_module_cannot_write_is_none_and_leaves_nothing():
    cluster = a_busy_cluster()
    failing = cluster.followers[0]
    archive = taker_of(failing).archive
    create = archive.create

    def refuse(stream_id: int, service_id: int, log_position: int) -> Any:
        if stream_id == streams.CONSENSUS_MODULE_SNAPSHOT:
            raise ClusterError("no room")
        return create(stream_id, service_id, log_position)

    archive.create = refuse
    toggle(cluster)
    cluster.run(1 * SECOND)
    assert entries_of(failing) == []
    assert recordings_of(failing) == [streams.LOG]
    assert not taker_of(failing).is_making
    send(cluster, 5)


@pytest.mark.conformance("C-294", "S-115")
def test_one_that_a_service_could_not_finish_is_none_and_leaves_nothing():
    cluster = a_busy_cluster()
    failing = cluster.followers[0]
    services = services_of(failing)

    class Failing(dict[int, ServiceSnapshot]):
        def __setitem__(self, recording_id: int, written: ServiceSnapshot) -> None:
            failing.archive.purge_recording(recording_id)  # as who stands for the service does
            super().__setitem__(recording_id, written.replace(why=b"out of memory"))

    services.written_snapshots = Failing()
    toggle(cluster)
    cluster.run(1 * SECOND)
    assert entries_of(failing) == []
    assert recordings_of(failing) == [streams.LOG]
    assert all(len(entries_of(member)) == 2 for member in cluster.members if member is not failing)
    assert failing.module_state is ACTIVE
    assert not taker_of(failing).is_making
    send(cluster, 10)
    cluster.run(10 * MS)
    cluster.check_promises()
