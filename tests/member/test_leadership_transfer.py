"""A leader hands over to a follower: at once, with all sessions, or not at all."""

import pytest

from cluster.consensus.context import NULL_VALUE
from cluster.member.control import transfer_target, transfer_toggle
from cluster.protocol.enums import ClusterControlToggle
from cluster.protocol.link import TransferLeadership
from cluster.testing.world import MS, SECOND
from tests.member.cluster_steps import a_cluster, entries, send


def hand_over(cluster, target_id=NULL_VALUE):
    """Ask the leader to; returns it."""
    leader = cluster.leader
    leader.counters.control_toggle.set(transfer_toggle(target_id))
    return leader


def a_busy(members=3, **settings):
    cluster = a_cluster(members, **settings)
    cluster.add_client()
    send(cluster, 20)
    return cluster


def another(cluster):
    return next(m for m in cluster.members if m is not cluster.leader and m.is_running)


@pytest.mark.parametrize("members", [3, 5])
def test_the_member_that_is_named_leads_next_and_the_sessions_stay(members):
    cluster = a_busy(members)
    for _ in range(4):
        target = another(cluster)
        before = hand_over(cluster, target.member_id)
        begun_ns = cluster.world.now_ns
        cluster.run_until(lambda target=target: target.is_leading)
        assert cluster.world.now_ns - begun_ns < 200 * MS, "no time-out was waited for"
        cluster.await_level()
        send(cluster, 20)
        assert before.counters.control_toggle.get() == ClusterControlToggle.INACTIVE
    names = [type(entry).__name__ for entry in entries(cluster.leader)]
    assert names.count("NewLeadershipTermEvent") == 5
    assert names.count("SessionOpenEvent") == 1 and "SessionCloseEvent" not in names
    cluster.check()


def test_without_a_name_the_best_follower_leads_next():
    cluster = a_busy()
    before = hand_over(cluster)
    cluster.run_until(lambda: cluster.leader not in (None, before))
    send(cluster, 20)
    cluster.check()


@pytest.mark.parametrize("seed", range(4))
def test_a_member_that_has_just_started_leads_next(seed):
    """It counts as gone, whom nobody waits for, until its link has been up for a second."""
    cluster = a_busy(seed=seed)
    target = another(cluster)
    target.kill()
    cluster.run(SECOND)
    target.start()
    cluster.run_until(lambda: target.commit_position == cluster.leader.commit_position)
    hand_over(cluster, target.member_id)
    cluster.run_until(lambda: target.is_leading)
    assert target.leadership_term_id == 1


def test_messages_on_their_way_are_committed_once_and_in_order():
    cluster = a_busy()
    client = cluster.clients[0]
    for round_ in range(4):
        for _ in range(100):
            client.send(b"0:%d:" % len(client.sent) + bytes(200))
        cluster.run(3 * MS)
        before = hand_over(cluster)
        cluster.run_until(lambda before=before: cluster.leader not in (None, before))
        assert not client.is_lost, round_
    cluster.await_settled()
    cluster.await_level()
    cluster.check()
    cluster.check_promises()


@pytest.mark.parametrize(("lag_ns", "answers"), [(300 * MS, 30), (20 * SECOND, 20)])
def test_the_leaders_service_answers_what_is_committed_before_another_one_leads(lag_ns, answers):
    """The next leader's has processed it by then, and answers none of it. A stuck one is not waited for."""
    cluster = a_busy()
    leader, client = cluster.leader, cluster.clients[0]
    leader.stall_service()
    for _ in range(10):
        client.send(b"0:%d:" % len(client.sent))
    cluster.await_settled()
    hand_over(cluster)
    begun_ns = cluster.world.now_ns
    cluster.after(lag_ns, leader.release_service)
    cluster.run_until(lambda: cluster.leader not in (None, leader))
    assert cluster.world.now_ns - begun_ns < SECOND
    cluster.run(SECOND)
    assert client.echoed == client.sent[:answers]


