"""At sync level 0 a power cut takes back what was acknowledged: who may have lost promises knows it."""

from unittest.mock import Mock

import pytest

from cluster.archive.recording import Recording
from cluster.archive.recording_log import RecordingLog
from cluster.errors import StorageError
from cluster.member.disk.data_loss import accept_data_loss
from cluster.member.disk.life_note import LIFE_FILE_NAME, LifeNoteFile
from tests.member.in_memory.cluster import LONG_NS, QUICK, SimulatedCluster
from tests.member.in_memory.member import DIRECTORY

NOTE = f"{DIRECTORY}/cluster/{LIFE_FILE_NAME}"
LOST = "the last life at file_sync_level 0 did not end in order, and its machine has restarted"


def a_cluster(members=3, level=0):
    cluster = SimulatedCluster(members, 1, file_sync_level=level, **QUICK)
    cluster.await_leader(timeout_ns=2 * LONG_NS)
    client = cluster.add_client()
    client.send(b"0:first")
    cluster.await_settled()
    cluster.await_level()
    return cluster, client


def goes_on(cluster, client):
    cluster.await_leader(3 * LONG_NS)
    client.send(b"0:%d" % len(client.sent))
    cluster.await_settled()
    cluster.await_level(3 * LONG_NS)
    cluster.check()


def lost(cluster):
    return [line for line in cluster.events if line.partition(": ")[2].startswith(LOST)]


def test_one_that_lost_power_asks_the_others_before_it_has_a_say():
    cluster, client = a_cluster()
    member = cluster.followers[0]
    member.power_cut()
    member.start()
    cluster.run_until(lambda: member.election is not None)

    assert not member.has_say
    goes_on(cluster, client)
    assert len(lost(cluster)) == 1 and member.has_say
    cluster.check_promises()


def test_after_a_power_cut_of_a_majority_nobody_leads_until_an_operator_accepts_what_is_lost():
    cluster, client = a_cluster()
    for member in cluster.members[:2]:
        member.power_cut()
        member.start()
    cluster.run(LONG_NS)

    assert cluster.leader is None
    assert [line for line in cluster.events if "waits for members" in line and "accept-data-loss" in line]
    member = cluster.members[0]
    member.kill()
    assert LOST in accept_data_loss(member.files, f"{DIRECTORY}/cluster", 7)
    member.start()
    goes_on(cluster, client)


def test_a_power_cut_is_known_until_a_life_has_opened_its_files(monkeypatch):
    """Else the next life under the same boot takes pages that are lost for written."""
    cluster, client = a_cluster()
    member = cluster.followers[0]
    member.power_cut()
    with monkeypatch.context() as patched:
        patched.setattr(
            RecordingLog, "open", Mock(side_effect=StorageError("recording.log", 5, "opening failed"))
        )
        member.start()
    member.start()

    assert len(lost(cluster)) == 2
    goes_on(cluster, client)


@pytest.mark.parametrize(("level", "fails"), [(0, "kill"), (1, "power_cut"), (2, "power_cut")])
def test_a_process_that_was_killed_and_a_synced_log_have_lost_nothing(level, fails):
    cluster, client = a_cluster(level=level)
    for member in cluster.members:
        getattr(member, fails)()
    for member in cluster.members:
        member.start()
    goes_on(cluster, client)

    assert not lost(cluster)
    cluster.check_promises()


def test_what_ended_in_order_is_on_the_disk():
    cluster, _ = a_cluster()
    for member in cluster.members:
        member.stop()
    for member in cluster.members:
        member.power_cut()
        member.start()
    cluster.await_leader(2 * LONG_NS)
    cluster.await_level()

    assert not lost(cluster)
    assert all(member.service.applied == [b"0:first"] for member in cluster.members)


def test_a_life_whose_last_sync_failed_did_not_end_in_order(monkeypatch):
    """The kernel says once that it could not write: a later sync of the same file finds nothing to do."""
    cluster, client = a_cluster()
    member = cluster.followers[0]
    with monkeypatch.context() as patched:
        patched.setattr(Recording, "sync", Mock(side_effect=StorageError("0-0.rec", 5, "syncing failed")))
        member.stop()
    member.power_cut()
    member.start()

    assert len(lost(cluster)) == 1
    goes_on(cluster, client)


def test_a_member_alone_only_says_it():
    cluster, _ = a_cluster(1)
    [member] = cluster.members
    member.disk.settle()
    member.power_cut()
    member.start()
    cluster.await_leader()

    assert [line for line in lost(cluster) if "what it had acknowledged may be gone" in line]


def test_a_directory_without_the_note_is_believed_once():
    cluster, client = a_cluster()
    for member in cluster.members:
        member.kill()
        member.files.unlink(NOTE)
        member.start()
    goes_on(cluster, client)

    assert not lost(cluster)
    assert all(member.files.exists(NOTE) for member in cluster.members)


def test_a_damaged_note_counts_as_a_lost_promise():
    cluster, client = a_cluster()
    member = cluster.followers[0]
    member.kill()
    member.files.open(NOTE, write=True).pwrite(b"\xff", 12)
    member.start()
    cluster.run_until(lambda: member.election is not None)

    assert not member.has_say
    goes_on(cluster, client)
    assert member.has_say


@pytest.mark.parametrize(
    ("before", "now", "is_lost"),
    [("a", "a", False), ("a", "b", True), ("", "", True), ("a", "", True), ("", "a", True)],
)
def test_a_boot_that_nobody_can_tell_is_another_one(before, now, is_lost):
    cluster = SimulatedCluster(1, is_started=False)
    files = cluster.members[0].files
    files.make_directory("m")
    LifeNoteFile(files, "m", boot_id=before, file_sync_level=0).begin()

    note = LifeNoteFile(files, "m", boot_id=now, file_sync_level=1)
    assert bool(note.lost) is is_lost
    assert note.has_all_pages is not is_lost
    note.end(0, ())
    assert not LifeNoteFile(files, "m", boot_id=now, file_sync_level=1).has_all_pages, "others wrote since"


def test_what_a_life_knew_to_be_committed_is_known_to_the_next():
    cluster = SimulatedCluster(1, is_started=False)
    files = cluster.members[0].files
    files.make_directory("m")
    note = LifeNoteFile(files, "m", boot_id="a", file_sync_level=1)
    note.begin()
    note.commit(96)
    assert LifeNoteFile(files, "m", boot_id="a", file_sync_level=1).committed_position == 96
    note.end(192, ("m",))

    assert LifeNoteFile(files, "m", boot_id="b", file_sync_level=0).committed_position == 192


def test_a_file_of_a_life_that_ended_in_order_keeps_its_name():
    """A directory without the note, which syncs its own."""
    cluster = SimulatedCluster(1, is_started=False)
    [member] = cluster.members
    for directory in ("m", "other"):
        member.files.make_directory(directory)
    names = [f"{number}.dat" for number in range(20)]
    for name in names:
        member.files.open(f"other/{name}", create=True).close()
    LifeNoteFile(member.files, "m", boot_id="a", file_sync_level=0).end(96, ("other",))
    member.power_cut()

    assert sorted(member.files.list_directory("other")) == sorted(names)
