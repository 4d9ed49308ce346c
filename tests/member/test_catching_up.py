"""A follower behind in the term, brought level while clients go on (§3.5)."""

import pytest

from cluster.protocol.enums import ElectionState
from tests.member.in_memory.cluster import MS, SECOND, US, SimulatedCluster


def a_busy_cluster(*, every_us, size, seed=1, **settings):
    """A cluster with a client that sends without a break, and a follower that was killed."""
    cluster = SimulatedCluster(3, seed, **settings)
    cluster.await_leader(timeout_ns=90 * SECOND)
    client = cluster.add_client()
    cluster.run(500 * MS)
    victim = cluster.followers[0]
    victim.kill()

    def send():
        client.send(b"0:%d:" % len(client.sent) + bytes(size))
        cluster.world.after(every_us * US, send)

    send()
    cluster.run(300 * MS)
    return cluster, victim


def with_turns_of(member, turn_ns):
    """Let the member come to its turns so seldom that in each of them something has come."""
    turn_at = member._turn_at
    member._turn_at = lambda time_ns: turn_at(-(-time_ns // turn_ns) * turn_ns)


@pytest.mark.parametrize(("every_us", "size"), [(50, 100), (100, 1000)])
def test_a_catch_up_ends_under_a_load_that_never_does(every_us, size):
    """With a commit position in each of its turns a follower is never level before it has processed it."""
    cluster, victim = a_busy_cluster(every_us=every_us, size=size)
    with_turns_of(victim, 2 * MS)
    victim.start()
    states = set()
    began_ns = cluster.world.now_ns
    while victim.agent.following is None:
        cluster.step()
        if victim.agent.election is not None:
            states.add(victim.agent.election.state)
        assert cluster.world.now_ns - began_ns < SECOND

    assert ElectionState.FOLLOWER_CATCHUP in states
    assert len(cluster.followers) == 2


@pytest.mark.conformance("C-148")
def test_a_log_that_comes_before_its_request_is_known_to_be_sent_is_taken():
    """A slow member finds request taken and answer there in one turn."""
    cluster, victim = a_busy_cluster(every_us=200, size=100, delay_ns=(1 * US, 2 * US))
    with_turns_of(victim, 5 * MS)
    victim.start()
    cluster.run_until(lambda: victim.agent.following is not None, timeout_ns=SECOND)
