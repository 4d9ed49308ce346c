"""A leader whose service is away hands over to a level member whose services are there, and else goes on."""

import pytest

from cluster.consensus.context import NULL_VALUE
from cluster.member.control import transfer_toggle
from cluster.protocol import decode
from cluster.protocol.enums import ClusterControlToggle
from cluster.protocol.frame import HEADER_LENGTH
from cluster.protocol.link import ClockReply, ClockRequest, ServicesAway
from cluster.testing.world import MS, SECOND
from tests.member.cluster_steps import a_cluster, send, set_away, toggle

TIMEOUT_NS = 2 * SECOND  # of heartbeats


def a_busy(members=3):
    cluster = a_cluster(members, leader_heartbeat_timeout_ns=TIMEOUT_NS)
    cluster.add_client()
    send(cluster, 20)
    return cluster


def others(cluster):
    return [member for member in cluster.members if member is not cluster.leader]


@pytest.fixture
def cluster():
    return a_busy()


def test_it_hands_over_after_the_timeout_to_the_one_whose_services_are_there(cluster):
    leader, (absent, there) = cluster.leader, others(cluster)
    set_away(leader)
    set_away(absent)
    begun_ns = cluster.world.now_ns
    cluster.run_until(lambda: there.is_leading)
    assert TIMEOUT_NS <= cluster.world.now_ns - begun_ns < TIMEOUT_NS + 300 * MS
    send(cluster, 20)
    assert not cluster.clients[0].is_lost
    cluster.check()


@pytest.mark.parametrize("why", ["away", "of a release that says nothing", "down"])
def test_where_no_services_are_there_nothing_happens(cluster, why, monkeypatch):
    leader, term_id = cluster.leader, cluster.leader.leadership_term_id
    for other in others(cluster):
        if why == "away":
            set_away(other)
        elif why == "down":
            other.kill()
            break
        else:
            agent = other.agent
            monkeypatch.setattr(
                agent,
                "on_message",
                lambda id_, m, take=agent.on_message: None if isinstance(m, ClockRequest) else take(id_, m),
            )
            leader.agent.parts.members[other.member_id].serves_clients = False  # as after a lost link
    if why == "down":
        set_away(next(member for member in others(cluster) if member.is_running))
    set_away(leader)
    cluster.run(3 * TIMEOUT_NS)
    assert cluster.leader is leader and leader.leadership_term_id == term_id
    client = cluster.clients[0]
    client.send(b"0:%d:" % len(client.sent))
    cluster.await_settled()


def test_a_member_whose_service_is_away_says_so_with_each_answer_that_else_says_it_is_there(
    cluster, monkeypatch
):
    other, sent = others(cluster)[0], []
    set_away(other)
    links = other.agent.parts.links
    send_buffers = links.send
    monkeypatch.setattr(links, "send", lambda id_, *frames: sent.append(frames) or send_buffers(id_, *frames))
    cluster.run(SECOND)
    kinds = [[type(decode(f, HEADER_LENGTH, len(f) - HEADER_LENGTH)) for f in frames] for frames in sent]
    answers = [of_one for of_one in kinds if ClockReply in of_one]
    assert answers == [[ClockReply, ServicesAway]] * len(answers) and answers


def test_a_service_that_is_back_within_the_timeout_changes_nothing(cluster):
    leader = cluster.leader
    for _ in range(3):
        set_away(leader)
        cluster.run(TIMEOUT_NS - 100 * MS)
        set_away(leader, False)
        cluster.run(100 * MS)
    assert cluster.leader is leader


def test_it_waits_for_a_member_that_is_level(cluster):
    leader, (slow, absent) = cluster.leader, others(cluster)
    set_away(leader)
    set_away(absent)
    slow.kill()
    send_without_settling(cluster)
    cluster.run(TIMEOUT_NS + SECOND)
    assert cluster.leader is leader
    slow.start()
    cluster.run_until(lambda: slow.is_leading)
    cluster.await_level()
    cluster.check()


def send_without_settling(cluster):
    client = cluster.clients[0]
    for _ in range(20):
        client.send(b"0:%d:" % len(client.sent) + bytes(200))


def test_two_whose_services_come_and_go_hand_over_no_more_than_once_in_a_timeout(cluster):
    """Each leader's service dies as it begins to lead, and the others' are back by then."""
    led, began_ns = [], cluster.world.now_ns
    while cluster.world.now_ns - began_ns < 7 * TIMEOUT_NS // 2:
        leader = cluster.leader
        if leader is not None and leader not in led[-1:]:
            led.append(leader)
            for member in cluster.members:
                set_away(member, member is leader)
        cluster.run(10 * MS)
    assert len(led) == 4, "three hand-overs in three and a half timeouts"


def test_a_hand_over_that_comes_to_nothing_is_tried_again_after_the_timeout(cluster, monkeypatch):
    leader, asked_ns = cluster.leader, []
    monkeypatch.setattr(
        leader.agent.parts.transfer, "begin", lambda *_: asked_ns.append(cluster.world.now_ns)
    )
    set_away(leader)
    for _ in range(3):
        cluster.run_until(lambda: asked_ns)
        toggle(cluster, ClusterControlToggle.NEUTRAL)  # it is given up
        asked_ns.clear()
        cluster.run(TIMEOUT_NS - 100 * MS)
        assert not asked_ns


def test_what_an_operator_asks_for_goes_first(cluster):
    leader = cluster.leader
    toggle(cluster, ClusterControlToggle.SUSPEND)
    cluster.run(100 * MS)
    set_away(leader)
    cluster.run(2 * TIMEOUT_NS)
    assert cluster.leader is leader
    toggle(cluster, ClusterControlToggle.RESUME)
    cluster.run_until(lambda: cluster.leader not in (None, leader))


def test_a_hand_over_to_nobody_in_particular_goes_to_a_member_whose_services_are_there(cluster):
    best, there = sorted(others(cluster), key=lambda member: member.member_id)
    set_away(best)
    cluster.run(200 * MS)
    toggle(cluster, transfer_toggle(NULL_VALUE))
    cluster.run_until(lambda: there.is_leading)


def test_the_only_member_goes_on():
    cluster = a_busy(1)
    set_away(cluster.leader)
    cluster.run(2 * TIMEOUT_NS)
    assert cluster.leader is not None
    send(cluster, 1)
