"""Starts from whatever a disk still has of log and snapshots: older, newer, damaged, seeded, half taken."""

import pytest

from cluster.archive.archive import Archive
from cluster.archive.recording_log import RecordingLog
from cluster.archive.recording_log_tool import seed_from_latest_snapshot
from cluster.archive.snapshot_archive import SnapshotArchive
from cluster.protocol import streams
from tests.member.cluster_steps import a_busy_cluster, content_of, entries_of, send, take_snapshot
from tests.member.in_memory.cluster import MS


def damage_snapshot(member, service_id, change):
    """Let ``change`` spoil the file of a service's (or the module's) newest snapshot; None removes it."""
    entry = RecordingLog.open("member/cluster", files=member.files, write=False).latest_snapshot(service_id)
    path = f"member/archive/{entry.recording_id}-0.rec"
    if change is None:
        member.files.unlink(path)
    else:
        change(member.files.open(path, write=True))
    return entry.recording_id


def flip_a_byte(file):
    """One bit of the last message, which no header shows."""
    data = file.pread(file.size(), 0).rstrip(b"\0")
    file.pwrite(bytes([data[-1] ^ 1]), len(data) - 1)


def cut_in_half(file):
    """Zeros from the middle on, as a power cut leaves where nothing was promised."""
    data = file.pread(file.size(), 0).rstrip(b"\0")
    begin = len(data) // 2 // 32 * 32
    file.pwrite(bytes(len(data) - begin), begin)


@pytest.mark.parametrize("service_id", [-1, 0])
@pytest.mark.parametrize("change", [flip_a_byte, cut_in_half, None])
def test_a_damaged_snapshot_is_never_loaded_and_the_one_before_is(service_id, change):
    cluster = a_busy_cluster()
    first = take_snapshot(cluster)
    send(cluster, 10)
    second = take_snapshot(cluster)
    send(cluster, 5)
    member = cluster.followers[0]
    member.kill()
    damage_snapshot(member, service_id, change)
    member.start()

    assert member.death == ""
    assert member.processed_position == first
    told = [line for line in cluster.events if f"the snapshot at {second} is damaged" in line]
    assert len(told) == 1
    cluster.await_level()
    # Replayed, it was taken again: in the place of the damaged one.
    assert entries_of(member) == [(0, first), (-1, first), (0, second), (-1, second)]
    assert content_of(member, service_id) == content_of(cluster.leader, service_id)
    cluster.check_promises()


def test_without_any_whole_snapshot_the_log_is_replayed_from_its_start():
    cluster = a_busy_cluster()
    take_snapshot(cluster)
    member = cluster.followers[0]
    member.kill()
    damage_snapshot(member, 0, cut_in_half)
    member.start()
    assert member.processed_position == 0
    cluster.await_level()
    cluster.check_promises()


def test_where_the_log_begins_behind_the_only_whole_snapshot_the_start_is_refused_with_a_reason():
    cluster = a_busy_cluster(messages=700)
    take_snapshot(cluster)
    member = cluster.followers[0]
    assert member.recording.purge_to(member.commit_position) > 0
    member.kill()
    damage_snapshot(member, -1, flip_a_byte)
    member.start()
    assert "no whole snapshot is there to begin with" in member.death
    assert "DataLoss" in member.death


@pytest.mark.parametrize("lost", ["recording.log", "all of the cluster folder"])
def test_a_member_alone_begins_no_new_log_beside_one_that_its_recording_log_does_not_name(lost):
    """ZOOKEEPER-2325: a server whose snapshots were missing began with an empty tree."""
    cluster = a_busy_cluster(members=1, messages=3)
    [member] = cluster.members
    member.kill()
    before = member.files.open("member/archive/0-0.rec").pread(1 << 16, 0)
    for name in member.files.list_directory("member/cluster"):
        if lost in (name, "all of the cluster folder"):
            member.files.unlink(f"member/cluster/{name}")
    for _ in range(2):  # what a first start orphans the next one removes
        member.start()
        assert "LogDamaged: member/cluster/recording.log at offset 0: it has no entries" in member.death
    assert member.files.open("member/archive/0-0.rec").pread(1 << 16, 0) == before


