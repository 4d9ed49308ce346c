"""A member that has no log, or one that ends before the others' begins, comes back by itself."""

import numpy as np
import pytest

from cluster.archive.recording_log import RecordingLog
from cluster.member.frames import RecordingBlockFrame
from cluster.protocol import streams
from cluster.protocol.link import RecordingBlock
from cluster.transport.envelopes import ENVELOPE_BYTES
from cluster.transport.message_frames import link_frame
from tests.member.cluster_steps import a_busy_cluster, content_of, entries_of, send, take_snapshot
from tests.member.in_memory.cluster import MS, SECOND


def purge(member):
    """Drop what the newest snapshot stands for, as retention does."""
    return member.recording.purge_to(member.recording_log.latest_snapshot().log_position)


def log_of(member):
    recording = member.recording
    return recording.read(recording.start_position, 1 << 24).tobytes()


def wipe(member):
    member.kill()
    member.wipe()


def terms_of(member):
    return [
        (entry.leadership_term_id, entry.term_base_log_position)
        for entry in member.recording_log.entries
        if entry.entry_type.name == "TERM"
    ]


def test_a_wiped_member_gets_snapshot_and_log_and_replays_only_what_is_behind():
    cluster = a_busy_cluster()
    position = take_snapshot(cluster)
    send(cluster, 20)
    member = cluster.followers[0]
    wipe(member)
    send(cluster, 5)
    member.start()
    cluster.await_level()

    assert min(member.service.chain_at) > position
    assert member.service.chain == cluster.leader.service.chain
    assert entries_of(member) == [(0, position), (-1, position)]
    for service_id in (-1, 0):
        assert content_of(member, service_id) == content_of(cluster.leader, service_id)
    assert member.start_position == 0
    assert log_of(member) == log_of(cluster.leader)
    assert terms_of(member) == terms_of(cluster.leader)
    cluster.check()
    send(cluster, 5)
    cluster.check_promises()


def test_a_wiped_member_of_a_cluster_without_a_snapshot_gets_the_log_alone():
    cluster = a_busy_cluster()
    member = cluster.followers[0]
    wipe(member)
    member.start()
    cluster.await_level()
    assert entries_of(member) == []
    assert log_of(member) == log_of(cluster.leader)


def test_a_member_whose_log_ends_before_the_others_begin_comes_back_by_itself():
    cluster = a_busy_cluster()
    late = cluster.followers[0]
    late.kill()
    send(cluster, 700)
    take_snapshot(cluster)
    starts = {purge(member) for member in cluster.members if member is not late}
    assert min(starts) > 0
    send(cluster, 10)
    late.start()
    cluster.await_level()

    leader = cluster.leader
    assert late.start_position == leader.start_position in starts
    assert log_of(late) == log_of(leader)
    assert late.service.chain == leader.service.chain
    assert [d.recording_id for d in late.archive.recordings() if d.stream_id == streams.LOG] == [
        late.recording.recording_id
    ]
    send(cluster, 10)
    cluster.check_promises()
    # And once more from its own disk.
    late.kill()
    late.start()
    cluster.await_level()
    assert late.service.chain == leader.service.chain


@pytest.mark.parametrize("terms", [1, 3])
def test_a_member_that_is_terms_behind_a_purged_log_comes_back(terms):
    cluster = a_busy_cluster()
    late = cluster.followers[0]
    late.kill()
    for _ in range(terms):
        send(cluster, 400)
        leader = cluster.leader
        leader.kill()
        leader.start()
        cluster.await_leader()
        send(cluster, 1)
    send(cluster, 300)
    take_snapshot(cluster)
    assert all(purge(member) > 0 for member in cluster.members if member is not late)
    late.start()
    cluster.await_level()
    assert late.service.chain == cluster.leader.service.chain
    assert terms_of(late) == terms_of(cluster.leader)[-len(terms_of(late)) :]


def test_a_wiped_member_follows_a_leader_that_itself_came_back_from_a_snapshot():
    cluster = a_busy_cluster()
    first = cluster.followers[0]
    first.kill()
    send(cluster, 700)
    take_snapshot(cluster)
    assert all(purge(member) > 0 for member in cluster.members if member is not first)
    first.start()
    cluster.await_level()
    for _ in range(12):
        if cluster.leader is first:
            break
        leader = cluster.leader
        leader.kill()
        cluster.await_leader()
        leader.start()
        cluster.await_level()
    assert cluster.leader is first
    other = cluster.followers[0]
    wipe(other)
    other.start()
    cluster.await_level()
    assert other.service.chain == first.service.chain
    assert log_of(other) == log_of(first)


def test_a_source_that_dies_in_the_middle_is_given_up_for_another():
    cluster = a_busy_cluster()
    send(cluster, 300)
    take_snapshot(cluster)
    member = cluster.followers[0]
    wipe(member)
    member.start()

    def it_fetches():
        return member.is_fetching_snapshots

    cluster.run_until(it_fetches)
    cluster.run(300_000)
    source = cluster.members[member.snapshot_source_id]
    source.kill()
    cluster.run(500 * MS)
    source.start()
    cluster.await_level()
    assert member.service.chain == cluster.leader.service.chain
    snapshots = [d for d in member.archive.recordings() if d.stream_id != streams.LOG]
    assert len(snapshots) == 2
    cluster.check_promises()


@pytest.mark.parametrize("at", range(0, 60, 6))
def test_a_crash_at_any_moment_of_the_replication_leaves_a_member_that_comes_back(at):
    cluster = a_busy_cluster()
    send(cluster, 200)
    take_snapshot(cluster)
    member = cluster.followers[0]
    wipe(member)
    member.start()
    cluster.run_until(lambda: member.is_fetching_snapshots)
    for _ in range(at):
        cluster.step()
    member.power_cut()
    member.start()
    cluster.await_level()
    assert member.service.chain == cluster.leader.service.chain
    log = RecordingLog.open("member/cluster", files=member.files, write=False)
    known = {entry.recording_id for entry in log.entries}
    assert {d.recording_id for d in member.archive.recordings()} == known
    cluster.check_promises()


def test_a_member_has_no_vote_while_it_fetches():
    cluster = a_busy_cluster()
    send(cluster, 300)
    take_snapshot(cluster)
    member = cluster.followers[0]
    wipe(member)
    for other in cluster.members:
        if other is not member:
            cluster.links.block(other.member_id, member.member_id)
    member.start()
    cluster.run(1 * SECOND)
    cluster.links.heal()
    cluster.run_until(lambda: member.is_fetching_snapshots)
    assert not member.has_say
    cluster.run_until(lambda: member.is_following)
    assert member.has_say
    cluster.await_level()


@pytest.mark.parametrize("length", [32, 1408, 124 * 1024])
def test_a_block_that_is_sent_without_a_copy_is_the_message_that_it_says(length):
    builder = RecordingBlockFrame()
    for correlation_id, position in [(7, 4096), (8, 1 << 40)]:
        frames = np.arange(length, dtype=np.uint32).astype(np.uint8)
        buffers = builder.around(correlation_id, position, frames)
        block = RecordingBlock(correlation_id, position, frames.tobytes())
        assert b"".join(bytes(buffer) for buffer in buffers) == link_frame(block)
        assert len(link_frame(block)) <= ENVELOPE_BYTES
