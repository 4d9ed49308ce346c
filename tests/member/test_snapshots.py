"""Snapshots of module and services: taken at one place in the log, loaded at the next start."""

import pytest

from cluster.archive.recording_log import RecordingLog
from cluster.protocol import decode, streams
from cluster.protocol.enums import ClusterControlToggle, ConsensusModuleState, NodeControlToggle
from cluster.protocol.session import SessionMessageHeader
from tests.member.cluster_steps import a_busy_cluster, content_of, entries_of, send, take_snapshot, toggle
from tests.member.in_memory.cluster import MS, SECOND


def restart_all(cluster, *, end="kill"):
    for member in cluster.members:
        getattr(member, end)()
    for member in cluster.members:
        member.start()
    cluster.await_leader()
    cluster.await_level()


# ---- taking


@pytest.mark.conformance("C-289", "C-290", "C-291", "C-292", "S-112", "S-116")
@pytest.mark.parametrize("members", [1, 3, 5])
def test_every_member_and_service_takes_a_snapshot_at_one_position_with_the_same_bytes(members):
    cluster = a_busy_cluster(members)
    position = take_snapshot(cluster)

    for member in cluster.members:
        assert entries_of(member) == [(0, position), (-1, position)]
        assert member.counters.snapshot_count.get() == 1
        for service_id in (0, -1):
            assert content_of(member, service_id) == content_of(cluster.members[0], service_id)


@pytest.mark.conformance("C-293")
def test_after_a_snapshot_the_module_is_active_and_the_toggle_neutral_and_messages_go_on():
    cluster = a_busy_cluster()
    take_snapshot(cluster)
    send(cluster, 10)
    leader = cluster.leader
    assert leader.counters.control_toggle.get() == ClusterControlToggle.NEUTRAL
    for member in cluster.members:
        assert member.module_state is ConsensusModuleState.ACTIVE
        assert member.counters.module_state.get() == ConsensusModuleState.ACTIVE
    cluster.check()
    cluster.check_promises()


def test_the_modules_recording_has_the_records_of_the_reference_in_their_order():
    cluster = a_busy_cluster()
    cluster.clients[0].send(b"timer 7")
    cluster.await_settled()
    position = take_snapshot(cluster)
    leader = cluster.leader
    entry = leader.recording_log.latest_snapshot()
    records = [decode(record) for record in leader.snapshot_archive.open(entry.recording_id)]

    names = [type(record).__name__ for record in records]
    assert names == [
        "SnapshotMarker", "ConsensusModule", "ClusterSession", "Timer", "PendingMessageTracker",
        "SnapshotMarker", "SnapshotSession", "SnapshotRecording", "SnapshotChecksum",
    ]  # fmt: skip
    begin, module, session, timer = records[:4]
    assert (begin.type_id, begin.log_position, begin.leadership_term_id) == (1, position, 0)
    assert (module.next_session_id, session.cluster_session_id, session.time_of_last_activity) == (2, 1, -1)
    assert (session.close_reason, timer.correlation_id) == (None, 7)
    recording = leader.archive.recording(entry.recording_id)
    assert recording.stream_id == streams.CONSENSUS_MODULE_SNAPSHOT
    assert recording.start_position == 0


@pytest.mark.conformance("C-43", "C-296")
def test_while_the_services_take_theirs_nothing_else_moves_and_no_session_times_out():
    cluster = a_busy_cluster()
    leader = cluster.leader
    slow = cluster.followers[0]
    slow.stall_service()
    leader.stall_service()
    toggle(cluster)
    cluster.run(12 * SECOND)

    assert leader.module_state is ConsensusModuleState.SNAPSHOT
    assert slow.module_state is ConsensusModuleState.SNAPSHOT
    assert slow.is_following
    end = leader.published_position
    cluster.clients[0].send(b"0:%d:" % len(cluster.clients[0].sent))
    cluster.run(1 * SECOND)
    assert leader.published_position == end

    slow.release_service()
    leader.release_service()
    cluster.await_settled()
    assert not cluster.clients[0].is_lost
    cluster.await_level()
    cluster.check_promises()


@pytest.mark.conformance("C-294", "S-115")
def test_a_service_that_takes_none_leaves_no_entries_and_the_member_goes_on():
    cluster = a_busy_cluster()
    failing = cluster.followers[0]

    def on_take_snapshot(publication):
        publication.offer(b"half of it")
        raise RuntimeError("no memory left")

    failing.service.on_take_snapshot = on_take_snapshot
    toggle(cluster)
    cluster.run(2 * SECOND)

    assert entries_of(failing) == []
    assert failing.module_state is ConsensusModuleState.ACTIVE
    assert [d.stream_id for d in failing.archive.recordings()] == [streams.LOG]
    assert all(len(entries_of(m)) == 2 for m in cluster.members if m is not failing)
    send(cluster, 10)
    cluster.check_promises()


