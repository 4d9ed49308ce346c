"""Requests: each gets the answer to its own message, and everything else goes where it went before."""

import asyncio
import threading

import numpy as np
import pytest

from cluster import AsyncClusterClient, ClusterClient
from cluster.client.egress_dispatch import EgressBatch
from cluster.client.requests import Request, Requests
from cluster.errors import ClientClosed, LocalProtocolError, TimedOut
from cluster.protocol.enums import EventCode, Offer
from tests.client.scripted import Listener, connect

MEDIA = ["ipc", "tcp", "grpc"]


def answering(cluster, *answers):
    """Have each wait bring what the service does next: calls of the cluster."""
    pending, wait = list(answers), cluster.wait

    def wait_and_answer(timeout_s, *, is_due=False):
        wait(timeout_s)
        if pending:
            pending.pop(0)()

    cluster.wait = wait_and_answer


def test_a_request_returns_the_first_answer_to_its_message_and_the_listener_gets_all_else(cluster):
    listener = Listener()
    client = connect(cluster, listener)
    client.offer(b"before")
    answering(
        cluster,
        lambda: cluster.answer(b"of a timer"),
        lambda: cluster.answer(b"to before", number=1),
        lambda: cluster.answer(b"first", b"second", number=2),
    )

    answer = client.request(b"question")

    assert (answer.cluster_session_id, answer.timestamp, answer.payload) == (7, 99, b"first")
    client.poll_egress()
    assert [told[3] for told in listener.told] == [b"of a timer", b"to before", b"second"]


def test_without_a_listener_what_no_request_waits_for_comes_from_answers(cluster):
    client = connect(cluster)
    answering(cluster, lambda: cluster.answer(b"a timer's"), lambda: cluster.answer(b"mine", number=1))

    assert client.request(b"question").payload == b"mine"
    assert [answer.payload for answer in client.answers(timeout_s=0)] == [b"a timer's"]


def test_an_answer_that_comes_after_the_time_out_goes_to_the_listener(cluster):
    listener = Listener()
    client = connect(cluster, listener)
    with pytest.raises(TimedOut, match=r"no answer to message 1 .* in 0\.5 s: it is not known to be"):
        client.request(b"question", timeout_s=0.5)

    cluster.answer(b"late", number=1)
    client.poll_egress()
    assert [told[3] for told in listener.told] == [b"late"]


def test_a_request_without_an_answer_says_what_is_known_of_its_message(cluster):
    client = connect(cluster)
    answering(cluster, lambda: cluster.acknowledge(1))
    with pytest.raises(TimedOut, match=r"message 1 .* it is committed, and the service gave none"):
        client.request(b"quiet", timeout_s=0.1)

    answering(cluster, lambda: cluster.acknowledge(2), lambda: cluster.answer(b"x", number=3))
    with pytest.raises(TimedOut, match=r"message 2 .* it is committed, and so is a later one that was"):
        client.request(b"quiet", timeout_s=0.1)


def test_a_request_on_which_the_service_raised_says_what_the_cluster_reported(cluster):
    client = connect(cluster)
    raised = cluster.event(EventCode.ERROR, 0, "a service raised; see node.log of member 0", session_id=7)
    answering(
        cluster, lambda: (cluster.leader.send(cluster.leader.connection, raised), cluster.acknowledge(1))
    )
    with pytest.raises(TimedOut, match=r"it is committed, and the cluster reported: .*see node\.log"):
        client.request(b"nonsense", timeout_s=0.1)

    answering(cluster, lambda: cluster.acknowledge(2))
    with pytest.raises(TimedOut, match="and the service gave none"):
        client.request(b"quiet", timeout_s=0.1)


def test_a_request_waits_until_its_message_is_taken_and_says_why_it_was_not(cluster):
    client = connect(cluster)
    cluster.leader.stop()
    cluster.elect(None)
    client.poll_egress()
    with pytest.raises(TimedOut, match=r"the message was not taken in 0\.2 s: NOT_CONNECTED"):
        client.request(b"question", timeout_s=0.2)
    with pytest.raises(TimedOut, match=r"not taken in 0\.1 s"):
        client.send(b"message", timeout_s=0.1)


