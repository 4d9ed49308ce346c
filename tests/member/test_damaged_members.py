"""Members whose logs are damaged, each at another place: they mend each other, or are cut and filled up."""

import pytest

from cluster.archive.archive import Archive
from cluster.archive.files import OsFiles
from cluster.consensus.cluster_member import LogEnd
from cluster.member.disk.log_repair import frames_for
from cluster.member.disk.member_files import RepairNote
from cluster.protocol.link import LogRangeRequest
from tests.member.cluster_steps import (
    SEGMENT,
    a_busy_cluster,
    check_equal,
    lose_segment,
    note_of,
    send,
    stop_all,
    take_snapshot,
)
from tests.member.in_memory.cluster import LONG_NS, QUICK, SECOND
from tests.member.in_memory.member import log_bytes


@pytest.fixture
def without_mending(monkeypatch):
    """As if nobody gave what is missing: logs are cut."""
    monkeypatch.setattr(Archive, "open_repair", lambda self, damage: None)


# ---- repaired


@pytest.mark.parametrize("segments", [(1, 2, 3), (0, 3, 1), (3, 1, 0)])
@pytest.mark.parametrize("has_snapshot", [False, True])
def test_three_of_three_that_are_damaged_at_different_places_repair_each_other(segments, has_snapshot):
    cluster = a_busy_cluster(messages=500)
    if has_snapshot:
        take_snapshot(cluster)
    send(cluster, 400)
    stop_all(cluster, last=cluster.members[0])
    for member, segment in zip(cluster.members, segments, strict=True):
        lose_segment(member, segment)
        member.start()
    cluster.run_until(lambda: all(not member.is_repairing for member in cluster.members))

    assert not any(note_of(member).is_there for member in cluster.members), "no vote was ever in question"
    cluster.await_leader(timeout_ns=20 * SECOND)
    client = cluster.add_client()
    for number in range(10):
        client.send(b"1:%d" % number)
    cluster.await_settled()
    check_equal(cluster)
    assert len(cluster.leader.service.applied) == 910
    told = "\n".join(cluster.events)
    assert told.count("asks the others for what is missing") == 3
    assert told.count("log repaired: ") == 3


def test_a_damaged_member_is_repaired_by_a_working_cluster_with_what_it_misses_and_no_more():
    cluster = a_busy_cluster(messages=900)
    member = cluster.followers[0]
    member.stop()
    lose_segment(member, 1)
    send(cluster, 20)
    member.start()
    check_equal(cluster)
    assert "log repaired: 65536 bytes have come from others" in "\n".join(cluster.events)


def test_what_nobody_has_is_cut_at_once_and_what_nobody_gives_after_the_time_of_a_canvass():
    cluster = a_busy_cluster(messages=900, **QUICK)
    stop_all(cluster, last=cluster.members[0])
    first, second, third = cluster.members
    for member in (second, third):
        lose_segment(member, 2)
    second.start()
    cluster.run(5 * SECOND)
    assert second.is_repairing, "nobody is there, and nothing is lost by waiting"
    cluster.run(2 * SECOND)
    assert second.append_position == 2 * SEGMENT
    third.start()
    cluster.run(1 * SECOND)
    assert third.is_repairing, "the first may have it"
    second.kill()
    third.stop()
    assert third.death == ""
    for member in (third, second):
        member.start()
    lose_segment(first, 2)
    first.start()
    cluster.run(1 * SECOND)
    assert {member.append_position for member in cluster.members} == {2 * SEGMENT}
    cluster.run(LONG_NS)
    assert cluster.leader is None, "what was acknowledged is in no log any more"


def test_bytes_of_another_term_are_not_taken_though_they_have_the_same_place():
    cluster = a_busy_cluster(messages=10)
    leader, other = cluster.leader, cluster.followers[0]
    entry = leader.recording_log.find_last_term()
    end = leader.append_position
    asked = LogRangeRequest(7, entry.leadership_term_id, entry.term_base_log_position, 96, end)
    for wrong in (
        {"leadership_term_id": entry.leadership_term_id + 1},
        {"term_base_log_position": entry.term_base_log_position + 32},
        {"from_position": end},
        {"from_position": 64},
    ):
        assert not len(frames_for(leader.life.files, asked.replace(**wrong)))
    assert frames_for(leader.life.files, asked).tobytes() == log_bytes(other, 96, end)


# ---- cut


@pytest.mark.parametrize("segments", [(1, 3), (3, 1), (0, 2), (2, 2)])
@pytest.mark.parametrize("has_snapshot", [False, True])
def test_two_of_three_that_are_damaged_at_different_places_follow_the_third_and_are_whole_again(
    segments, has_snapshot, without_mending
):
    cluster = a_busy_cluster(messages=500, **QUICK)
    if has_snapshot:
        take_snapshot(cluster)
    send(cluster, 400)
    whole, *damaged = cluster.members
    stop_all(cluster, last=whole)
    for member, segment in zip(damaged, segments, strict=True):
        lose_segment(member, segment)
    for member in damaged:
        member.start()
        assert member.append_position < SEGMENT * 4
    cluster.run(5 * SECOND)
    assert cluster.leader is None, "neither may stand"
    whole.start()

    assert cluster.await_leader(timeout_ns=20 * SECOND) is whole
    client = cluster.add_client()
    for number in range(10):
        client.send(b"1:%d" % number)
    cluster.await_settled()

    check_equal(cluster)
    assert len(whole.service.applied) == 910
    told = "\n".join(cluster.events)
    assert told.count("whole again up to position ") == 2
    assert f"damaged: member/archive/0-{segments[0] * SEGMENT}.rec: the segment file is missing" in told


def test_a_third_that_is_short_of_what_the_damaged_ones_held_is_not_elected(without_mending):
    cluster = a_busy_cluster(messages=500, **QUICK)
    behind, *damaged = cluster.members
    behind.stop()
    cluster.await_leader()
    client = cluster.clients[0]
    client.send(b"0:%d" % len(client.sent))
    cluster.await_settled()
    stop_all(cluster, last=damaged[1])
    backup = damaged[0].backup()
    for member, segment in zip(damaged, (0, 1), strict=True):
        lose_segment(member, segment)
    for member in cluster.members:
        member.start()

    cluster.run(2 * LONG_NS)
    assert cluster.leader is None
    assert behind.append_position > 100_000 > damaged[1].append_position

    # Only who has it leads: one of the two comes back with the disk that it had.
    damaged[0].kill()
    damaged[0].restore(backup)
    damaged[0].start()
    assert cluster.await_leader(timeout_ns=90 * SECOND) is damaged[0]
    check_equal(cluster)
    assert len(behind.service.applied) == 501


def test_the_note_says_what_was_held_through_restarts_and_more_damage_until_the_member_is_whole(
    without_mending,
):
    cluster = a_busy_cluster(messages=900)
    member = cluster.followers[0]
    term, end = member.leadership_term_id, member.append_position
    for other in cluster.members:
        if other is not member:
            cluster.links.block(other.member_id, member.member_id)
    member.stop()
    for segment in (2, 1):
        lose_segment(member, segment)
        member.start()
        cluster.run(1 * SECOND)
        assert member.append_position == segment * SEGMENT
        assert note_of(member).read()[1] == member.acknowledged_end == LogEnd(term, end)
        member.kill()
    text, _ = note_of(member).read()
    assert text.count("the segment file is missing") == 2
    member.start()
    cluster.links.heal()
    check_equal(cluster)
    assert member.acknowledged_end is None


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
