"""Members whose logs are of two histories: neither takes anything of the other, and both say why."""

import pytest

from cluster.archive.archive import Archive
from cluster.archive.node_state_file import NodeStateFile
from cluster.archive.recording_log import RecordingLog
from cluster.member.disk.identity_keeper import IdentityKeeper
from cluster.member.disk.member_files import MemberFiles
from cluster.protocol.log import NewLeadershipTermEvent
from tests.member.cluster_steps import entries
from tests.member.in_memory.cluster import LONG_NS, MS, QUICK, SECOND, SimulatedCluster
from tests.member.in_memory.member import DIRECTORY, log_bytes
from tests.member.parted import Parted, forget_identity


@pytest.fixture(autouse=True)
def _no_identity(monkeypatch):
    forget_identity(monkeypatch)


CLUSTER, ARCHIVE = f"{DIRECTORY}/cluster", f"{DIRECTORY}/archive"
HISTORY = "its log is of another history"


def test_a_member_that_led_alone_takes_no_part_and_the_others_go_on():
    cluster = Parted()
    cluster.stop()
    cluster.run_alone(0)
    alone = cluster.members[0]
    kept = alone.backup()
    cluster.start(1, 2)
    cluster.await_leader(2 * LONG_NS)
    cluster.commit(b"kept")

    alone.start()
    cluster.run(LONG_NS)
    cluster.commit(b"all")

    leader, other = cluster.leader, [m for m in cluster.members[1:] if m.is_following]
    assert leader is not None and len(other) == 1 and not alone.is_following
    for member, ids in (alone, (1, 2)), (cluster.members[1], (0,)), (cluster.members[2], (0,)):
        for id_ in ids:
            [line] = cluster.told(member, f"member {id_} is not counted: {HISTORY}")
            assert "term 1" in line and "here" in line and "there" in line
    assert cluster.told(alone, "members 1, 2 are a majority of one history")
    alone.stop()
    assert {k: v for k, v in alone.backup().items() if k.endswith(".rec")} == {
        k: v for k, v in kept.items() if k.endswith(".rec")
    }
    assert log_bytes(leader, 0, leader.commit_position) == log_bytes(other[0], 0, leader.commit_position)


@pytest.mark.parametrize("lives", [1, 2, 3])
def test_terms_that_one_side_passed_over_show_it_as_well(lives):
    """Those of it have led several terms, this one others, or more of them."""
    cluster = Parted(seed=lives)
    cluster.stop()
    cluster.run_alone(0, lives=lives)
    cluster.run_alone(1, 2, lives=2)
    cluster.start()
    cluster.await_leader(2 * LONG_NS)
    cluster.run(LONG_NS)

    assert not (cluster.members[0].is_leading or cluster.members[0].is_following)
    assert cluster.told(cluster.members[0], "members 1, 2 are a majority")


def test_what_one_side_had_committed_is_known_to_its_next_life():
    """It led one term alone, its last one; the others passed over that term."""
    cluster = Parted()
    cluster.stop()
    alone, *others = cluster.members
    cluster.run_alone(0)
    for member in others:
        state = NodeStateFile.open("member/cluster", files=member.files)
        state.propose(5, 0, 0)
        state.close()
    cluster.start(1, 2)
    cluster.await_leader(2 * LONG_NS)
    cluster.commit(b"kept")
    alone.start()
    cluster.run(LONG_NS)

    assert not (alone.is_leading or alone.is_following)
    [line] = cluster.told(alone, "member 1 is not counted")
    assert "term 1 at position" in line and "is committed here" in line and "before term 6" in line
    assert b"alone" in log_bytes(alone, 0, alone.append_position)


def test_two_of_five_that_made_a_cluster_of_three_are_not_followed_by_the_third():
    """The third has what three of five had committed."""
    cluster = Parted(5)
    cluster.stop()
    cluster.start(2, 3, 4)
    cluster.await_leader(4 * LONG_NS)
    cluster.commit(b"of three")
    cluster.stop()
    third = cluster.members[2]
    for id_ in (0, 1, 2):
        cluster.list_of[id_] = (0, 1, 2)
    cluster.start(0, 1)
    cluster.run_until(lambda: any(m.is_leading for m in cluster.members[:2]), 3 * LONG_NS)
    cluster.run(SECOND)
    third.start()
    cluster.run(LONG_NS)

    assert not (third.is_leading or third.is_following)
    assert b"of three" in log_bytes(third, 0, third.append_position)
    assert cluster.told(third, "members 0, 1 are a majority of one history")


def test_where_no_majority_agrees_nobody_leads():
    cluster = Parted()
    cluster.stop()
    for id_ in range(3):
        cluster.run_alone(id_)
    cluster.start()
    cluster.run(2 * LONG_NS)

    assert cluster.leader is None
    for member in cluster.members:
        assert len(cluster.told(member, HISTORY)) == 2


@pytest.mark.parametrize("steps", [0, 50, 100, 150, 200, 250])
def test_a_crashed_leader_with_a_tail_comes_back(steps):
    """Its last term's event may have reached nobody: that is no other history."""
    cluster = Parted(seed=steps)
    follower = cluster.followers[0]
    follower.enter_election("test")
    cluster.leader.kill()
    for _ in range(steps):
        cluster.step()
    killed = [member for member in cluster.members if not member.is_running]
    for member in cluster.members:
        if member.is_running and member.election is not None and member.election.leader_member_id >= 0:
            member.kill()
            killed.append(member)
            break
    cluster.start(*sorted(member.member_id for member in killed))
    cluster.await_leader(3 * LONG_NS)
    cluster.commit(b"later")
    cluster.await_level(3 * LONG_NS)

    assert not [line for line in cluster.events if HISTORY in line]
    cluster.check()