@pytest.mark.parametrize("wrong", ["itself", "nobody", "one that is down"])
def test_a_leader_that_nobody_can_follow_goes_on(wrong):
    cluster = a_busy()
    leader, down = cluster.leader, another(cluster)
    if wrong == "one that is down":
        down.kill()
        cluster.run(15 * SECOND)
    target_id = {"itself": leader.member_id, "nobody": 77, "one that is down": down.member_id}[wrong]
    term_id = leader.leadership_term_id
    hand_over(cluster, target_id)
    cluster.run(2 * SECOND)
    assert cluster.leader is leader and leader.leadership_term_id == term_id
    assert leader.counters.control_toggle.get() == ClusterControlToggle.NEUTRAL
    client = cluster.clients[0]
    client.send(b"0:%d:" % len(client.sent))
    cluster.await_settled()


def test_the_only_member_goes_on():
    cluster = a_busy(1)
    leader = hand_over(cluster)
    cluster.run(SECOND)
    assert leader.is_leading
    assert leader.counters.control_toggle.get() == ClusterControlToggle.NEUTRAL
    send(cluster, 1)


@pytest.mark.slow
def test_a_member_that_does_not_know_the_message_leaves_everything_as_it_is(monkeypatch):
    """As one of an earlier release: its leader takes input again after an election timeout."""
    cluster = a_busy()
    target = another(cluster)
    agent = target.agent
    on_message = agent.on_message
    monkeypatch.setattr(
        agent,
        "on_message",
        lambda id_, m: None if isinstance(m, TransferLeadership) else on_message(id_, m),
    )
    leader = hand_over(cluster, target.member_id)
    cluster.run(50 * MS)
    client = cluster.clients[0]
    client.send(b"0:%d:" % len(client.sent))
    position = leader.commit_position
    cluster.run(500 * MS)
    assert leader.commit_position == position, "it is waited for"
    cluster.run(SECOND)
    assert cluster.leader is leader
    assert leader.counters.control_toggle.get() == ClusterControlToggle.NEUTRAL
    cluster.await_settled()


def test_a_target_that_dies_when_it_is_asked_costs_an_election_and_nothing_else():
    cluster = a_busy()
    target = another(cluster)
    hand_over(cluster, target.member_id)
    cluster.run_until(lambda: target.leadership_term_id >= 0 and not cluster.leader)
    target.kill()
    cluster.await_leader()
    cluster.await_settled()
    cluster.check_promises()


@pytest.mark.parametrize("is_asked", [False, True])
def test_of_a_target_that_has_died_the_leader_goes_on_at_once(monkeypatch, is_asked):
    cluster = a_busy()
    target = another(cluster)
    message = "on_message" if is_asked else "send"
    leader = hand_over(cluster, target.member_id)
    if is_asked:  # and says nothing
        monkeypatch.setattr(target.agent, message, lambda id_, m: None)
    else:  # it is not level
        monkeypatch.setattr(target.agent.parts.links, message, lambda id_, *buffers: 1)
    client = cluster.clients[0]
    client.send(b"0:%d:" % len(client.sent))
    cluster.run_until(lambda: leader.agent.parts.transfer.target_id == target.member_id)
    cluster.run(20 * MS)
    assert leader.agent.parts.transfer._is_asked == is_asked
    target.kill()
    begun_ns = cluster.world.now_ns
    cluster.run_until(lambda: leader.agent.parts.transfer.target_id == NULL_VALUE)
    assert cluster.world.now_ns - begun_ns < 100 * MS
    cluster.await_settled()
    assert cluster.leader is leader


def test_the_toggle_has_the_member_beside_the_action():
    assert [transfer_target(transfer_toggle(id_)) for id_ in (NULL_VALUE, 0, 6)] == [-1, 0, 6]
    assert [transfer_target(toggle) for toggle in ClusterControlToggle] == [None] * 8
