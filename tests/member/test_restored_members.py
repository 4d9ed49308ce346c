"""Members whose disk is not what it was: emptied, or restored from a copy."""

import pytest

from cluster.archive.files import replace
from cluster.errors import ClusterError
from cluster.member.disk.data_loss import DATA_LOSS_FILE_NAME, accept_data_loss
from cluster.protocol.counter_types import members_of
from tests.member.cluster_steps import wiped
from tests.member.in_memory.cluster import LONG_NS, QUICK, SECOND, SimulatedCluster
from tests.member.in_memory.member import DIRECTORY

NODE_STATE = f"{DIRECTORY}/cluster/node-state.dat"
PROMISES = f"{DIRECTORY}/cluster/promises.dat"


def a_cluster(seed=1):
    cluster = SimulatedCluster(3, seed, **QUICK)
    cluster.await_leader(timeout_ns=2 * LONG_NS)
    client = cluster.add_client()
    for number in range(20):
        client.send(b"0:%d" % number)
    cluster.await_settled()
    cluster.await_level()
    return cluster, client


def bytes_of(member, name):
    file = member.files.open(name)
    return file.pread(file.size(), 0)


def without_node_state(member):
    """As a backup's directory is: the log, the recording log, and no memory of votes."""
    member.files.unlink(NODE_STATE)


def test_a_restored_copy_of_the_log_has_no_vote_until_it_has_followed_a_leader():
    cluster, client = a_cluster()
    restored, other = cluster.followers
    restored.kill()
    other.kill()
    cluster.leader.kill()
    without_node_state(restored)
    restored.start()
    other.start()
    cluster.run(LONG_NS)
    assert cluster.leader is None, "two of three, one of which may have forgotten"
    assert any("its votes are not known" in line for line in cluster.events)

    [third] = [member for member in cluster.members if not member.is_running]
    third.start()
    cluster.await_leader()
    cluster.await_level()
    cluster.check()
    # From now on it counts, also after a restart.
    third.kill()
    restored.kill()
    restored.start()
    client.send(b"0:20")
    cluster.await_settled()
    assert restored.node_state.candidate_term_id >= 0


def test_where_all_were_restored_nobody_leads_until_the_memory_of_votes_is_restored_too():
    cluster, client = a_cluster()
    kept = {}
    for member in cluster.members:
        member.kill()
        kept[member.member_id] = {name: bytes_of(member, name) for name in (NODE_STATE, PROMISES)}
        without_node_state(member)
        member.start()
    cluster.run(LONG_NS)
    assert cluster.leader is None

    for member in cluster.members:
        member.kill()
        for name, data in kept[member.member_id].items():
            replace(member.files, name, data)
        member.start()
    cluster.await_leader()
    client.send(b"0:20")
    cluster.await_settled()
    cluster.await_level()
    cluster.check_promises()


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_a_wiped_member_comes_back_by_itself_while_the_cluster_works(who):
    cluster, client = a_cluster()
    victim = cluster.leader if who == "leader" else cluster.followers[0]
    wiped(victim)
    cluster.await_leader()
    client.send(b"0:20")
    cluster.await_settled()
    cluster.await_level()
    cluster.check()
    cluster.check_promises()


def awaited_by(member):
    """As ``cluster top`` reads it."""
    return members_of(member.counters.awaited_members.get())


def test_a_wiped_member_says_whom_it_waits_for_until_it_has_heard_them():
    cluster, _ = a_cluster()
    down, victim = cluster.followers
    down.kill()
    wiped(victim)
    cluster.run(5 * SECOND)
    assert awaited_by(victim) == [down.member_id]

    down.start()
    cluster.await_leader()
    cluster.await_level()
    assert awaited_by(victim) == []


class Watched(SimulatedCluster):
    """Looks after every turn whether a member shows what is so."""

    def after_turn(self, member):
        super().after_turn(member)
        assert awaited_by(member) == member.waits_for, f"member {member.member_id}, {self.events[-1]}"


