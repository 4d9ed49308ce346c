"""Members whose logs are of two histories: neither takes anything of the other, and both say why."""

from dataclasses import replace

import pytest

from cluster.archive.node_state_file import NodeStateFile
from cluster.member.disk.identity_keeper import IdentityKeeper
from tests.member.in_memory.cluster import LONG_NS, QUICK, SECOND, SimulatedCluster
from tests.member.in_memory.member import log_bytes


class Parted(SimulatedCluster):
    """A cluster whose members may be started with another list of members."""

    def __init__(self, *arguments, **settings):
        self.list_of = {}
        super().__init__(*arguments, **(QUICK | settings))
        self.await_leader(timeout_ns=2 * LONG_NS)
        self.commit(b"first")
        self.await_level()

    def context_of(self, member_id):
        context = super().context_of(member_id)
        return replace(context, member_ids=self.list_of.get(member_id, context.member_ids))

    def after_turn(self, member):
        pass

    def on_applied(self, member_id, position, chain):
        pass

    def stop(self):
        for member in self.members:
            member.stop()

    def commit(self, text):
        """By a client of its own, which is told that it is, and goes."""
        client = self.add_client()
        client.send(b"%d:" % client.client_id + text)
        self.run_until(lambda: client.acknowledged == 1, 2 * LONG_NS)
        client.close()
        client.is_lost = True

    def run_alone(self, *ids, lives=1):
        """Start these with a list of themselves, and let them commit something in each of their lives."""
        members = [self.members[id_] for id_ in ids]
        for _ in range(lives):
            for member in members:
                self.list_of[member.member_id] = ids
                member.start()
            self.run_until(lambda: any(member.is_leading for member in members), 3 * LONG_NS)
            leader = next(member for member in members if member.is_leading)
            begin = leader.append_position
            self.commit(b"alone")
            assert leader.commit_position > begin
            self.stop()
        self.list_of.clear()

    def start(self, *ids):
        for id_ in ids or range(self.member_count):
            self.members[id_].start()

    def told(self, member, text):
        return [line for line in self.events if line.startswith(f"{member.name}: ") and text in line]


@pytest.fixture(autouse=True)
def _no_identity(monkeypatch):
    """Directories that are not known to be of a cluster, as those of the release before."""
    monkeypatch.setattr(IdentityKeeper, "stated", ())
    for name in ("_check", "_check_may_be_alone"):
        monkeypatch.setattr(IdentityKeeper, name, lambda *_, **__: None)


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
