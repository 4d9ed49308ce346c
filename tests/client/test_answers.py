"""Answers taken by who asks for them, without a listener."""

import itertools
import threading

import pytest

from cluster.client import ClusterClient
from cluster.client.retained_egress import RETAINED_BYTES_MAX
from cluster.errors import ClientClosed, ClusterError, LocalProtocolError
from cluster.protocol.enums import EventCode
from tests.client.scripted import connect


@pytest.mark.conformance("S-48")
def test_an_answer_keeps_its_fields_and_the_next_call_goes_on_after_it(cluster):
    client = connect(cluster)
    cluster.answer(b"1", b"2", b"3", timestamp=5)
    cluster.answer(b"4", timestamp=6)

    first = next(client.answers())
    assert (first.cluster_session_id, first.timestamp, first.payload) == (7, 5, b"1")
    for answer in client.answers():
        if answer.payload == b"3":
            break
    cluster.answer(b"5", timestamp=7)
    assert [answer[1:] for answer in client.answers(timeout_s=0.5)] == [(6, b"4"), (7, b"5")]
    assert first.payload == b"1"


def test_the_wait_for_the_next_answer_ends_after_its_timeout(cluster):
    client = connect(cluster)
    begin_ns = cluster.now_ns()
    assert list(client.answers(timeout_s=0.25)) == []
    assert 0.25e9 <= cluster.now_ns() - begin_ns < 0.3e9


def test_batches_are_columns_of_all_that_came_in_one_piece(cluster):
    client = connect(cluster)
    cluster.answer(b"one", b"two", timestamp=5)
    cluster.acknowledge(0)
    cluster.answer(b"three", timestamp=6)

    batches = list(client.answer_batches(timeout_s=0.1))
    assert [batch.timestamps.tolist() for batch in batches] == [[5, 5, 6]]
    assert [bytes(batch.payload(row)) for batch in batches for row in range(len(batch))] == [
        b"one",
        b"two",
        b"three",
    ]


@pytest.mark.conformance("S-45")
def test_without_a_listener_polls_keep_the_answers_for_who_takes_them(cluster):
    client = connect(cluster)
    client.offer(b"x")
    cluster.answer(b"answer")
    cluster.acknowledge(1)
    client.await_committed(1)
    client.poll_egress()

    assert next(client.answers(timeout_s=0)).payload == b"answer"


@pytest.mark.conformance("S-45")
def test_answers_that_a_listener_takes_cannot_be_asked_for_as_well(cluster):
    client = connect(cluster, lambda *told: None)
    with pytest.raises(LocalProtocolError, match="the listener takes the answers"):
        next(client.answers())


def test_a_listener_without_on_message_hears_of_the_rest(cluster):
    class Listener:
        def __init__(self):
            self.told = []

        def on_session_event(self, *event):
            self.told.append(event)

    listener = Listener()
    client = connect(cluster, listener)
    cluster.answer(b"last")
    closed = cluster.event(EventCode.CLOSED, 0, "TIMEOUT", session_id=7)
    cluster.leader.send(cluster.leader.connection, closed)

    answers = client.answers()
    assert next(answers).payload == b"last"
    assert len(listener.told) == 1
    with pytest.raises(ClientClosed, match="session 7 is closed: TIMEOUT"):
        next(answers)


def test_answers_that_nobody_takes_hold_nothing_up_and_are_counted_when_dropped(cluster):
    client = connect(cluster)
    payload = bytes(1 << 20)
    for _ in range(RETAINED_BYTES_MAX // len(payload) + 3):
        cluster.answer(payload)
        client.poll_egress()
    client.offer(b"x")
    cluster.acknowledge(1)

    assert client.await_committed(1) == 4096
    with pytest.raises(ClusterError, match="3 answers were dropped"):
        next(client.answers())
    assert len(list(client.answers(timeout_s=0))) == RETAINED_BYTES_MAX // len(payload)


@pytest.mark.parametrize("medium", ["ipc", "tcp", "grpc"])
def test_threads_may_ask_for_answers_side_by_side(leader, medium):
    messages = 2_000
    taken: list[bytes] = []
    with ClusterClient.connect(leader.endpoints[medium], keep_alive_interval_s=0.01) as client:

        def take():
            for answer in itertools.takewhile(lambda answer: answer.payload, client.answers(20)):
                taken.append(answer.payload)

        takers = [threading.Thread(target=take) for _ in range(2)]
        for taker in takers:
            taker.start()
        client.offer_batch([b"%d" % number for number in range(messages)])
        client.offer_batch([b"", b""])
        for taker in takers:
            taker.join(20)
            assert not taker.is_alive()

    assert sorted(taken) == sorted(b"%d" % number for number in range(messages))
