"""Members whose logs are damaged, each at another place: who has it whole leads, and fills the others up."""

from copy import deepcopy

import pytest

from cluster.archive.files import OsFiles
from cluster.consensus.cluster_member import LogEnd
from cluster.member.repair import RepairNote
from tests.member.in_memory.cluster import SECOND
from tests.member.in_memory.member import log_bytes
from tests.member.test_snapshots import a_busy_cluster, send, take_snapshot

SEGMENT = 64 * 1024


def note_of(member):
    return RepairNote(member.disk, "member/cluster")


def lose_segment(member, number):
    member.disk.unlink(f"member/archive/0-{number * SEGMENT}.rec")


def stop_all(cluster, *, last):
    """In order; the last one to go has all that any of them has."""
    for member in cluster.members:
        if member is not last and member.is_running:
            member.stop()
    last.stop()


def check_equal(cluster):
    cluster.await_level()
    ends = {member.agent.recording.append_position for member in cluster.members}
    assert len(ends) == 1
    [end] = ends
    assert len({log_bytes(member, 0, end) for member in cluster.members}) == 1
    cluster.check_promises()
    for member in cluster.members:
        assert not note_of(member).is_there
        assert not member.disk.is_directory("member/archive/damaged") or (
            member.disk.list_directory("member/archive/damaged") == []
        )


@pytest.mark.parametrize("segments", [(1, 3), (3, 1), (0, 2), (2, 2)])
@pytest.mark.parametrize("has_snapshot", [False, True])
def test_two_of_three_that_are_damaged_at_different_places_follow_the_third_and_are_whole_again(
    segments, has_snapshot
):
    cluster = a_busy_cluster(messages=500)
    if has_snapshot:
        take_snapshot(cluster)
    send(cluster, 400)
    whole, *damaged = cluster.members
    stop_all(cluster, last=whole)
    for member, segment in zip(damaged, segments, strict=True):
        lose_segment(member, segment)
    for member in damaged:
        member.start()
        assert member.agent.recording.append_position < SEGMENT * 4
    cluster.run(15 * SECOND)
    assert cluster.leader is None, "neither may stand"
    whole.start()

    assert cluster.await_leader(timeout_ns=20 * SECOND) is whole
    client = cluster.add_client()
    for number in range(10):
        client.send(b"1:%d" % number)
    cluster.await_settled()

    check_equal(cluster)
    assert len(whole.service.applied) == 910
    told = "\n".join(cluster.world.events)
    assert told.count("whole again up to position ") == 2
    assert f"damaged: member/archive/0-{segments[0] * SEGMENT}.rec: the segment file is missing" in told


def test_a_third_that_is_short_of_what_the_damaged_ones_held_is_not_elected():
    cluster = a_busy_cluster(messages=500)
    behind, *damaged = cluster.members
    behind.stop()
    cluster.await_leader()
    client = cluster.clients[0]
    client.send(b"0:%d" % len(client.sent))
    cluster.await_settled()
    stop_all(cluster, last=damaged[1])
    backup = deepcopy(damaged[0].disk)
    for member, segment in zip(damaged, (0, 1), strict=True):
        lose_segment(member, segment)
    for member in cluster.members:
        member.start()

    cluster.run(120 * SECOND)
    assert cluster.leader is None
    assert behind.agent.recording.append_position > 100_000 > damaged[1].agent.recording.append_position

    # Only who has it leads: one of the two comes back with the disk that it had.
    damaged[0].kill()
    damaged[0].disk = backup
    damaged[0].start()
    assert cluster.await_leader(timeout_ns=90 * SECOND) is damaged[0]
    check_equal(cluster)
    assert len(behind.service.applied) == 501


def test_the_note_says_what_was_held_through_restarts_and_more_damage_and_goes_when_the_member_is_whole():
    cluster = a_busy_cluster(messages=900)
    member = cluster.followers[0]
    term, end = member.agent.leadership_term_id, member.agent.recording.append_position
    for other in cluster.members:
        if other is not member:
            cluster.network.block(other.member_id, member.member_id)
    member.stop()
    for segment in (2, 1):
        lose_segment(member, segment)
        member.start()
        cluster.run(1 * SECOND)
        assert member.agent.recording.append_position == segment * SEGMENT
        assert note_of(member).read()[1] == member.agent.repair.held == LogEnd(term, end)
        member.kill()
    text, _ = note_of(member).read()
    assert text.count("the segment file is missing") == 2
    member.start()
    cluster.network.heal()
    check_equal(cluster)
    assert member.agent.repair.held is None


# ---- the note itself


@pytest.fixture
def note(tmp_path):
    return RepairNote(OsFiles(), str(tmp_path))


def test_of_several_ends_that_were_held_the_note_keeps_the_best(note):
    for held in [LogEnd(3, 4096), LogEnd(4, 64), LogEnd(3, 8192)]:
        note.write("a cut", held)
    assert note.read() == ("a cut; a cut; a cut", LogEnd(4, 64))


@pytest.mark.parametrize("ends", [(None,), (None, LogEnd(3, 64)), (LogEnd(3, 64), None, LogEnd(4, 64))])
def test_what_was_not_known_once_is_not_known_again(note, ends):
    for held in ends:
        note.write("a cut", held)
    assert note.read()[1] is None


@pytest.mark.parametrize("old", [b"log from position 96 on: it is gone\n", b"", b"\xff\xfe\n"])
def test_a_note_that_does_not_tell_what_was_held_says_that_nobody_knows(note, tmp_path, old):
    (tmp_path / "repair-needed").write_bytes(old)
    assert note.is_there
    assert note.read()[1] is None


def test_a_note_of_which_a_digit_has_changed_is_not_believed(note, tmp_path):
    path = tmp_path / "repair-needed"
    note.write("a cut", LogEnd(4, 8192))
    path.write_bytes(path.read_bytes().replace(b"8192", b"8092"))
    assert note.read()[1] is None