def test_a_session_that_ends_ends_its_requests(cluster):
    client = connect(cluster)
    closed = cluster.event(EventCode.CLOSED, 0, "SERVICE_ACTION", session_id=7)
    answering(cluster, lambda: cluster.leader.send(cluster.leader.connection, closed))

    with pytest.raises(ClientClosed, match="session 7 is closed: SERVICE_ACTION"):
        client.request(b"question")
    with pytest.raises(ClientClosed, match="SERVICE_ACTION"):
        client.request(b"another")
    with pytest.raises(ClientClosed, match="SERVICE_ACTION"):
        client.send(b"another")


def test_a_request_that_cannot_be_sent_waits_for_nothing(cluster):
    client = connect(cluster)
    with pytest.raises(LocalProtocolError, match="takes at most"):
        client.request(bytes(2000))
    with pytest.raises(TypeError, match="expected bytes"):
        client.request("text")
    assert not client.awaits_answers


def test_send_returns_the_position_that_offer_does(cluster):
    client, other = connect(cluster), connect(cluster)
    assert client.send(b"in ", b"parts") == other.offer(b"in parts") > 0
    assert cluster.log == [b"in parts"] * 2


def test_send_waits_for_room(cluster):
    client = connect(cluster, window_bytes=4096)
    while client.offer(bytes(900)) != Offer.BACK_PRESSURED:
        pass
    offered = client.offered
    answering(cluster, lambda: None, lambda: cluster.acknowledge(offered))

    assert client.send(bytes(900)) > 0
    assert client.offered == offered + 1


@pytest.mark.parametrize("medium", MEDIA)
def test_threads_of_one_client_each_get_their_own_answer(leader, medium):
    got = {}

    def ask(number):
        for row in range(20):
            question = b"%d of thread %d" % (row, number)
            got[question] = client.request(question, timeout_s=20).payload

    with ClusterClient.connect(leader.endpoints[medium]) as client:
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert len(got) == 100
    assert all(question == answer for question, answer in got.items())


@pytest.mark.parametrize("medium", MEDIA)
def test_coroutines_each_get_their_own_answer(leader, medium):
    async def main():
        async with AsyncClusterClient.connect(leader.endpoints[medium]) as client:
            questions = [b"%d" % number for number in range(300)]
            answers = await asyncio.gather(*map(client.request, questions))
            assert [answer.payload for answer in answers] == questions

    asyncio.run(main())


def test_a_coroutine_is_told_when_no_answer_came_and_when_the_session_has_ended(leader):
    leader.answers = 0

    async def main():
        async with AsyncClusterClient.connect(leader.endpoints["tcp"]) as client:
            with pytest.raises(TimedOut, match=r"no answer to message 1 .* in 0\.05 s: it is committed"):
                await client.request(b"quiet", timeout_s=0.05)
            leader.closes_after = 2
            with pytest.raises(ClientClosed, match="SERVICE_ACTION"):
                await client.request(b"the last", timeout_s=20)
            with pytest.raises(ClientClosed, match="SERVICE_ACTION"):
                await client.request(b"none")

    asyncio.run(main())


def test_a_request_that_is_over_takes_no_other_of_the_same_number_along():
    requests, ended, later = Requests(), Request(), Request()
    requests.begin(ended, 1)
    requests.fail(ClientClosed("session 7 is closed"))
    requests.begin(later, 1)  # of another session, which counts from 1 as well

    requests.drop(ended)
    assert len(requests) == 1


def test_of_what_an_earlier_session_answered_nothing_is_said():
    requests, request = Requests(), Request()
    batch = EgressBatch(7, np.zeros(1), np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(0, np.uint8))
    requests.take(batch, [5])
    requests.fail(ClientClosed("session 7 is closed"))

    requests.begin(request, 1)
    assert "and the service gave none" in str(requests.timed_out(request, 1.0, acknowledged=1))
