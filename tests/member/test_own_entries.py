"""Timers and messages of services, which a leader appends before what clients send."""

import pytest

from cluster.member.phases import leading
from cluster.protocol.session import SessionMessageHeader
from tests.member.cluster_steps import a_cluster
from tests.member.spy import Spy


@pytest.fixture
def spy(monkeypatch):
    return Spy(monkeypatch)


def test_a_turn_appends_all_that_services_and_timers_have(spy):
    cluster = a_cluster()
    agent = cluster.leader.agent
    for number in range(100):
        agent.replica.timers.schedule(number, 0)
        agent.replica.trackers[0].enqueue(SessionMessageHeader(0, 0, 0).encode() + b"offered")
    spy.on(agent.parts.clients, "poll", "ingress")

    assert spy.turn(cluster.leader) == ["ingress"]
    assert not len(agent.replica.timers) and not agent.replica.trackers[0].has_unappended


@pytest.mark.parametrize("what", ["timers", "messages"])
def test_clients_wait_for_what_a_turn_does_not_append_of_these_but_not_for_ever(what, spy, monkeypatch):
    monkeypatch.setattr(leading, "OWN_BYTES_PER_TURN", 1)  # 20 of them
    cluster = a_cluster()
    agent = cluster.leader.agent
    count = 20 * 2 * leading.WAITING_TURNS_MAX
    for number in range(count):
        if what == "timers":
            agent.replica.timers.schedule(number, 0)
        else:
            agent.replica.trackers[0].enqueue(SessionMessageHeader(0, 0, 0).encode() + b"offered")
    spy.on(agent.parts.clients, "poll", "ingress")

    polled = [bool(spy.turn(cluster.leader)) for _ in range(count // 20)]
    waiting = [False] * leading.WAITING_TURNS_MAX
    assert polled == [*waiting, True, *waiting[2:], True]
