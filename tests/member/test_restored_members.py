"""Members whose disk is not what it was: emptied, or restored from a copy (rule 1.5)."""

import pytest

from cluster.archive.files import replace
from tests.member.in_memory.cluster import SECOND, SimulatedCluster
from tests.member.in_memory.member import DIRECTORY

NODE_STATE = f"{DIRECTORY}/cluster/node-state.dat"
PROMISES = f"{DIRECTORY}/cluster/promises.dat"


def a_cluster(seed=1):
    cluster = SimulatedCluster(3, seed)
    cluster.await_leader(timeout_ns=90 * SECOND)
    client = cluster.add_client()
    for number in range(20):
        client.send(b"0:%d" % number)
    cluster.await_settled()
    cluster.await_level()
    return cluster, client


def bytes_of(member, name):
    file = member.disk.open(name)
    return file.pread(file.size(), 0)


def without_node_state(member):
    """As a backup's directory is: the log, the recording log, and no memory of votes."""
    for names in (member.disk._inodes, member.disk._durable_names):
        assert names.pop(NODE_STATE)


def test_a_restored_copy_of_the_log_has_no_vote_until_it_has_followed_a_leader():
    cluster, client = a_cluster()
    restored, other = cluster.followers
    restored.kill()
    other.kill()
    cluster.leader.kill()
    without_node_state(restored)
    restored.start()
    other.start()
    cluster.run(90 * SECOND)
    assert cluster.leader is None, "two of three, one of which may have forgotten"
    assert any("its votes are not known" in line for line in cluster.world.events)

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
    assert restored.agent.node_state.candidate_term_id >= 0


def test_where_all_were_restored_nobody_leads_until_the_memory_of_votes_is_restored_too():
    cluster, client = a_cluster()
    kept = {}
    for member in cluster.members:
        member.kill()
        kept[member.member_id] = {name: bytes_of(member, name) for name in (NODE_STATE, PROMISES)}
        without_node_state(member)
        member.start()
    cluster.run(90 * SECOND)
    assert cluster.leader is None

    for member in cluster.members:
        member.kill()
        for name, data in kept[member.member_id].items():
            replace(member.disk, name, data)
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
    victim.kill()
    for names in (victim.disk._inodes, victim.disk._durable_names):
        names.clear()
    victim.start()
    cluster.await_leader()
    client.send(b"0:20")
    cluster.await_settled()
    cluster.await_level()
    cluster.check()
    cluster.check_promises()