@pytest.mark.conformance("C-297", "C-298", "S-113")
def test_a_snapshot_for_standbys_is_logged_and_taken_by_no_member():
    cluster = a_busy_cluster()
    before = cluster.leader.published_position
    toggle(cluster, ClusterControlToggle.STANDBY_SNAPSHOT)
    cluster.run(1 * SECOND)

    assert cluster.leader.counters.control_toggle.get() == ClusterControlToggle.NEUTRAL
    assert cluster.leader.published_position > before
    assert all(entries_of(member) == [] for member in cluster.members)
    send(cluster, 10)


@pytest.mark.conformance("C-309")
def test_a_snapshot_that_was_never_committed_is_undone_with_the_leadership():
    cluster = a_busy_cluster()
    old = cluster.leader
    for other in cluster.members:
        if other is not old:
            cluster.links.block(old.member_id, other.member_id)
            cluster.links.block(other.member_id, old.member_id)
    toggle(cluster)
    cluster.run(200 * MS)
    assert old.module_state is ConsensusModuleState.SNAPSHOT
    cluster.run_until(lambda: cluster.leader is not old and cluster.leader is not None)
    cluster.links.heal()
    cluster.run_until(lambda: old.is_following)
    send(cluster, 10)

    assert old.module_state is ConsensusModuleState.ACTIVE
    assert all(entries_of(member) == [] for member in cluster.members)
    cluster.check()


def test_a_leader_that_hears_nobody_of_its_snapshot_leads_no_more_though_it_is_heard():
    cluster = a_busy_cluster()
    old = cluster.leader
    for other in cluster.followers:
        cluster.links.block(other.member_id, old.member_id)
    toggle(cluster)
    cluster.run_until(lambda: old.module_state is ConsensusModuleState.SNAPSHOT)

    cluster.run_until(lambda: not old.is_leading)
    cluster.run_until(lambda: cluster.leader is not None and cluster.leader is not old)
    cluster.links.heal()
    cluster.run_until(lambda: old.is_following)
    send(cluster, 10)
    cluster.check()


def test_a_leader_lost_in_the_middle_of_a_committed_snapshot_leaves_one_on_every_member():
    cluster = a_busy_cluster()
    leader = cluster.leader
    for member in cluster.members:  # services are held up: the module waits for them
        member.stall_service()
    toggle(cluster)
    cluster.run(100 * MS)
    leader.kill()
    cluster.run(3 * SECOND)
    for member in cluster.members:
        if member is not leader:
            assert member.module_state is ConsensusModuleState.SNAPSHOT
            member.release_service()
    leader.start()
    cluster.await_leader()
    send(cluster, 10)

    assert len({tuple(entries_of(member)) for member in cluster.members}) == 1
    assert len(entries_of(leader)) == 2
    contents = {content_of(member, -1) for member in cluster.members}
    assert len(contents) == 1
    cluster.check_promises()


@pytest.mark.conformance("C-299", "C-300", "C-307", "S-124")
def test_a_shutdown_takes_a_snapshot_and_ends_all_and_the_restart_replays_nothing():
    cluster = a_busy_cluster()
    toggle(cluster, ClusterControlToggle.SHUTDOWN)
    cluster.run(2 * SECOND)
    for member in cluster.members:
        assert not member.is_running
        assert member.death == ""
        assert len(entries_of(member)) == 2
    (chain,) = {member.service.chain for member in cluster.members}

    for member in cluster.members:
        member.start()
    cluster.run(3 * MS)  # before one leads
    for member in cluster.members:
        recording = member.recording
        assert member.processed_position == recording.append_position
        assert member.service.chain == chain
    cluster.await_leader()
    send(cluster, 10) if not cluster.clients[0].is_lost else None
    cluster.check()


@pytest.mark.conformance("S-90", "S-120")
def test_timers_and_messages_of_the_service_come_once_after_all_members_start_from_a_snapshot():
    cluster = a_busy_cluster()
    leader = cluster.leader
    for member in cluster.members:
        member.timers.schedule(99, member.cluster_time + 5_000)
        # Not to be appended before the snapshot: the service asks while the module waits for it.
        take = member.service.on_take_snapshot

        def on_take_snapshot(publication, member=member, take=take):
            take(publication)
            header = SessionMessageHeader(member.leadership_term_id, 0, 0)
            member.service_agent._outbox.send(header.encode() + b"pending")

        member.service.on_take_snapshot = on_take_snapshot
    toggle(cluster, ClusterControlToggle.SHUTDOWN)
    cluster.run(1 * SECOND)
    assert not leader.is_running
    for member in cluster.members:
        member.start()
    for member in cluster.members:
        assert [id_ for id_, _ in member.timers] == [99]
        assert len(member.replica.trackers[0]) == 1
    cluster.run(8 * SECOND)

    for member in cluster.members:
        assert member.service.timers == [99]
        assert member.service.applied.count(b"pending") == 1
    cluster.check()


