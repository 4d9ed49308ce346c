"""A member that was stopped for a while (SIGSTOP, a paused machine) looks around before it acts.

cowsql/raft 99: what lay in the sockets meanwhile was answered for a term that was over.
"""

import pytest

from cluster.protocol.enums import ClusterControlToggle, ConsensusModuleState, Role
from tests.member.in_memory.cluster import MS, SECOND, SimulatedCluster


def a_cluster(members=3, **settings):
    cluster = SimulatedCluster(members, 1, **settings)
    cluster.await_leader(timeout_ns=90 * SECOND)
    client = cluster.add_client()
    client.send(b"0:before")
    cluster.await_settled()
    cluster.await_level()
    return cluster, client


def sleep(cluster, member, duration_ns):
    """The member is stopped so long; its sockets go on to fill."""
    member.pause()
    cluster.run(duration_ns)


def appended_by(cluster, member):
    """Step until the member has taken three turns again; how much it has appended by then."""
    before = member.append_position
    turns = member.turns
    member.resume()
    while member.turns < turns + 3:
        cluster.step()
    return member.append_position - before


@pytest.mark.parametrize("pause_s", [12, 30])
def test_a_leader_that_heard_nobody_for_10_s_stands_down_before_it_reads_anything(pause_s, monkeypatch):
    cluster, client = a_cluster()
    old = cluster.leader
    sleep(cluster, old, SECOND)
    client.send(b"0:in its socket")
    cluster.run(pause_s * SECOND)
    calls = []
    monkeypatch.setattr(old.links, "poll", lambda handler: calls.append(old.counters.node_role.get()) or 0)
    monkeypatch.setattr(old.clients, "poll", lambda handler: calls.append("ingress") or 0)

    old.take_turn()

    assert calls == [Role.FOLLOWER]
    assert not old.is_leading


@pytest.mark.parametrize("pause_s", [2, 5, 9])
def test_a_leader_that_was_replaced_meanwhile_takes_nothing_of_what_waits_for_it(pause_s):
    cluster, client = a_cluster()
    old = cluster.leader
    sleep(cluster, old, SECOND)
    client.send(b"0:in its socket")
    for member in cluster.followers:
        member.enter_election("test")  # they may think of another leader after a second of silence
    cluster.run((pause_s - 1) * SECOND)

    assert appended_by(cluster, old) == 0
    assert any("woke up after" in line for line in cluster.events)
    cluster.await_settled()
    cluster.await_level(60 * SECOND)
    cluster.check()
    cluster.check_promises()
    assert client.acknowledged == 2


def test_a_leader_takes_input_again_once_a_majority_has_reported_since():
    cluster, client = a_cluster()
    leader = cluster.leader
    term_id = leader.leadership_term_id
    leader.pause()
    for member in cluster.followers:
        cluster.links.block(member.member_id, leader.member_id)
    sleep(cluster, leader, 3 * SECOND)
    client.send(b"0:in its socket")
    assert appended_by(cluster, leader) == 0
    cluster.run(2 * SECOND)
    assert client.acknowledged == 1, "nobody has told it that its term goes on"

    cluster.links.heal()
    cluster.run(SECOND)

    assert client.acknowledged == 2
    assert cluster.leader is leader
    assert leader.leadership_term_id == term_id


def test_sessions_do_not_time_out_while_their_leader_sleeps():
    """Their keep-alives are in its sockets: whoever is asleep cannot tell who is silent."""
    cluster, client = a_cluster(session_timeout_ns=3 * SECOND)
    leader = cluster.leader
    sleep(cluster, leader, 6 * SECOND)
    leader.resume()
    cluster.run(2 * SECOND)

    assert cluster.leader is leader
    assert client.session_id in leader.sessions
    assert leader.counters.timed_out_clients.get() == 0


def test_the_only_member_goes_on_at_once():
    cluster, client = a_cluster(1)
    member = cluster.members[0]
    sleep(cluster, member, 20 * SECOND)
    client.send(b"0:in its socket")
    member.resume()
    cluster.run(10 * MS)

    assert client.acknowledged == 2


def test_a_follower_reads_what_its_leader_has_sent_before_it_calls_it_silent():
    cluster, client = a_cluster()
    sleeper = cluster.followers[0]
    elections = sleeper.counters.election_count.get()
    sleep(cluster, sleeper, 30 * SECOND)
    client.send(b"0:meanwhile")
    cluster.await_settled()
    sleeper.resume()
    cluster.await_level()

    assert sleeper.counters.election_count.get() == elections


def test_a_follower_whose_leader_fell_silent_meanwhile_says_so_a_second_later():
    cluster, _ = a_cluster()
    leader, sleeper = cluster.leader, cluster.followers[0]
    leader.pause()
    sleep(cluster, sleeper, 30 * SECOND)
    sleeper.resume()
    cluster.run(2 * SECOND)

    assert sleeper.leader_member_id != leader.member_id


def test_followers_that_slept_until_their_leader_stood_down_do_not_wait_for_it_to_speak():
    """Its heartbeats from before lie in their sockets; behind them, that it looks for a leader."""
    cluster, client = a_cluster()
    for member in cluster.followers:
        member.pause()
    client.send(b"0:meanwhile")
    cluster.run(12 * SECOND)
    assert cluster.leader is None
    for member in cluster.members:
        member.resume()
    cluster.run(3 * SECOND)

    assert client.acknowledged == 2
    cluster.check()
    cluster.check_promises()


def test_a_leader_that_is_ending_does_not_wait_for_followers_that_have_ended():
    cluster, _ = a_cluster()
    leader = cluster.leader
    leader.counters.control_toggle.set(ClusterControlToggle.ABORT)
    cluster.run_until(lambda: leader.module_state is ConsensusModuleState.TERMINATING)
    sleep(cluster, leader, 5 * SECOND)
    leader.resume()
    cluster.run(15 * SECOND)

    assert not leader.is_running
    assert leader.death == ""


@pytest.mark.conformance("C-17")
def test_a_suspended_leader_that_hears_nobody_is_none_for_long():
    """Aeron asks in state ACTIVE only; such a leader would keep the others waiting until it is resumed."""
    cluster, _ = a_cluster()
    leader = cluster.leader
    leader.counters.control_toggle.set(ClusterControlToggle.SUSPEND)
    cluster.run(100 * MS)
    for member in cluster.followers:
        cluster.links.block(member.member_id, leader.member_id)
    cluster.run(11 * SECOND)

    assert not leader.is_leading
    assert leader.module_state is ConsensusModuleState.SUSPENDED
