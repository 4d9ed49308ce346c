"""Histories that cost others their data, with the bytes, disks and services of whole members.

Numbers are those of the reports (aeron-io/aeron, etcd-io/etcd, bakwc/PySyncObj). The elections alone play
some of them in ``tests/consensus/test_histories.py``.
"""

import pytest

from tests.member.in_memory.cluster import MS, SECOND, SimulatedCluster


def a_cluster(*, seed, members=3, **settings):
    cluster = SimulatedCluster(members, seed, **settings)
    cluster.await_leader(timeout_ns=90 * SECOND)
    client = cluster.add_client()
    client.send(b"0:first")
    cluster.await_settled()
    cluster.await_level()
    return cluster, client


def all_is_kept(cluster):
    cluster.await_settled()
    cluster.await_level(60 * SECOND)
    cluster.check()
    cluster.check_promises()


def payloads(member):
    return [] if member.service is None else member.service.applied


@pytest.mark.parametrize(
    "steps", [0, 30, 200, *(pytest.param(steps, marks=pytest.mark.slow) for steps in (10, 60, 100, 400, 800))]
)
@pytest.mark.parametrize("is_answer_slow", [True, False])
def test_a_2147_a_tail_of_an_older_term_never_stands_for_an_entry(steps, is_answer_slow):
    """The seven steps of the report: m3's longer log of the old term must not commit what m2 wrote alone."""
    cluster, client = a_cluster(seed=2147)
    links = cluster.links
    m3 = cluster.leader
    m1, m2 = cluster.followers
    # 1: m3 writes what reaches nobody, of a client that goes away, too. 2: it goes down.
    gone = cluster.add_client()
    cluster.await_settled()
    for other in (m1, m2):
        links.block(m3.member_id, other.member_id)
    for number in range(30):
        gone.send(b"1:lost %d " % number + bytes(300))
    cluster.run(20 * MS)
    tail = m3.append_position
    assert tail > m1.append_position + 9_000
    gone.is_lost = True
    m3.kill()
    # 3: one of the others is elected. 4: it writes what does not reach its follower.
    leader = cluster.await_leader()
    links.heal()
    [follower] = cluster.followers
    cluster.run_until(lambda: client.is_open)
    cluster.await_level()
    links.block(leader.member_id, follower.member_id)
    client.send(b"0:two")
    cluster.run(5 * MS)
    assert client.acknowledged < len(client.sent)
    # 5: m3 comes up, its tail still there; the leader hears that, and its answer is long in coming.
    m3.start()
    cluster.run_until(lambda: m3.links.is_up(leader.member_id))
    if is_answer_slow:
        links.block(leader.member_id, m3.member_id)
    for _ in range(steps):
        cluster.step()
    # 6: the leader goes down. 7: the other two elect one of them.
    leader.kill()
    cluster.await_leader(60 * SECOND)
    links.heal()
    leader.start()
    all_is_kept(cluster)


@pytest.mark.parametrize("steps", range(0, 400, 25))
def test_a_1903_what_services_offer_is_in_the_log_once_whenever_the_leader_dies(steps):
    """Each service offers the same to its cluster; the next leader goes on where the log is."""
    cluster, client = a_cluster(seed=steps)
    for number in range(30):
        client.send(b"again %d" % number)
    for _ in range(steps):
        cluster.step()
    dead = cluster.leader
    dead.kill()
    cluster.await_leader()
    dead.start()
    client.send(b"again 30")
    cluster.await_settled()
    cluster.run(SECOND)
    cluster.await_level()
    cluster.check()

    for member in cluster.members:
        offered = [payload for payload in payloads(member) if payload.isdigit()]
        asked = [payload[6:] for payload in payloads(member) if payload.startswith(b"again")]
        assert offered == asked == [b"%d" % number for number in range(31)]


def test_a_1923_a_leader_whose_service_lags_hands_it_the_log_from_where_it_is():
    """Its module has processed more than its service; the new join must not skip what lies between."""
    cluster, client = a_cluster(seed=1923)
    slow, other = cluster.followers
    slow.stall_service()
    for number in range(100):
        client.send(b"0:%d " % number + bytes(500))
    cluster.await_settled()
    cluster.run(SECOND)
    lag = slow.commit_position - slow.service_agent.joined_position
    assert lag > 50_000

    cluster.leader.kill()
    other.enter_election("test")
    other.pause()
    cluster.run(2 * SECOND)
    slow.release_service()
    other.resume()
    cluster.await_leader(60 * SECOND)
    for member in cluster.members:
        if not member.is_running:
            member.start()
    client.send(b"0:last")
    all_is_kept(cluster)
    assert payloads(slow)[-1] == b"0:last"
    assert len(payloads(slow)) == 102


@pytest.mark.parametrize("steps", range(0, 200, 20))
def test_e_14370_the_only_member_has_on_its_disk_what_it_acknowledged(steps):
    cluster, client = a_cluster(seed=steps, members=1)
    member = cluster.members[0]
    for number in range(50):
        client.send(b"0:%d" % number)
    for _ in range(steps):
        cluster.step()
    acknowledged = client.acknowledged
    member.power_cut()
    member.start()
    cluster.await_leader()
    cluster.await_settled()
    cluster.await_level()

    assert payloads(member)[:acknowledged] == client.sent[:acknowledged]
    cluster.check_promises()


@pytest.mark.parametrize("steps", range(0, 400, 50))
def test_p_84_what_was_acknowledged_outlives_a_power_cut_of_all(steps):
    """A log that is not on the disk of a majority before the acknowledgement is lost with their power."""
    cluster, client = a_cluster(seed=steps)
    for number in range(60):
        client.send(b"0:%d" % number)
    for _ in range(steps):
        cluster.step()
    for member in cluster.members:
        member.power_cut()
    for member in cluster.members:
        member.start()
    cluster.await_leader()
    all_is_kept(cluster)


@pytest.mark.conformance("C-143", "C-144")
@pytest.mark.parametrize("cut", [1, 40, 100])
def test_a_divergent_tail_is_cut_off_and_the_services_go_on_behind_it(cut):
    """The old leader's services have seen nothing of what it wrote alone; its term ends at the cut."""
    cluster, client = a_cluster(seed=cut)
    old = cluster.leader
    for other in cluster.followers:
        cluster.links.block(old.member_id, other.member_id)
    for number in range(cut):
        client.send(b"0:%d " % number + bytes(100))
    cluster.run(50 * MS)
    begin = old.commit_position
    assert old.append_position > begin
    old.kill()
    cluster.await_leader()
    cluster.links.heal()
    cluster.await_settled()
    old.start()
    cluster.run_until(lambda: any(f"log cut to {begin}" in line for line in cluster.events))
    assert old.append_position == begin
    assert old.recording_log.find_last_term().log_position == begin
    cluster.run_until(lambda: old.is_following)
    joined = old.service_agent.joined_position
    all_is_kept(cluster)

    assert joined >= begin
    [first, *_] = [entry for entry in old.recording_log.entries if entry.leadership_term_id == 0]
    assert first.log_position == begin