def test_a_stale_copy_of_a_directory_is_brought_up_to_date():
    cluster = Parted()
    member = cluster.followers[0]
    member.stop()
    copy = member.backup()
    member.start()
    cluster.await_level()
    for _ in range(2):
        cluster.leader.kill()
        cluster.await_leader(3 * LONG_NS)
        cluster.start(*(m.member_id for m in cluster.members if not m.is_running))
        cluster.commit(b"later")
        cluster.await_level(3 * LONG_NS)
    member.kill()
    member.restore(copy)
    member.start()
    cluster.await_level(3 * LONG_NS)

    assert not [line for line in cluster.events if HISTORY in line]
    cluster.check()


def test_stale_copies_that_outvote_the_only_whole_member_take_nothing_from_it():
    """Two of three are put back to what they were; the third has what was committed since."""
    cluster = Parted()
    whole, *stale = cluster.members
    cluster.stop()
    copies = [member.backup() for member in stale]
    cluster.run_alone(0, 1, 2, lives=3)
    for member, copy in zip(stale, copies, strict=True):
        member.restore(copy)
    cluster.start(1, 2)
    cluster.await_leader(3 * LONG_NS)
    begin = log_bytes(cluster.leader, 0, cluster.leader.commit_position)
    whole.start()
    cluster.run(LONG_NS)

    assert not (whole.is_leading or whole.is_following)
    assert cluster.told(whole, "members 1, 2 are a majority")
    assert log_bytes(cluster.leader, 0, len(begin)) == begin


@pytest.mark.parametrize("has_written", [True, False])
def test_a_copy_that_led_alone_is_not_elected_over_what_the_others_have_committed_in_their_term(has_written):
    """Their term goes on all the while, and its own is later; the leader dies as soon as it is back.

    The copy may have been killed before it wrote the first entry of its term.
    """
    cluster, elsewhere = Parted(), SimulatedCluster(3, 5, is_started=False, **QUICK)
    copied = cluster.followers[0]
    copied.kill()
    cluster.commit(b"kept")
    there = elsewhere.members[copied.member_id]
    for folder in (CLUSTER, ARCHIVE, f"{DIRECTORY}/driver"):
        there.files.make_directory(folder)
    there.restore(copied.backup())
    elsewhere.lists[there.member_id] = (there.member_id,)
    there.start()
    elsewhere.run_until(lambda: there.recording_log.find_last_term().leadership_term_id == 1, 3 * LONG_NS)
    if has_written:
        elsewhere.run(SECOND)
    term_base = there.recording_log.find_last_term().term_base_log_position
    assert (there.append_position > term_base) is has_written
    there.kill()
    copied.restore(there.backup())
    copied.start()
    cluster.run(20 * MS)
    leader = cluster.leader
    assert leader is not None and leader is not copied
    had = log_bytes(leader, 0, leader.commit_position)
    leader.kill()
    cluster.run(LONG_NS)
    leader.start()
    cluster.await_leader(3 * LONG_NS)
    cluster.commit(b"all")

    assert cluster.told(leader, f"member {copied.member_id} is not counted: {HISTORY}: the log is ")
    assert cluster.told(copied, "are a majority of one history")
    for member in cluster.members:
        if member is not copied:
            assert log_bytes(member, 0, len(had)) == had


def test_the_events_are_read_where_terms_begin_also_after_padding():
    """A term that begins where its event does not fit before the end of a term buffer."""
    cluster = Parted(term_length=64 * 1024)
    client = cluster.add_client()

    def left():
        return -cluster.leader.append_position % (64 * 1024)

    while left() > 1_200 or left() < 300:
        client.send(b"%d:" % client.client_id + bytes(700))
        cluster.run_until(lambda: client.is_settled)
        cluster.await_level()
    client.send(b"%d:" % client.client_id + bytes(left() - 64 - 64 - 2))
    cluster.run_until(lambda: client.is_settled)
    cluster.await_level()
    assert 0 < left() <= 64  # an event takes 96 or more
    first = cluster.leader
    first.kill()
    second = cluster.await_leader(3 * LONG_NS)
    first.start()
    cluster.await_level(3 * LONG_NS)
    cluster.run(SECOND)

    for member in cluster.members:
        written = [entry for entry in entries(member) if isinstance(entry, NewLeadershipTermEvent)]
        told = member.life.consensus_module.parts.histories.own
        assert len(written) == 2 and told.begin_position == 0
        assert [(e.leadership_term_id, e.term_base_log_position, e.log_session_id) for e in told.events] == [
            (e.leadership_term_id, e.term_base_log_position, e.log_session_id) for e in written
        ]
        assert [(e.timestamp, e.leader_member_id) for e in told.events] == [
            (e.timestamp, e.leader_member_id) for e in written
        ]
        assert told.committed_position > written[-1].term_base_log_position
    # The identity of a directory looks for it there, too.
    first.stop()
    archive = Archive.open(ARCHIVE, files=first.files, epoch_ms=lambda: 1)
    recording_log = RecordingLog.open(CLUSTER, files=first.files, find_recording=archive.find_recording)
    files = MemberFiles(archive, recording_log, None, None)
    keeper = IdentityKeeper(cluster.context_of(first.member_id), files, print)
    assert keeper._other_leader().leader_member_id == second.member_id


def test_what_is_known_to_be_committed_does_not_fall_in_an_election():
    """Only that the first entry of the term is committed is on the disk."""
    cluster = Parted()
    cluster.commit(b"later")
    cluster.await_level()
    cluster.run(SECOND)
    member = cluster.leader
    module = member.life.consensus_module
    before = module.parts.histories.committed_position
    assert before == member.commit_position > module.parts.histories._files.life.committed_position

    member.enter_election("test")

    assert member.election is not None
    assert module.parts.histories.committed_position == before
