"""A member whose recording of the log is stopped from outside sees it first in its slow tick."""

import pytest

from tests.member.cluster_steps import a_cluster
from tests.member.in_memory.cluster import MS


@pytest.mark.conformance("C-12")
@pytest.mark.parametrize("who", ["leader", "follower"])
def test_a_slow_tick_sees_that_the_recording_of_the_log_was_stopped(who):
    """The archive's signal in Aeron; its archive is a process of its own, and so are its tools."""
    cluster = a_cluster()
    client = cluster.add_client()
    cluster.await_settled()
    member = cluster.leader if who == "leader" else cluster.followers[0]
    member.recording.stop(0)
    cluster.run(20 * MS)

    assert any("enters an election: log recording stopped" in line for line in cluster.events)
    client.send(b"0:more")
    cluster.await_settled()
    cluster.await_level()
    cluster.check()


@pytest.mark.conformance("C-12")
def test_a_stopped_recording_is_seen_before_clients_are_sent_away():
    """In one tick: whoever is redirected by it is not sent to a leader that is not followed any more."""
    cluster = a_cluster()
    follower = cluster.followers[0]
    client = cluster.add_client()
    client._connect(follower.member_id)
    sent_to = []
    send_redirects = follower.replica.sessions.send_redirects
    follower.replica.sessions.send_redirects = lambda leader, now_ns: (
        sent_to.append(leader.member_id) or send_redirects(leader, now_ns)
    )
    cluster.run_until(lambda: follower.replica.sessions.has_pending_work)
    follower.recording.stop(0)
    cluster.run_until(lambda: sent_to)

    assert sent_to == [-1]
