"""Ending in order: a whole cluster, its leader alone, or a member whose disk gives up (C-163)."""

import pytest

from cluster.protocol.consensus import TerminationAck, TerminationPosition
from cluster.protocol.enums import ClusterControlToggle
from tests.member.in_memory.cluster import MS, SECOND, SimulatedCluster


def a_busy_cluster(seed=1, members=3):
    cluster = SimulatedCluster(members, seed)
    cluster.await_leader()
    client = cluster.add_client()
    for number in range(50):
        client.send(b"0:%d:" % number)
    cluster.await_settled()
    cluster.await_level()
    return cluster


def recording_log_of(member):
    from cluster.archive.recording_log import RecordingLog

    log = RecordingLog.open("member/cluster", files=member.files)
    return [(e.leadership_term_id, e.term_base_log_position, e.log_position) for e in log.entries]


@pytest.mark.conformance("C-301", "C-302", "C-303", "C-304", "C-305")
def test_an_abort_ends_all_members_at_the_leaders_end_and_appends_nothing():
    cluster = a_busy_cluster()
    end = cluster.leader.published_position
    cluster.leader.counters.control_toggle.set(ClusterControlToggle.ABORT)
    cluster.run(1 * SECOND)

    for member in cluster.members:
        assert not member.is_running
        assert member.death == ""
        assert recording_log_of(member) == [(0, 0, end)]


@pytest.mark.conformance("C-308")
def test_after_an_abort_the_log_is_replayed_from_its_start():
    cluster = a_busy_cluster()
    applied = list(cluster.members[0].service.applied)
    assert cluster.leader.begin_termination()
    cluster.run(1 * SECOND)
    for member in cluster.members:
        member.start()
    cluster.await_leader()
    cluster.await_level()

    for member in cluster.members:
        assert member.service.applied == applied


@pytest.mark.conformance("C-304")
def test_a_follower_that_does_not_answer_is_waited_for_for_10_s():
    cluster = a_busy_cluster()
    leader = cluster.leader
    silent = cluster.followers[0]
    silent.pause()
    assert leader.begin_termination()
    cluster.run(9 * SECOND)
    assert leader.is_running
    cluster.run(2 * SECOND)

    assert not leader.is_running


def test_a_follower_that_is_gone_is_not_waited_for():
    cluster = a_busy_cluster()
    leader = cluster.leader
    cluster.followers[0].kill()
    cluster.run(300 * MS)
    assert leader.begin_termination()
    cluster.run(500 * MS)

    assert not leader.is_running


def test_only_a_leader_can_end_the_cluster():
    cluster = a_busy_cluster()

    assert not cluster.followers[0].begin_termination()
    assert cluster.leader.begin_termination()
    assert not cluster.leader.begin_termination()


def test_a_termination_ack_that_nobody_asked_for_is_ignored():
    from cluster.protocol.consensus import TerminationAck

    cluster = a_busy_cluster()
    cluster.leader.receive(
        cluster.followers[0].member_id, TerminationAck(0, 1 << 40, cluster.followers[0].member_id)
    )
    cluster.run(100 * MS)

    assert cluster.leader is not None


@pytest.mark.conformance("C-62", "C-163")
def test_a_leader_that_stops_in_order_is_followed_by_another_at_once():
    """Its links may end before the end of its log is read: such a member is refused when it dials again."""
    cluster = a_busy_cluster(members=5)
    leader = cluster.leader
    others = [member for member in cluster.members if member is not leader]
    elections = {member: member.counters.election_count.get() for member in others}
    leader.stop()
    stopped_ns = cluster.world.now_ns
    cluster.run(5 * MS)
    assert sum("closed its log" in line for line in cluster.events) > len(others) / 2
    cluster.run_until(
        lambda: all(member.counters.election_count.get() > elections[member] for member in others), 200 * MS
    )

    cluster.await_leader()
    assert cluster.world.now_ns - stopped_ns < 700 * MS
    leader.start()
    cluster.await_level()
    cluster.check()
    cluster.check_promises()


@pytest.mark.conformance("C-62", "C-163")
def test_a_leader_that_closed_its_log_in_order_is_not_waited_for_even_if_its_process_stays():
    cluster = SimulatedCluster(3)
    old = cluster.await_leader()
    cluster.run(SECOND)
    old.close_log()
    old.pause()
    began_ns = cluster.world.now_ns
    cluster.run_until(lambda: cluster.leader is not None and cluster.leader is not old, 30 * SECOND)

    assert any(f"leader {old.member_id} closed its log" in line for line in cluster.events)
    assert cluster.world.now_ns - began_ns < 3 * SECOND


@pytest.mark.conformance("C-221")
def test_a_member_that_closes_closes_its_clients_connections_with_it():
    cluster = a_busy_cluster()
    client = cluster.clients[0]
    leader = cluster.leader
    leader.stop()
    cluster.run(50 * MS)

    assert not client.is_open
    cluster.await_leader()
    client.send(b"0:50:")
    cluster.await_settled()


def test_a_stopped_member_leaves_a_directory_that_starts_again():
    cluster = a_busy_cluster()
    follower = cluster.followers[0]
    follower.stop()
    cluster.run(2 * SECOND)
    follower.start()
    cluster.await_level()

    cluster.check()


def test_a_follower_that_lacks_the_log_up_to_its_end_looks_for_a_leader_when_its_own_is_gone():
    """An end was told, and the leader died before the log was everywhere: nobody would ever end."""
    cluster = a_busy_cluster()
    leader = cluster.leader
    term_id, end = leader.leadership_term_id, leader.published_position
    for follower in cluster.followers:
        follower.receive(leader.member_id, TerminationPosition(term_id, end + 960))
    leader.kill()
    new = cluster.await_leader(timeout_ns=5 * SECOND)
    assert new is not leader
    cluster.clients[0].send(b"0:50:")
    cluster.await_settled()


@pytest.mark.conformance("C-306")
def test_a_follower_whose_term_changed_since_it_was_told_to_end_acknowledges_nothing():
    cluster = a_busy_cluster()
    follower = cluster.followers[0]
    sent = []
    original = follower.links.send
    follower.links.send = lambda member_id, *frames: sent.append(frames) or original(member_id, *frames)
    end = TerminationPosition(follower.leadership_term_id, follower.processed_position)
    follower.receive(cluster.leader.member_id, end)
    follower.replica.leadership_term_id += 1
    cluster.run(1 * SECOND)

    assert not follower.is_running
    template = TerminationAck.TEMPLATE_ID.to_bytes(2, "little")
    assert not [frames for frames in sent if bytes(frames[0])[34:36] == template]
