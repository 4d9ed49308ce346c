"""A backup becomes a new cluster: the state is there, and what was not in the backup is not."""

import pytest

from cluster.backup.restore import Founding, MemberFolders, Place, restore_member
from cluster.errors import ConfigurationError, DirectoryInUse, LogDamaged, NotAClusterDirectory
from cluster.protocol.enums import CloseReason
from cluster.protocol.identity import ClusterIdentity
from cluster.protocol.log import SessionCloseEvent
from cluster.testing.disk import SimulatedFiles
from tests.backup.in_memory import DIRECTORY, Backup
from tests.member.cluster_steps import SEGMENT, a_busy_cluster, entries, send, take_snapshot, toggle
from tests.member.in_memory.cluster import MS, SECOND, SimulatedCluster


@pytest.fixture(autouse=True)
def _pieces(monkeypatch):
    """A segment is copied in several pieces, as one of 128 MiB."""
    monkeypatch.setattr("cluster.backup.restore.COPY_BYTES", 48 * 1024)


def restored(backup, members=3, to_position=None, member_ids=()):
    """A new cluster, none of whose members runs yet, and what was restored to each."""
    cluster = SimulatedCluster(members, 7, is_started=False)
    cluster.world.run_until(backup.cluster.world.now_ns)
    results = {
        restore_member(
            MemberFolders.find(backup.files, DIRECTORY),
            Place(member.files, "member"),
            founding=Founding("restore", ClusterIdentity(0).with_members(None, member_ids)),
            to_position=to_position,
            epoch_ms=lambda: backup.now_ms,
        )
        for member in cluster.members
    }
    [result] = results
    return cluster, result


def started(cluster):
    for member in cluster.members:
        member.start()
    cluster.await_leader(timeout_ns=90 * SECOND)
    cluster.await_level()
    return cluster


def applied_by(member):
    return [what for what in member.service.applied if what.startswith(b"0:")]


def sent_by(cluster):
    return cluster.clients[0].sent


@pytest.mark.conformance("S-163")
@pytest.mark.parametrize("members", [1, 3])
def test_a_new_cluster_begins_with_all_that_was_committed_when_the_position_was_read(members):
    cluster = a_busy_cluster()
    position = take_snapshot(cluster)
    send(cluster, 30)
    backup = Backup(cluster)
    backup.await_level()
    promised = list(sent_by(cluster))
    session_id = cluster.clients[0].session_id
    for member in cluster.members:
        member.kill()
    backup.kill()  # it need not end in order

    new, result = restored(backup, members)
    assert (result.snapshot_position, result.end_position) == (position, backup.position)
    started(new)
    for member in new.members:
        assert applied_by(member) == promised
    new.run(100 * MS)
    closes = [entry for entry in entries(new.leader) if isinstance(entry, SessionCloseEvent)]
    assert [(c.cluster_session_id, c.close_reason) for c in closes] == [(session_id, CloseReason.TIMEOUT)]
    assert new.leader.leadership_term_id > result.leadership_term_id
    client = new.add_client()
    client.send(b"0:new")
    new.await_settled()
    new.await_level()
    new.check()


def test_a_backup_under_load_loses_nothing_that_was_committed_before_its_position_was_read():
    cluster = a_busy_cluster()
    backup = Backup(cluster)
    client = cluster.clients[0]
    acknowledged = 0
    for turn in range(300):
        client.send(b"0:%d:" % len(client.sent))
        if turn == 150:
            toggle(cluster)
        acknowledged, committed = client.acknowledged, cluster.leader.commit_position
        backup.turn()
        if backup.position >= committed:
            promised = client.sent[:acknowledged]
    for member in cluster.members:
        member.kill()
    backup.kill()
    new, _ = restored(backup)
    started(new)
    assert len(promised) > 100
    for member in new.members:
        assert applied_by(member)[: len(promised)] == promised


def test_members_begin_alike_and_stand_for_terms_after_those_of_the_backup():
    cluster = a_busy_cluster()
    for _ in range(2):
        cluster.leader.kill()
        cluster.await_leader(timeout_ns=90 * SECOND)
        for member in cluster.members:
            if not member.is_running:
                member.start()
        cluster.await_level()
    backup = Backup(cluster)
    backup.await_level()
    backup.stop()
    new, result = restored(backup)
    assert result.leadership_term_id == cluster.leader.leadership_term_id >= 2
    kinds = (".rec", "recording.log")
    contents = [
        {path: data for path, data in member.backup().items() if path.endswith(kinds)}
        for member in new.members
    ]
    assert contents[0] == contents[1] == contents[2]
    for member in new.members:
        member.disk.power_cut()
    started(new)
    assert new.leader.leadership_term_id > result.leadership_term_id
    assert all(member.has_say for member in new.members)


