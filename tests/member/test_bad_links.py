"""Links that carry one way only, or come and go: they must not move a leader that a majority follows."""

import pytest

from cluster.consensus.context import ConsensusModuleContext
from tests.member.in_memory.cluster import LONG_NS, MS, QUICK, SECOND, SimulatedCluster


class Cluster(SimulatedCluster):
    """A cluster at work, with a client that sends twice a second for as long as the test lasts."""

    def __init__(self, members=3, seed=1, **settings):
        super().__init__(members, seed, **settings)
        self.await_leader(timeout_ns=90 * SECOND)
        self.client = self.add_client()
        self.await_settled()
        self.await_level()
        self.led = self.leader
        self.odd = self.followers[0]
        self.healthy = [member for member in self.members if member is not self.odd]
        self.elections = self.elections_of_the_healthy()
        self._send()

    def _send(self):
        self.client.send(b"0:%d" % len(self.client.sent))
        self.after(500 * MS, self._send)

    def elections_of_the_healthy(self):
        return [member.counters.election_count.get() for member in self.healthy]

    def others(self, member):
        return [other.member_id for other in self.members if other is not member]

    def deafen(self, member):
        for other_id in self.others(member):
            self.links.block(other_id, member.member_id)

    def silence(self, member):
        for other_id in self.others(member):
            self.links.block(member.member_id, other_id)

    def goes_on_undisturbed(self, duration_ns):
        """The same leader commits all the time, and whoever is healthy has seen no election."""
        end_ns = self.world.now_ns + duration_ns
        while self.world.now_ns < end_ns:
            before = self.client.acknowledged
            self.run(2 * SECOND)
            assert self.client.acknowledged >= before + 3, f"at {self.world.now_ns / SECOND} s"
        assert self.leader is self.led
        assert self.elections_of_the_healthy() == self.elections

    def all_is_well_again(self):
        self.links.heal()
        self.run_until(lambda: all(not member.is_electing for member in self.members))
        self.run(SECOND)
        assert len(self.followers) == len(self.members) - 1
        self.check()
        self.check_promises()


@pytest.mark.parametrize("members", [3, 5])
@pytest.mark.parametrize("what", ["deafen", "silence"])
def test_a_follower_that_only_sends_or_only_hears_disturbs_nobody(what, members):
    cluster = Cluster(members, **QUICK)
    getattr(cluster, what)(cluster.odd)
    cluster.goes_on_undisturbed(LONG_NS)
    cluster.all_is_well_again()
    assert cluster.leader is cluster.led


@pytest.mark.parametrize("is_deaf", [True, False])
def test_a_link_to_the_leader_that_carries_one_way_disturbs_nobody_else(is_deaf):
    """It hears the other follower, which hears the leader and does not vote."""
    cluster = Cluster(**QUICK)
    ids = cluster.led.member_id, cluster.odd.member_id
    cluster.links.block(*(ids if is_deaf else reversed(ids)))
    cluster.goes_on_undisturbed(LONG_NS)
    cluster.all_is_well_again()
    assert cluster.leader is cluster.led


@pytest.mark.parametrize("every_ms", [pytest.param(60, marks=pytest.mark.slow), 400, 1500])
def test_a_member_whose_links_come_and_go_disturbs_nobody(every_ms):
    cluster = Cluster(**QUICK)

    def flap():
        for other_id in cluster.others(cluster.odd):
            cluster.links.reset(cluster.odd.member_id, other_id)
        cluster.after(every_ms * MS, flap)

    flap()
    cluster.goes_on_undisturbed(LONG_NS)


def test_a_member_whose_process_comes_and_goes_disturbs_nobody():
    cluster = Cluster(**QUICK)
    for _ in range(3):
        cluster.odd.kill()
        cluster.goes_on_undisturbed(2 * SECOND)
        cluster.odd.start()
        cluster.goes_on_undisturbed(2 * SECOND)


@pytest.mark.conformance("C-17")
def test_a_leader_that_is_heard_and_hears_nobody_stands_down_in_time_for_another():
    cluster = Cluster()
    cluster.deafen(cluster.led)
    began_ns = cluster.world.now_ns
    cluster.run_until(lambda: not cluster.led.is_leading, 11 * SECOND)
    cluster.run_until(lambda: cluster.leader is not None and cluster.leader is not cluster.led)

    assert cluster.world.now_ns - began_ns < 25 * SECOND
    cluster.all_is_well_again()


def test_a_leader_that_hears_everybody_and_is_not_heard_is_replaced():
    cluster = Cluster()
    cluster.silence(cluster.led)
    began_ns = cluster.world.now_ns
    cluster.run_until(lambda: cluster.leader is not None and cluster.leader is not cluster.led)

    assert cluster.world.now_ns - began_ns < 25 * SECOND
    cluster.run(1 * SECOND)
    assert not cluster.led.is_leading
    cluster.all_is_well_again()


def test_one_bad_follower_does_not_slow_the_others_down():
    """TigerBeetle 0.16.11: latency went up with one bad node."""

    def time_of_100_round_trips(cluster):
        began_ns = cluster.world.now_ns
        for _ in range(100):
            cluster.client.send(b"0:%d" % len(cluster.client.sent))
            cluster.await_settled()
        return cluster.world.now_ns - began_ns

    cluster = Cluster()
    normal_ns = time_of_100_round_trips(cluster)
    cluster.odd.pause()
    cluster.run(2 * SECOND)
    assert time_of_100_round_trips(cluster) < 1.5 * normal_ns


@pytest.mark.parametrize("bytes_max", [20_000, 100_000])
def test_a_leader_takes_no_more_than_a_majority_keeps_up_with(monkeypatch, bytes_max):
    """TigerBeetle, June 2025: the more load was taken on, the further the lagging fell behind."""
    monkeypatch.setattr(ConsensusModuleContext, "uncommitted_bytes_max", bytes_max)
    cluster = SimulatedCluster(3)
    leader = cluster.await_leader()
    client = cluster.add_client()
    cluster.await_settled()
    followers = cluster.followers
    for follower in followers:
        follower.pause()
    for number in range(300):
        client.send(b"0:%d " % number + bytes(1000))
        cluster.run(MS)
    ahead = leader.published_position - leader.commit_position
    assert bytes_max <= ahead < bytes_max + 4_000
    assert client.acknowledged == 0
    leader.replica.cluster_time += 60_000  # nobody times out whose keep-alives are not read
    cluster.run(100 * MS)
    assert client.session_id in leader.sessions

    for follower in followers:
        follower.resume()
    cluster.await_settled()
    assert cluster.leader is leader
    cluster.await_level()
    cluster.check_promises()
