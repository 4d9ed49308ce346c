"""Supervised clients of whole clusters in memory: each answer comes once, whoever dies."""

import pytest

from cluster import ClusteredService
from cluster.protocol.enums import ClusterControlToggle
from cluster.testing import SimulatedCluster
from cluster.testing.member import host_of

LONG = 60_000


class Answering(ClusteredService):
    """Answers a message by itself and by its number; ``long`` by many bytes."""

    def on_start(self, cluster, snapshot_image):
        self.count = 0 if snapshot_image is None else int(next(iter(snapshot_image)))

    def on_session_message(self, session, timestamp, buffer):
        self.count += 1
        payload = bytes(buffer)
        assert session.offer(payload) > 0
        assert session.offer(b"%d" % self.count + b"~" * (LONG if payload == b"long" else 0)) > 0

    def on_take_snapshot(self, snapshot_publication):
        snapshot_publication.offer(b"%d" % self.count)


def expected(messages: list[bytes]) -> list[bytes]:
    return [answer for number, message in enumerate(messages, 1) for answer in (message, b"%d" % number)]


def offer_and_sleep(cluster, client, messages: list[bytes], more: list[bytes]) -> None:
    """The client sends some more, and nothing of what comes of it reaches it."""
    cluster._network.path(host_of(cluster.leader), client.host).is_blocked = True
    messages += more
    for payload in more:
        client.offer(payload)
    cluster.run_until(lambda: client._client.offered == len(messages), "they are sent")
    client.pause()
    cluster.run(1)


def take_snapshot(cluster: SimulatedCluster) -> None:
    leader = cluster._leader()
    leader.life.counters.control_toggle.set(ClusterControlToggle.SNAPSHOT)
    counts = [member.life.counters.snapshot_count for member in cluster._members.values()]
    cluster.run_until(lambda: all(count.get() == 1 for count in counts), "all have taken a snapshot")


def restart(cluster: SimulatedCluster, member_id: int) -> None:
    cluster.kill(member_id)
    cluster.await_leader()
    cluster.start(member_id)
    cluster.run(2)


@pytest.mark.conformance("S-187")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_answer_is_lost_when_leaders_die_and_none_comes_twice(seed):
    """Of the same histories an ordinary client lacks answers."""
    cluster = SimulatedCluster(Answering, seed=seed)
    random = cluster.world.random("kills")
    client = cluster.connect(supervised=True)
    messages: list[bytes] = []
    for _ in range(6):
        for _ in range(30):
            messages.append(b"m%d" % len(messages))
            client.offer(messages[-1])
        cluster.run(random.choice([0.001, 0.01, 0.02, 0.03, 0.05]))
        if (leader := cluster.leader) is not None:
            cluster.kill(leader)
        cluster.run(random.choice([0.5, 1, 3]))
        for member_id in {0, 1, 2} - set(cluster.running):
            cluster.start(member_id)
    cluster.settle()
    cluster.run(1)

    assert client.received == expected(messages)
    cluster.check()


@pytest.mark.conformance("S-187")
def test_answers_that_nobody_has_taken_survive_the_restart_of_every_member_from_a_snapshot():
    cluster = SimulatedCluster(Answering, session_timeout=60)
    client = cluster.connect(supervised=True)
    client.offer(b"first")
    cluster.settle()
    messages = [b"first"]
    offer_and_sleep(cluster, client, messages, [b"m%d" % number for number in range(20)])
    take_snapshot(cluster)
    for member_id in range(3):
        restart(cluster, member_id)

    cluster.heal()
    client.resume()
    messages.append(b"last")
    client.offer(b"last")
    cluster.settle()

    assert client.received == expected(messages)


@pytest.mark.conformance("S-187")
def test_what_a_leader_had_sent_before_it_died_and_nobody_got_comes_from_the_next():
    cluster = SimulatedCluster(Answering)
    client = cluster.connect(supervised=True)
    leader = cluster.await_leader()
    cluster._network.path(host_of(leader), client.host).is_blocked = True
    messages = [b"m%d" % number for number in range(20)]
    for payload in messages:
        client.offer(payload)
    cluster.run(1)
    assert client.received == []

    cluster.kill(leader)
    cluster.settle()
    cluster.run(1)

    assert client.received == expected(messages)


