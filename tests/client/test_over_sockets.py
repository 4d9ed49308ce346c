"""The client over each medium, with real sockets: what the scripted world cannot show."""

import gc
import time
import weakref

import pytest

from cluster.client import ClusterClient
from cluster.errors import LocalProtocolError, TimedOut
from tests.client.leader import MESSAGE_LENGTH_MAX

DEADLINE_S = 20


def poll_until(client, condition):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        client.wait(0.05)
        client.poll_egress()


@pytest.mark.parametrize("medium", ["ipc", "tcp", "grpc"])
def test_messages_go_in_once_and_answers_come_back_in_order(leader, medium):
    heard = []
    payloads = [b"%d" % n * (n % 40) for n in range(3000)]
    with ClusterClient.connect(
        leader.endpoints[medium], lambda session_id, timestamp, payload: heard.append(bytes(payload))
    ) as client:
        for payload in payloads[:100]:
            assert client.offer(payload) > 0
        assert client.offer_batch(payloads[100:]) > 0
        assert client.await_committed(DEADLINE_S) == 32 + 192 * 3000
        poll_until(client, lambda: len(heard) == 3000)

    assert heard == leader.log == payloads
    deadline = time.monotonic() + DEADLINE_S
    while leader.closed != [41]:
        assert time.monotonic() < deadline


@pytest.mark.parametrize("medium", ["ipc", "tcp", "grpc"])
def test_a_window_much_larger_than_the_sockets_buffers_goes_through(leader, medium):
    """Neither side may wait for the other to read first."""
    counted = []

    class Counter:
        def on_messages(self, batch):
            counted.append((len(batch), int(batch.lengths.sum())))

    with ClusterClient.connect(leader.endpoints[medium], Counter()) as client:
        assert client.offer_batch([b"x" * 1000] * 30_000) > 0
        client.await_committed(DEADLINE_S)
        poll_until(client, lambda: sum(rows for rows, _ in counted) == 30_000)

    assert sum(length for _, length in counted) == 30_000_000


@pytest.mark.parametrize("medium", ["ipc", "tcp", "grpc"])
def test_a_listener_that_takes_its_time_misses_no_answer(leader, medium):
    """The leader takes no more before some answers are read: it does not cut off who is slower than it is."""
    counted = []

    class Slow:
        def on_messages(self, batch):
            counted.append(len(batch))
            taken = -1
            while len(counted) < 5 and taken < len(leader.log):  # until the leader gets no further
                taken = len(leader.log)
                time.sleep(0.1)

    with ClusterClient.connect(leader.endpoints[medium], Slow()) as client:
        assert client.offer_batch([b"x" * 1000] * 60_000) > 0
        client.await_committed(DEADLINE_S)
        poll_until(client, lambda: sum(counted) == 60_000)


@pytest.mark.parametrize("medium", ["ipc", "tcp", "grpc"])
def test_the_longest_message_goes_through_and_a_longer_one_is_an_error(leader, medium):
    heard = []
    with ClusterClient.connect(
        leader.endpoints[medium], lambda session_id, timestamp, payload: heard.append(len(payload))
    ) as client:
        longest = client.max_payload_length
        assert longest == MESSAGE_LENGTH_MAX - 32
        client.offer(bytes(longest))
        with pytest.raises(LocalProtocolError, match=f"{longest + 1} bytes"):
            client.offer(bytes(longest + 1))
        poll_until(client, lambda: heard == [longest])


@pytest.mark.parametrize("medium", ["ipc", "tcp", "grpc"])
def test_a_cluster_that_is_gone_is_noticed_at_once_and_given_up_in_time(leader, medium):
    client = ClusterClient.connect(leader.endpoints[medium], new_leader_timeout_s=0.5)
    leader.stop()
    poll_until(client, lambda: client.offer(b"x") < 0)
    poll_until(client, lambda: client.is_closed)

    assert "member 0 at" in client.why_closed


def test_nobody_there_is_told_with_every_reason(tmp_path):
    there = f"0=ipc:{tmp_path}/none.sock,1=tcp:127.0.0.1:1,2=127.0.0.1:1"
    with pytest.raises(TimedOut) as raised:
        ClusterClient.connect(there, message_timeout_s=1)
    for told in (
        "none.sock: No such file or directory",
        "member 1 at tcp:127.0.0.1:1: Connection refused",
        "member 2 at 127.0.0.1:1: Connection refused",
    ):
        assert told in str(raised.value)
    assert str(raised.value).count("Connection refused") == 2


@pytest.mark.parametrize("medium", ["ipc", "tcp", "grpc"])
def test_a_close_arrives_though_much_that_was_answered_was_never_read(leader, medium):
    """Closed at once, such a connection is reset, and what is on its way to the leader is lost."""
    leader.answers = 4
    client = ClusterClient.connect(leader.endpoints[medium], window_bytes=4 << 20)
    client.offer_batch([b"x" * 4000] * 500)
    begin = time.monotonic()
    client.close()

    assert time.monotonic() - begin < DEADLINE_S
    while leader.closed != [41]:
        assert time.monotonic() < begin + DEADLINE_S
        time.sleep(0.01)
    assert len(leader.log) == 500


@pytest.mark.parametrize("medium", ["ipc", "tcp", "grpc"])
def test_a_closed_client_leaves_nothing_for_the_collector(leader, medium):
    gc.collect()
    gc.disable()
    try:
        with ClusterClient.connect(leader.endpoints[medium]) as client:
            assert client.offer(b"x") > 0
            client.await_committed(DEADLINE_S)
            parts = [weakref.ref(part) for part in (client, client._session, client._session.window)]
        del client
        deadline = time.monotonic() + DEADLINE_S
        while any(part() is not None for part in parts):  # its thread may be about to end
            assert time.monotonic() < deadline
            time.sleep(0.001)
    finally:
        gc.enable()
