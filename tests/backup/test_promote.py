"""A backup becomes a member where it is: of a cluster of its own, or of the one that it was made of."""

from contextlib import suppress

import pytest

from cluster.archive.node_state_file import NodeStateFile
from cluster.backup.promote import promote_backup
from cluster.backup.restore import Place
from cluster.errors import ConfigurationError, DirectoryInUse, LogDamaged, NotAClusterDirectory
from cluster.testing.world import ProcessDied
from tests.backup.in_memory import Backup, committed
from tests.member.cluster_steps import a_busy_cluster, send, take_snapshot
from tests.member.in_memory.cluster import SECOND, SimulatedCluster
from tests.member.in_memory.member import DIRECTORY


def a_backup(cluster):
    """Level with its cluster, where a member's directory is on its disk."""
    backup = Backup(cluster, directory=DIRECTORY)
    backup.await_level()
    return backup


def promoted(backup, *, joins=False):
    return promote_backup(Place(backup.files, DIRECTORY), joins=joins, epoch_ms=lambda: backup.now_ms)


def put_into(member, backup):
    """The machine of the backup is a member's from now on."""
    member.disk, member.files = backup.disk, backup.files


def applied_by(member):
    return [what for what in member.service.applied if what.startswith(b"0:")]


@pytest.mark.conformance("S-163")
@pytest.mark.parametrize("has_snapshot", [False, True])
def test_after_the_end_of_all_members_clients_go_on_with_a_promoted_backup_and_nothing_is_lost(has_snapshot):
    cluster = a_busy_cluster()
    position = take_snapshot(cluster) if has_snapshot else None
    send(cluster, 30)
    backup = a_backup(cluster)
    sent, term_id = list(cluster.clients[0].sent), cluster.leader.leadership_term_id
    for member in cluster.members:
        member.kill()
    backup.kill()

    result = promoted(backup)
    assert (result.snapshot_position, result.end_position) == (position, backup.position)
    assert result.generation > 0
    new = SimulatedCluster(1, 7, is_started=False)
    new.world.run_until(cluster.world.now_ns)
    [member] = new.members
    put_into(member, backup)
    member.start()
    new.await_leader()
    assert member.leadership_term_id > term_id
    client = new.add_client()
    client.send(b"0:new")
    new.await_settled()
    new.await_level()
    assert applied_by(member) == [*sent, b"0:new"]
    new.check()


def test_a_promoted_backup_is_no_member_of_a_cluster_of_several():
    cluster = a_busy_cluster()
    backup = a_backup(cluster)
    for member in cluster.members:
        member.kill()
    backup.kill()
    promoted(backup)
    put_into(cluster.members[0], backup)
    cluster.members[0].start()
    cluster.run(SECOND)
    assert "identity.dat: one member, but members 0, 1, 2 are configured" in cluster.members[0].death


@pytest.mark.slow
def test_a_backup_that_joins_takes_the_place_of_a_member_and_votes_only_after_it_has_followed():
    cluster = a_busy_cluster()
    backup = a_backup(cluster)
    backup.stop()
    end = backup.position
    send(cluster, 30)
    lost, other = cluster.followers
    lost.kill()

    promoted(backup, joins=True)
    put_into(lost, backup)
    other.kill()
    cluster.leader.kill()
    lost.start()
    other.start()
    cluster.run(90 * SECOND)
    assert cluster.leader is None, "two of three, one of which may have voted otherwise"
    [third] = [member for member in cluster.members if not member.is_running]
    third.start()
    cluster.await_leader(timeout_ns=90 * SECOND)
    cluster.add_client().send(b"0:new")
    cluster.await_settled()
    cluster.await_level()
    assert lost.has_say and lost.start_position == 0 < end
    assert applied_by(lost) == applied_by(third) == [*cluster.clients[0].sent, b"0:new"]
    assert committed(lost, 0, third.commit_position) == committed(third, 0, third.commit_position)


def test_a_backup_says_what_the_members_had_committed_when_it_heard_of_them_last():
    cluster = a_busy_cluster()
    backup = a_backup(cluster)
    known = backup.counters.members_commit_position
    assert known.get() == backup.position
    known.set(backup.position + 32)  # as one member had said, which is ahead of the others
    backup.turn()
    assert known.get() == backup.position + 32
    supplier = backup.agent._supplier
    supplier.spoil = lambda frames: cluster.leader.kill() or frames.fill(0)
    send(cluster, 5)
    committed = cluster.leader.commit_position
    backup.run_until(lambda: backup.errors)
    assert known.get() == committed > backup.position + 32


@pytest.mark.parametrize("joins", [False, True])
def test_a_promotion_that_was_killed_can_be_made_again_the_other_way_as_long_as_it_is_a_backup(joins):
    cluster = a_busy_cluster()
    backup = a_backup(cluster)
    backup.stop()
    process, attempts = backup.files._process, 0
    while backup.files.exists(f"{DIRECTORY}/cluster/cluster-mark.dat"):
        attempts += 1
        process.is_alive = True
        process.die_soon(attempts)
        with suppress(ProcessDied):
            promoted(backup, joins=joins if attempts % 2 else not joins)
        backup.disk.on_process_died(process)
    assert attempts > 5
    process.is_alive, process.dies_at_effect = True, None
    was_joining = joins if attempts % 2 else not joins
    assert backup.files.exists(f"{DIRECTORY}/cluster/node-state.dat") == (not was_joining)
    with pytest.raises(NotAClusterDirectory, match="holds no backup"):
        promoted(backup, joins=joins)


def test_votes_of_an_attempt_that_failed_are_none_of_a_member_that_joins():
    cluster = a_busy_cluster()
    backup = a_backup(cluster)
    backup.stop()
    votes = NodeStateFile.open(f"{DIRECTORY}/cluster", files=backup.files)
    votes.propose(7, 0, 1)
    votes.close()
    promoted(backup, joins=True)
    assert not backup.files.exists(f"{DIRECTORY}/cluster/node-state.dat")


def test_what_is_no_backup_or_runs_or_is_damaged_is_not_promoted():
    cluster = a_busy_cluster()
    backup = a_backup(cluster)
    with pytest.raises(DirectoryInUse):
        promoted(backup)
    backup.stop()
    path = f"{DIRECTORY}/archive/{backup.directory.log.recording.recording_id}-0.rec"
    file = backup.files.open(path, write=True)
    [good] = file.pread(1, 5_000)
    file.pwrite(bytes([good ^ 1]), 5_000)
    with pytest.raises(LogDamaged, match="checksum mismatch"):
        promoted(backup)
    file.pwrite(bytes([good]), 5_000)
    assert promoted(backup).end_position == backup.position

    member = cluster.members[0]
    with pytest.raises(
        ConfigurationError, match="of a consensus module of member 0, expected those of a backup"
    ):
        promote_backup(Place(member.files, DIRECTORY), joins=False, epoch_ms=lambda: 1)