@pytest.mark.parametrize("back", [0, 32, 1_000, 5_000])
def test_the_log_may_end_earlier_at_the_last_entry_before_a_position(back):
    cluster = a_busy_cluster()
    send(cluster, 20)
    early = take_snapshot(cluster)
    send(cluster, 20)
    late = take_snapshot(cluster)
    backup = Backup(cluster)
    backup.await_level()
    backup.stop()
    to_position = backup.position - back
    new, result = restored(backup, to_position=to_position)
    assert to_position - 2_000 < result.end_position <= to_position
    assert result.snapshot_position == (late if late <= result.end_position else None)
    started(new)
    seen = applied_by(new.members[0])
    assert seen == sent_by(cluster)[: len(seen)]
    assert back < 1_000 or len(seen) < len(sent_by(cluster))
    assert early < late


@pytest.mark.parametrize("to_position", [-1, 0, 10**9])
def test_a_position_that_the_backup_does_not_have_is_refused(to_position):
    cluster = a_busy_cluster()
    backup = Backup(cluster)
    backup.await_level()
    backup.stop()
    with pytest.raises(
        ConfigurationError, match=f"--to-position {to_position}: expected a position above 0, up to"
    ):
        restored(backup, to_position=to_position)


def test_a_position_before_the_first_snapshot_of_a_purged_log_is_refused():
    cluster = SimulatedCluster(3, 1, log_retained_snapshots=1)
    cluster.await_leader()
    cluster.add_client()
    for _ in range(3):
        send(cluster, 4 * SEGMENT // 256)
        position = take_snapshot(cluster)
    cluster.run_until(lambda: all(member.recording.start_position > 0 for member in cluster.members))
    backup = Backup(cluster)
    backup.await_level()
    backup.stop()
    with pytest.raises(ConfigurationError, match="choose a later --to-position"):
        restored(backup, to_position=position - 32)
    new, result = restored(backup)
    assert result.start_position > 0
    started(new)
    assert applied_by(new.members[0]) == sent_by(cluster)


def test_a_backup_that_is_damaged_is_not_restored_and_an_attempt_that_failed_can_be_made_again(monkeypatch):
    cluster = a_busy_cluster()
    backup = Backup(cluster)
    backup.await_level()
    backup.stop()
    path = f"{DIRECTORY}/archive/{backup.directory.log.recording.recording_id}-0.rec"
    file = backup.files.open(path, write=True)
    [good] = file.pread(1, 5_000)
    file.pwrite(bytes([good ^ 1]), 5_000)
    new = SimulatedCluster(1, 7, is_started=False)
    target = Place(new.members[0].files, "member")

    def restore():
        return restore_member(
            MemberFolders.find(backup.files, DIRECTORY),
            target,
            founding=Founding("restore"),
            to_position=None,
            epoch_ms=lambda: 1,
        )

    with pytest.raises(LogDamaged, match="checksum mismatch"):
        restore()
    assert not new.members[0].files.exists("member/cluster/recording.log")
    file.pwrite(bytes([good]), 5_000)
    calls = []
    for name in ("rename", "sync_directory"):
        call = getattr(SimulatedFiles, name)
        monkeypatch.setattr(
            SimulatedFiles, name, lambda files, *at, call=call: (calls.append(at), call(files, *at))[1]
        )
    assert restore().end_position == backup.position
    named = calls.index(("member/archive/recording.log", "member/cluster/recording.log"))
    assert {("member/cluster",), ("member/archive",)} <= set(calls[named:]), "its last name is durable"
    with pytest.raises(ConfigurationError, match="is there already"):
        restore()


def test_a_restored_directory_is_of_its_new_members_and_of_no_others():
    cluster = a_busy_cluster()
    backup = Backup(cluster)
    backup.await_level()
    backup.stop()
    of_three, result = restored(backup, member_ids=(0, 1, 2))
    assert result.generation == restored(backup)[1].generation > 0
    assert result.generation != restored(backup, to_position=result.end_position - 1)[1].generation
    of_three.lists[0] = (0, 1, 2, 3, 4)
    of_three.members[0].start()
    assert f"generation {result.generation}, members 0, 1, 2, but" in of_three.members[0].death

    leader_id = cluster.leader.member_id
    of_any, _ = restored(backup)
    other = next(member for member in of_any.members if member.member_id != leader_id)
    of_any.lists[other.member_id] = (other.member_id,)
    other.start()
    assert f"member {leader_id} led term 0 of its log, but members has" in other.death


def test_a_backup_that_runs_or_has_nothing_is_not_restored():
    cluster = a_busy_cluster()
    backup = Backup(cluster)
    with pytest.raises(DirectoryInUse):
        restored(backup)
    backup.stop()
    with pytest.raises(NotAClusterDirectory, match="the backup has no log yet"):
        restored(backup)


def test_a_member_is_not_started_on_a_backups_directory():
    cluster = a_busy_cluster()
    backup = Backup(cluster)
    backup.await_level()
    backup.stop()
    new = SimulatedCluster(1, 7, is_started=False)
    [member] = new.members
    for folder in ("cluster", "archive"):
        member.files.make_directory(f"member/{folder}")
    for path in backup.disk.paths():
        data = bytes(backup.disk.inode(path).cache)
        member.files.open(path.replace(DIRECTORY, "member", 1), create=True).pwrite(data, 0)
    new.world.run_until(cluster.world.now_ns + 20_000 * MS)
    member.start()
    assert "cluster tool restore makes members of a backup" in member.death
