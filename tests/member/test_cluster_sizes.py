"""Clusters of every size, members that lag by whole terms, and a leader that is appointed."""

import pytest

from cluster.counters import Counter
from cluster.protocol.enums import ElectionState
from tests.member.in_memory.cluster import LONG_NS, MS, QUICK, SECOND, SimulatedCluster


def a_cluster(members=3, seed=1, **settings):
    cluster = SimulatedCluster(members, seed, **settings)
    cluster.await_leader(timeout_ns=90 * SECOND)
    client = cluster.add_client()
    cluster.await_settled()
    return cluster, client


def send(cluster, client, count=20, size=200):
    for _ in range(count):
        client.send(b"0:%d " % len(client.sent) + bytes(size))
    cluster.await_settled()


@pytest.mark.conformance("C-164")
@pytest.mark.parametrize(
    "members",
    [1, 2, 3, 4, 5, pytest.param(6, marks=pytest.mark.slow), pytest.param(7, marks=pytest.mark.slow)],
)
def test_a_cluster_works_until_its_majority_is_gone_and_again_when_it_is_back(members):
    cluster, client = a_cluster(members, **QUICK)
    send(cluster, client)
    spare = members - (members // 2 + 1)
    killed = []
    for _ in range(spare):
        killed.append(cluster.leader)
        cluster.leader.kill()
        cluster.await_leader()
        send(cluster, client)
    cluster.await_level()
    cluster.check()

    one_too_many = cluster.leader
    one_too_many.kill()
    client.send(b"0:%d" % len(client.sent))
    acknowledged = client.acknowledged
    cluster.run(5 * SECOND)
    assert cluster.leader is None
    assert client.acknowledged == acknowledged

    for member in [*killed, one_too_many]:
        member.start()
    cluster.await_leader(90 * SECOND)
    send(cluster, client)
    cluster.await_level(60 * SECOND)
    cluster.check()
    cluster.check_promises()
    assert len(cluster.followers) == members - 1


@pytest.mark.conformance("C-139")
@pytest.mark.parametrize("terms", [1, 2, 7])
def test_a_member_behind_by_whole_terms_fetches_them_one_by_one(terms):
    cluster, client = a_cluster()
    send(cluster, client)
    behind = cluster.followers[0]
    behind.kill()
    base = cluster.leader.leadership_term_id
    for _ in range(terms):
        cluster.leader.enter_election("test")
        cluster.await_leader()
        send(cluster, client)
    last = cluster.leader.leadership_term_id
    assert last >= base + terms

    cluster.events.clear()
    behind.start()
    cluster.run_until(lambda: behind.is_following)
    told = [line for line in cluster.events if f"member {behind.member_id}: election" in line]
    rounds = sum("FOLLOWER_LOG_REPLICATION -> CANVASS" in line for line in told)
    assert last - base - 1 <= rounds <= last - base + 1, "one round for each closed term that it lacks"
    cluster.await_level()
    cluster.check()
    entries = [m.recording_log.entries for m in (behind, cluster.leader)]
    of = [[(e.leadership_term_id, e.term_base_log_position, e.log_position) for e in es] for es in entries]
    assert of[0] == of[1]


@pytest.mark.slow
@pytest.mark.conformance("C-61")
def test_an_appointed_leader_leads_whenever_it_is_there_and_nobody_in_its_place():
    cluster, client = a_cluster(appointed_leader_id=2, **QUICK)
    assert cluster.leader.member_id == 2
    send(cluster, client)
    for _ in range(3):
        cluster.await_level()
        cluster.members[2].kill()
        cluster.run(LONG_NS)
        assert cluster.leader is None
        cluster.members[2].start()
        assert cluster.await_leader().member_id == 2
        send(cluster, client)
    cluster.await_level()
    cluster.check_promises()


def test_an_appointed_leader_that_lost_what_one_other_has_leads_by_the_vote_of_the_rest():
    """That one refuses it and may not lead itself. What only a minority has nobody was ever told of."""
    cluster, _ = a_cluster(appointed_leader_id=2, **QUICK)
    cluster.await_level()
    one, other, leader = cluster.members
    leader.kill()
    cluster.run(5 * SECOND)
    leader.start()
    cluster.run_until(lambda: leader.election_state is ElectionState.LEADER_LOG_REPLICATION)
    leader.stall_service()
    cluster.run(50 * MS)
    leader.release_service()  # the others follow: what it writes goes out before it is synced
    while not leader.is_leading:
        cluster.step()
    safe = leader.synced_position  # the first entry of its term is on its way, and not synced
    cluster.links.block(leader.member_id, other.member_id)
    leader.pause()
    cluster.run_until(lambda: one.append_position > safe)
    assert leader.synced_position == safe
    leader.power_cut()
    cluster.run(SECOND)
    assert one.append_position > safe == other.append_position
    cluster.links.heal()
    leader.start()

    assert cluster.await_leader(timeout_ns=90 * SECOND) is leader
    cluster.await_settled()
    cluster.await_level()
    cluster.check_promises()


def test_an_election_is_shown_as_closed_behind_its_term(monkeypatch):
    """Counters are read at any moment: who sees a leader sees the term that it leads."""
    terms = []
    set_counter = Counter.set

    def watched(counter, value):
        set_counter(counter, value)
        for counters in (member.life.counters for member in cluster.members if member.life is not None):
            if counter is counters.election_state and value == ElectionState.CLOSED:
                terms.append(counters.leadership_term_id.get())

    cluster = SimulatedCluster(3, 1)
    monkeypatch.setattr(Counter, "set", watched)
    cluster.await_leader(timeout_ns=90 * SECOND)
    cluster.await_settled()

    assert set(terms) == {0}
