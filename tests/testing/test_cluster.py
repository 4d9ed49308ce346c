"""``cluster.testing``: members as in production, in memory, for the tests of somebody's service."""

from __future__ import annotations

import pytest

from cluster.errors import MembersApart, TimedOut
from cluster.testing import SimulatedCluster
from tests.testing.services import Counter, ForgetsItsState, GoesByChance, GoesByItsMember, Raises


def test_a_client_is_answered():
    cluster = SimulatedCluster(Counter)
    alice = cluster.connect("alice")
    alice.offer(b"one")
    alice.offer(b"two")
    cluster.settle()

    assert alice.answers == [b"1", b"2"]
    assert [cluster.service(member_id).count for member_id in range(3)] == [2, 2, 2]


def test_time_passes_only_when_it_is_let_and_timers_fire_then():
    cluster = SimulatedCluster(Counter)
    alice = cluster.connect()
    alice.offer(b"x")
    cluster.settle()
    began = cluster.time
    cluster.run(4.5)
    before = cluster.service(0).count
    cluster.run(1.0)

    assert cluster.time == began + 5_500
    assert (before, cluster.service(0).count) == (1, 1_001)


def test_a_killed_leader_is_followed_by_another_and_no_message_is_lost():
    cluster = SimulatedCluster(Counter)
    alice = cluster.connect()
    alice.offer(b"x")
    cluster.settle()
    old = cluster.leader
    cluster.kill(old)
    alice.offer(b"y")
    cluster.settle()

    assert cluster.leader not in (None, old)
    assert alice.take_answers() == [b"1", b"2"]
    assert sorted(cluster.running) == sorted({0, 1, 2} - {old})
    cluster.check()


def test_a_member_comes_back_from_the_snapshot_and_the_log_behind_it():
    cluster = SimulatedCluster(Counter)
    alice = cluster.connect()
    alice.offer(b"x")
    cluster.take_snapshot()
    alice.offer(b"y")
    cluster.settle()
    for member_id in range(3):
        cluster.kill(member_id)
    for member_id in range(3):
        cluster.start(member_id)
    cluster.check()

    assert cluster.state(0) == cluster.state(1) == cluster.state(2)
    assert "starts from the snapshot" in "\n".join(cluster.story)
    assert cluster.service(0).count % 1_000 == 2


def test_a_wiped_member_gets_everything_from_the_others():
    cluster = SimulatedCluster(Counter)
    alice = cluster.connect()
    alice.offer(b"x")
    cluster.settle()
    follower = (cluster.leader + 1) % 3
    cluster.kill(follower)
    cluster.wipe(follower)
    cluster.start(follower)
    cluster.check()

    assert cluster.service(follower).count == 1


def test_an_isolated_leader_is_deposed_and_its_client_goes_on_elsewhere():
    cluster = SimulatedCluster(Counter)
    alice = cluster.connect()
    old = cluster.await_leader()
    cluster.isolate(old)
    alice.offer(b"x")
    cluster.run_until(lambda: alice.answers, "alice has an answer")
    new = cluster.leader
    cluster.heal()
    cluster.check()

    assert new != old
    assert cluster.service(old).count == 1


def test_a_session_without_a_sign_of_life_is_closed_after_its_time_out():
    closed = []

    class Closed(Counter):
        def on_session_close(self, session, timestamp, close_reason):
            closed.append((session.id, close_reason.name))

    cluster = SimulatedCluster(Closed, session_timeout=4.0)
    alice = cluster.connect()
    alice.pause()
    cluster.run(3.5)
    assert not closed
    cluster.run(1.5)

    assert closed == [(alice.session_id, "TIMEOUT")] * 3


def test_what_is_waited_for_in_vain_is_named_with_what_came_last():
    cluster = SimulatedCluster(Counter)
    alice = cluster.connect()
    cluster.kill(0)
    cluster.kill(1)
    alice.offer(b"x")

    with pytest.raises(TimedOut, match=r"(?s)not within 10 s of virtual time: all is committed.*is killed"):
        cluster.settle(timeout=10)


@pytest.mark.parametrize("service", [GoesByChance, GoesByItsMember])
def test_members_that_come_apart_are_found(service):
    cluster = SimulatedCluster(service)
    alice = cluster.connect()
    for _ in range(20):
        alice.offer(b"x")

    with pytest.raises(MembersApart, match="service 0"):
        cluster.check()


def test_a_state_that_a_snapshot_lacks_is_found_by_the_answers_after_a_start_from_it():
    cluster = SimulatedCluster(ForgetsItsState)
    cluster.connect().offer(b"x")
    cluster.take_snapshot()
    for member_id in range(3):
        cluster.kill(member_id)
    for member_id in range(3):
        cluster.start(member_id)
    bob = cluster.connect("bob")
    bob.offer(b"y")

    with pytest.raises(MembersApart, match="bob got b'1' as answer 0"):
        cluster.check()


def test_what_callbacks_raise_is_kept_and_the_log_goes_on():
    cluster = SimulatedCluster(Raises)
    alice = cluster.connect()
    alice.offer(b"x")
    cluster.settle()

    assert sorted(member_id for member_id, _ in cluster.service_errors) == [0, 1, 2]
    assert "KeyError" in str(cluster.service_errors[0][1])
    cluster.check()


def test_the_same_seed_gives_the_same_history_and_another_one_another():
    def history(seed):
        cluster = SimulatedCluster(Counter, seed=seed)
        cluster.connect().offer(b"x")
        cluster.settle()
        return cluster.world.trace.hash

    assert history(5) == history(5) != history(6)


def test_several_services_have_states_of_their_own():
    class Twice(Counter):
        def on_session_message(self, session, timestamp, buffer):
            self.count += 2

    cluster = SimulatedCluster(Counter, Twice, members=1)
    alice = cluster.connect()
    alice.offer(b"x")
    cluster.take_snapshot()
    cluster.check()

    assert (cluster.state(0, 0), cluster.state(0, 1)) == ((b"1",), (b"2",))