@pytest.mark.conformance("S-187")
def test_a_session_that_takes_no_answers_is_held_and_nobody_else_is():
    cluster = SimulatedCluster(Answering, session_timeout=60)
    client, other = cluster.connect(supervised=True), cluster.connect(supervised=True)
    way = cluster._network.path(host_of(cluster.leader), client.host)
    way.is_blocked = True
    for _ in range(150):  # nine million bytes of answers
        client.offer(b"long")
        cluster.run(0.02)
    other.offer(b"mine")
    cluster.run(0.5)
    leader = cluster._leader().life.consensus_module.replica
    held_bytes = leader.answers.byte_count(client.session_id)
    committed = leader.sessions.table.slots["committed"].tolist()

    assert other.received == [b"mine", b"%d" % leader_count(cluster)]
    assert leader.answers.bytes_max <= held_bytes < 2 * leader.answers.bytes_max
    assert 50 < max(committed) < 150, "it was held in the midst"

    way.is_blocked = False
    cluster.run_until(lambda: len(client.received) == 300, "all is answered")
    cluster.settle()
    cluster.run(2)

    long = [answer for answer in client.received if answer != b"long"]
    assert len(client.received) == 300 and client.received.count(b"long") == 150
    assert all(len(answer) > LONG for answer in long)
    assert len(set(long)) == 150
    for member in cluster._members.values():
        replica = member.life.consensus_module.replica
        assert replica.answers.byte_count(client.session_id) == 0, "followers keep it no longer"
    assert not client.is_closed and not other.is_closed


def leader_count(cluster: SimulatedCluster) -> int:
    return cluster.service(cluster.leader).count


@pytest.mark.conformance("S-187")
def test_a_session_whose_answers_are_too_many_is_closed_and_its_client_told():
    cluster = SimulatedCluster(Flooding, session_timeout=60)
    silent, other = cluster.connect("silent", supervised=True), cluster.connect("other")
    offer_and_sleep(cluster, silent, [], [b"subscribe"])
    for _ in range(20):
        other.offer(b"flood")
    cluster.run(5)

    for member in cluster._members.values():
        replica = member.life.consensus_module.replica
        assert replica.answers.byte_count(silent.session_id) <= 16 * replica.answers.bytes_max
    cluster.heal()
    silent.resume()
    cluster.run_until(lambda: silent.is_closed, "it is told")
    assert silent.why_closed in ("TIMEOUT", "session 1 is not open, or not this client's")
    assert not other.is_closed


class Flooding(ClusteredService):
    """Sends all who ever said something four million bytes for each message of anybody."""

    def on_start(self, cluster, snapshot_image):
        self.subscribed = []

    def on_session_message(self, session, timestamp, buffer):
        if bytes(buffer) == b"subscribe":
            self.subscribed.append(session)
        for subscriber in self.subscribed:
            for _ in range(64):
                assert subscriber.offer(bytes(65_000)) != 0

    def on_take_snapshot(self, snapshot_publication):
        raise AssertionError("no snapshot is taken")


@pytest.mark.conformance("S-187")
def test_a_session_ends_with_the_whole_cluster_and_its_client_is_told():
    cluster = SimulatedCluster(Answering)
    client = cluster.connect(supervised=True)
    client.offer(b"m")
    cluster.settle()
    for member_id in range(3):
        cluster.kill(member_id)
    for member_id in range(3):
        cluster.start(member_id)

    cluster.run_until(lambda: client.is_closed, "the client is told")

    assert client.received == [b"m", b"1"]
    assert client.why_closed


@pytest.mark.conformance("S-187")
def test_what_answers_an_open_session_before_its_client_knows_of_it_comes():
    class Greeting(Answering):
        def on_session_open(self, session, timestamp):
            session.offer(b"welcome")

    cluster = SimulatedCluster(Greeting)

    client = cluster.connect(supervised=True)
    client.offer(b"m")
    cluster.settle()

    assert client.received == [b"welcome", b"m", b"1"]
