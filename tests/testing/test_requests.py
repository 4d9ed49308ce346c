"""Request and answer through whole members: what is offered to a session while its message is handled."""

from __future__ import annotations

import numpy as np
import pytest

from cluster import ClusteredService
from cluster.errors import TimedOut
from cluster.service.echo import EchoService
from cluster.testing import SimulatedCluster
from cluster.testing.world import MS
from tests.service.compiled_services import Counter as CompiledCounter


class Talker(ClusteredService):
    """Does what its messages say, and counts them all."""

    def on_start(self, cluster, snapshot_image):
        self.cluster = cluster
        self.count = 0 if snapshot_image is None else int(next(iter(snapshot_image)))

    def on_session_message(self, session, timestamp, buffer):
        self.count += 1
        match bytes(buffer):
            case b"twice":
                session.offer(b"1")
                session.offer(b"2")
            case b"later":
                self.cluster.schedule_timer(session.id, timestamp + 1_000)
            case b"others":
                for other in self.cluster.client_sessions():
                    if other.id != session.id:
                        other.offer(b"for you")
            case b"quiet":
                pass
            case payload:
                session.offer(payload, b" %d" % self.count)

    def on_timer_event(self, correlation_id, timestamp):
        self.cluster.get_client_session(correlation_id).offer(b"late")

    def on_take_snapshot(self, snapshot_publication):
        snapshot_publication.offer(b"%d" % self.count)


class Columns(Talker):
    """Answers whole batches, all but those of ``quiet``."""

    def on_session_messages(self, batch):
        rows = np.array([row for row in range(len(batch)) if bytes(batch.payload(row)) != b"quiet"], np.int64)
        if len(rows) == len(batch):
            self.cluster.offer_batch(batch.session_ids, batch.offsets, batch.lengths, batch.buffer)
        else:
            columns = batch.session_ids[rows], batch.offsets[rows], batch.lengths[rows]
            self.cluster.offer_batch(*columns, batch.buffer, rows=rows)


def test_a_request_gets_the_answer_to_its_own_message_among_all_others():
    cluster = SimulatedCluster(Talker, members=1)
    alice, bob = cluster.connect("alice"), cluster.connect("bob")
    for client in (alice, bob):
        client.offer(b"before")

    assert alice.request(b"question") in (b"question 3", b"question 2")
    assert alice.answers and alice.answers[0].startswith(b"before")
    assert alice.request(b"twice") == b"1"
    cluster.settle()
    assert alice.take_answers()[1:] == [b"2"], "the second goes to the listener"


def test_what_is_offered_to_a_session_while_anothers_message_is_handled_answers_nothing():
    cluster = SimulatedCluster(Talker, members=1)
    alice, bob = cluster.connect("alice"), cluster.connect("bob")
    bob.offer(b"quiet")
    with pytest.raises(TimedOut, match=r"message 1 .* it is committed"):
        alice.request(b"others", timeout=2)
    with pytest.raises(TimedOut, match=r"message 2 .* it is committed"):
        alice.request(b"later", timeout=3)

    assert (bob.answers, alice.answers) == ([b"for you"], [b"late"])


@pytest.mark.parametrize("service", [EchoService, Columns])
def test_services_that_answer_batches_answer_requests(service):
    cluster = SimulatedCluster(service, members=1)
    alice, bob = cluster.connect("alice"), cluster.connect("bob")
    for number in range(20):
        alice.offer(b"quiet")
        bob.offer(b"%d" % number)

    assert alice.request(b"question") == b"question"
    assert bob.request(b"question") == b"question"


@pytest.mark.slow
@pytest.mark.parametrize("compiled_turns", [False, True])
@pytest.mark.parametrize("service", [EchoService, CompiledCounter])
def test_compiled_turns_count_messages_as_pythons_do(service, compiled_turns):
    cluster = SimulatedCluster(service, members=1, compiled_turns=compiled_turns)
    alice, bob = cluster.connect("alice"), cluster.connect("bob")
    asked = {client: [] for client in (alice, bob)}
    for row in range(12):  # a message that Python takes is among them, and one that is not answered
        client = (alice, bob)[row % 2]
        for payload in (b"a", b"?", b"b")[: row % 4]:
            client.offer(payload)
        asked[client].append(client.request(b"a%d" % row))
    cluster.settle()

    for first, client in enumerate((alice, bob)):
        assert [answer.removeprefix(b"a")[-2:].strip(b"\0") for answer in asked[client]] == [
            b"%d" % row for row in range(first, 12, 2)
        ]


@pytest.mark.parametrize("supervised", [False, True])
def test_a_service_that_starts_from_a_snapshot_goes_on_counting(supervised):
    cluster = SimulatedCluster(Talker)
    alice = cluster.connect("alice", supervised=supervised)
    assert alice.request(b"one") == b"one 1"
    cluster.take_snapshot()
    assert alice.request(b"two") == b"two 2"
    others = [member_id for member_id in cluster.running if member_id != cluster.leader]
    for member_id in others:
        cluster.kill(member_id)
        cluster.start(member_id)
    cluster.settle()
    cluster.kill(cluster.leader)

    assert alice.request(b"three") == b"three 3"


def test_a_supervised_session_gets_the_answer_that_a_dead_leader_had_not_delivered():
    cluster = SimulatedCluster(Talker)
    alice = cluster.connect("alice", supervised=True)
    killed_first = 0
    for asked, ms in enumerate((0, 2, 4, 6, 8, 12), 1):
        leader = cluster.leader
        cluster.world.at(cluster.world.now_ns + ms * MS, cluster.kill, leader)
        assert alice.request(b"question") == b"question %d" % asked
        killed_first += leader not in cluster.running
        cluster.run(0.1)
        cluster.await_leader()
        cluster.start(leader)
        cluster.settle()

    assert alice.answers == []
    assert 0 < killed_first < 6


def test_the_same_seed_gives_the_same_answers_at_the_same_times():
    def story():
        cluster = SimulatedCluster(Talker, seed=3)
        alice = cluster.connect("alice")
        answers = [alice.request(b"%d" % number) for number in range(5)]
        return answers, cluster.world.now_ns

    assert story() == story()