@pytest.mark.parametrize("seed", range(4))
def test_members_of_a_new_cluster_show_at_all_times_whom_they_wait_for(seed):
    cluster = Watched(3, seed, **QUICK)
    cluster.await_leader(timeout_ns=2 * LONG_NS)
    assert [awaited_by(member) for member in cluster.members] == [[], [], []]


def test_so_does_a_wiped_member_whose_links_come_and_go():
    cluster = Watched(3, 1, **QUICK)
    cluster.await_leader(timeout_ns=2 * LONG_NS)
    cluster.await_level()
    down, victim = cluster.followers
    down.kill()
    wiped(victim)
    cluster.run(2 * SECOND)
    assert awaited_by(victim) == [down.member_id]
    leader = cluster.leader
    leader.kill()
    cluster.run(SECOND)
    assert awaited_by(victim) == sorted((leader.member_id, down.member_id))


def test_two_of_three_that_were_wiped_wait_until_an_operator_accepts_the_loss():
    cluster, client = a_cluster()
    one, other = cluster.followers
    wiped(one)
    wiped(other)
    cluster.run(LONG_NS)
    assert cluster.leader is None
    assert any("waits for members" in line for line in cluster.events)
    assert other.member_id in awaited_by(one) and one.member_id in awaited_by(other)

    one.kill()
    assert accept_data_loss(one.files, f"{DIRECTORY}/cluster", 7) == "its votes and what it had acknowledged"
    assert bytes_of(one, f"{DIRECTORY}/cluster/{DATA_LOSS_FILE_NAME}").startswith(b"7 ms, uid ")
    one.start()
    cluster.await_leader()
    client.send(b"0:20")
    cluster.await_settled()
    cluster.await_level()
    cluster.check()
    cluster.check_promises()


def test_a_member_that_has_forgotten_nothing_has_nothing_to_accept():
    cluster, _ = a_cluster()
    member = cluster.followers[0]
    member.kill()

    with pytest.raises(ClusterError, match="has forgotten nothing"):
        accept_data_loss(member.files, f"{DIRECTORY}/cluster", 7)


@pytest.mark.parametrize(("members", "lost", "down"), [(3, 1, 0), (5, 1, 1), (5, 2, 0), (7, 2, 1), (7, 3, 0)])
def test_so_many_that_lost_their_promises_beside_those_that_are_down_come_back_by_themselves(
    members, lost, down
):
    cluster = SimulatedCluster(members, 1, **QUICK)
    cluster.await_leader(timeout_ns=2 * LONG_NS)
    client = cluster.add_client()
    client.send(b"0:0")
    cluster.await_settled()
    away = cluster.followers
    for member in away[lost : lost + down]:
        member.kill()
    for member in away[:lost]:
        wiped(member)

    cluster.await_leader(timeout_ns=2 * LONG_NS)
    client.send(b"0:1")
    cluster.await_settled()
    cluster.await_level()
    cluster.check()
    cluster.check_promises()
    assert all(member.has_say for member in away[:lost])


@pytest.mark.parametrize(
    ("members", "lost", "down"),
    [
        (3, 1, 1),
        (3, 2, 0),
        (5, 1, 2),
        pytest.param(5, 2, 1, marks=pytest.mark.slow),
        pytest.param(7, 4, 0, marks=pytest.mark.slow),
    ],
)
def test_with_fewer_nobody_leads(members, lost, down):
    cluster = SimulatedCluster(members, 1, **QUICK)
    cluster.await_leader(timeout_ns=2 * LONG_NS)
    cluster.await_level()
    away = cluster.followers
    for member in away[lost : lost + down]:
        member.kill()
    for member in away[:lost]:
        wiped(member)
    cluster.run(LONG_NS)

    assert cluster.leader is None
    assert not any(member.has_say for member in away[:lost])