@pytest.mark.conformance("C-310", "S-143")
def test_entries_of_recordings_that_are_gone_are_made_invalid_on_request_and_nothing_else_happens():
    cluster = a_busy_cluster()
    first = take_snapshot(cluster)
    send(cluster, 5)
    take_snapshot(cluster)
    member = cluster.followers[0]
    gone = member.recording_log.latest_snapshot(0)
    member.archive.purge_recording(gone.recording_id)
    node_toggle = member.counters.node_control_toggle
    for value in (NodeControlToggle.REPLICATE_STANDBY_SNAPSHOT, NodeControlToggle.VALIDATE_RECORDING_LOG):
        assert node_toggle.get() == NodeControlToggle.NEUTRAL
        node_toggle.set(value)
        cluster.run(100 * MS)
        assert node_toggle.get() == NodeControlToggle.NEUTRAL
    assert [entry for entry in member.recording_log.entries if not entry.is_valid] == [
        gone._replace(is_valid=False)
    ]
    member.kill()
    member.start()
    assert member.processed_position == first


# ---- loading


@pytest.mark.conformance("C-313", "C-316", "C-320")
@pytest.mark.parametrize("end", ["kill", "stop", "power_cut"])
def test_a_member_starts_from_its_snapshot_and_replays_only_the_log_behind_it(end):
    cluster = a_busy_cluster()
    position = take_snapshot(cluster)
    send(cluster, 15)
    member = cluster.followers[0]
    chain, applied = member.service.chain, list(member.service.applied)
    getattr(member, end)()
    send(cluster, 5)
    member.start()
    assert member.processed_position == position
    assert member.counters.commit_position.get() == position
    cluster.await_level()

    assert member.service.applied[: len(applied)] == applied
    assert min(member.service.chain_at) > position
    assert member.service.chain_at[max(member.service.chain_at)] == cluster.leader.service.chain
    assert chain != member.service.chain
    cluster.check_promises()


def test_a_client_goes_on_with_a_leader_that_has_its_session_from_a_snapshot_only():
    cluster = a_busy_cluster()
    take_snapshot(cluster)
    follower = cluster.followers[0]
    follower.kill()
    follower.start()
    cluster.await_level()
    for member in cluster.members:
        if member is not follower:
            session = member.sessions[1]
            table = follower.replica.sessions.table
            other = member.replica.sessions.table
            for field in ("committed", "committed_position"):
                assert table.slots[field][table.slot_of(1)] == other.slots[field][other.slot_of(1)]
            assert follower.sessions[1].encoded_principal == session.encoded_principal
    client = cluster.clients[0]
    for _ in range(12):
        for _ in range(10):
            client.send(b"0:%d:" % len(client.sent))
        leader = cluster.leader
        if leader is follower:
            break
        leader.kill()
        cluster.await_leader()
        leader.start()
        cluster.await_level()
    assert cluster.leader is follower
    cluster.await_settled()
    assert not client.is_lost
    cluster.await_level()
    cluster.check_promises()


@pytest.mark.conformance("S-138")
def test_a_second_snapshot_is_preferred_and_an_invalidated_one_is_passed_over():
    cluster = a_busy_cluster()
    first = take_snapshot(cluster)
    send(cluster, 5)
    second = take_snapshot(cluster)
    send(cluster, 5)
    for member in cluster.members:
        member.kill()
    log = RecordingLog.open("member/cluster", files=cluster.members[1].files)
    assert log.invalidate_latest_snapshot()
    for member in cluster.members:
        member.start()
    assert [member.processed_position for member in cluster.members] == [second, first, second]
    cluster.await_leader()
    cluster.await_level()

    # C-312: what is replayed takes its snapshots again, into the entry that was made invalid.
    assert entries_of(cluster.members[1]) == entries_of(cluster.members[0])
    cluster.check()


@pytest.mark.conformance("C-312")
def test_a_log_that_is_replayed_takes_its_snapshots_again():
    cluster = a_busy_cluster()
    take_snapshot(cluster)
    send(cluster, 5)
    take_snapshot(cluster)
    send(cluster, 5)
    member = cluster.followers[0]
    expected, content = entries_of(member), content_of(member, -1)
    member.kill()
    log = RecordingLog.open("member/cluster", files=member.files)
    assert log.invalidate_latest_snapshot() and log.invalidate_latest_snapshot()
    member.start()
    cluster.await_level()

    assert entries_of(member) == expected
    assert content_of(member, -1) == content
    assert member.counters.snapshot_count.get() == 2