def test_a_snapshot_that_is_newer_than_the_log_stands_for_the_log_before_it():
    cluster = a_busy_cluster()
    position = take_snapshot(cluster)
    member = cluster.followers[0]
    end = member.append_position
    member.stop()
    archive = Archive.open(
        "member/archive", files=member.files, segment_length=cluster.term_length, epoch_ms=lambda: 0
    )
    archive.recording(0).truncate(96)
    archive.close()
    assert 96 < position == end
    send(cluster, 10)
    member.start()

    assert member.processed_position == member.start_position == position
    cluster.await_level()
    send(cluster, 10)
    assert member.service.chain == cluster.leader.service.chain
    member.kill()
    member.start()
    assert member.processed_position == position
    cluster.await_level()


def test_what_a_crash_left_of_a_snapshot_is_removed_at_the_next_start():
    cluster = a_busy_cluster()
    member = cluster.followers[0]
    archive: SnapshotArchive = member.snapshot_archive
    publication = archive.create(streams.SERVICE_SNAPSHOT, 0, 4096)
    publication.offer(b"half of a state")
    publication.flush()
    member.kill()
    member.start()
    cluster.await_level()
    assert [d.stream_id for d in member.archive.recordings()] == [streams.LOG]
    assert not [name for name in member.files.list_directory("member/archive") if name.startswith("1-")]


@pytest.mark.conformance("C-317")
def test_a_snapshot_of_another_major_version_prevents_the_start():
    cluster = a_busy_cluster()
    take_snapshot(cluster)
    for member in cluster.members:
        member.kill()
    cluster._settings["app_version"] = 1 << 16
    cluster.members[0].start()
    assert "is of app version 0x1" in cluster.members[0].death


@pytest.mark.conformance("C-318")
def test_a_service_that_cannot_load_its_snapshot_ends_the_member(monkeypatch):
    cluster = a_busy_cluster()
    take_snapshot(cluster)
    member = cluster.followers[0]
    member.kill()

    def on_start(self, cluster, snapshot_image):
        raise ValueError("a format of last year")

    monkeypatch.setattr("tests.member.in_memory.member.HashingEcho.on_start", on_start)
    member.start()
    cluster.run(100 * MS)
    assert "a format of last year" in member.death


def test_a_log_that_is_cut_before_the_snapshot_is_whole_again_and_so_is_the_snapshot(monkeypatch):
    monkeypatch.setattr(Archive, "open_repair", lambda self, damage: None)
    cluster = a_busy_cluster(messages=600)
    first = take_snapshot(cluster)
    send(cluster, 400)
    second = take_snapshot(cluster)
    send(cluster, 10)
    member, leader = cluster.followers[0], cluster.leader
    member.stop()
    assert first < 3 * 65536 < second
    member.files.unlink("member/archive/0-196608.rec")
    member.start()

    assert member.processed_position == first, "newer ones are of no use before their log is there"
    cluster.await_level()
    assert entries_of(member) == [(0, first), (-1, first), (0, second), (-1, second)]
    assert content_of(member, -1) == content_of(leader, -1)
    assert [d.stream_id for d in member.archive.recordings()].count(streams.LOG) == 1
    assert len(member.archive.recordings()) == 5
    assert member.start_position == 0
    end = member.append_position
    assert member.recording.read(0, end).tobytes() == leader.recording.read(0, end).tobytes()
    cluster.check_promises()


@pytest.mark.conformance("S-140")
def test_a_log_that_was_seeded_from_a_snapshot_begins_at_0_with_its_state():
    cluster = a_busy_cluster()
    take_snapshot(cluster)
    send(cluster, 20)
    applied = cluster.members[0].service.applied[:40]
    for member in cluster.members:
        member.kill()
        log = RecordingLog.open("member/cluster", files=member.files)
        assert seed_from_latest_snapshot(member.files, log)
        log.close()
    cluster._commit_positions = [0] * 3
    cluster._chain_at.clear()
    cluster.clients.clear()
    for member in cluster.members:
        member.start()
    cluster.await_leader()
    cluster.add_client()
    send(cluster, 5)

    for member in cluster.members:
        assert member.service.applied[: len(applied)] == applied
        assert member.start_position == 0
        assert member.replica.sessions.next_session_id >= 2
        kept = [d for d in member.archive.recordings() if d.stream_id == streams.LOG]
        assert len(kept) == 2, "the log of before is its operator's to remove"
    for member in cluster.members:
        member.kill()
        member.start()
    cluster.await_leader()
    cluster.await_level()
    assert len({member.service.chain for member in cluster.members}) == 1
