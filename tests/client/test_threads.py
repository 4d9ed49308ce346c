"""The client's own thread, and an application's threads that share a client."""

import gc
import threading
import time

import pytest

from cluster.client import ClientState, ClusterClient
from cluster.client.retained_egress import RETAINED_BYTES_MAX
from cluster.errors import ClientClosed
from cluster.protocol.enums import EventCode, Offer
from cluster.protocol.session import SessionKeepAlive
from cluster.transport.credentials import TokenCredentials
from tests.client.scripted import Listener, connect

DEADLINE_S = 20


def do_duties(cluster, client, condition, within_s=30.0):
    """What the client's thread does, on the scripted clock, until the condition holds."""
    deadline_ns = cluster.now_ns() + int(within_s * 1e9)
    while not condition():
        assert cluster.now_ns() < deadline_ns, "it never came"
        rest_s = client.do_duty()
        if rest_s is None:
            return
        cluster.wait(rest_s)


def await_it(condition):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)


def test_a_session_is_kept_alive_once_a_second_while_the_application_does_nothing(cluster):
    client = connect(cluster)
    begin_ns = cluster.now_ns()
    do_duties(cluster, client, lambda: cluster.now_ns() - begin_ns > 60e9, within_s=100)

    assert 58 <= len(cluster.leader.of_type(SessionKeepAlive)) <= 60


def test_the_duty_follows_a_leader_change_and_the_application_hears_of_it_with_its_next_poll(cluster):
    listener = Listener()
    client = connect(cluster, listener)
    client.offer(b"before")
    cluster.answer(b"from the old leader")
    cluster.leader.stop()
    cluster.elect(1)
    do_duties(cluster, client, lambda: client.state is ClientState.CONNECTED and client.leader_member_id == 1)
    cluster.answer(b"from the new leader")
    do_duties(cluster, client, lambda: bool(cluster.leader.of_type(SessionKeepAlive)))

    assert listener.told == []
    assert client.poll_egress() == 3
    assert [told[0] for told in listener.told] == ["message", "new leader", "message"]
    assert listener.payloads == [b"from the old leader", b"from the new leader"]


def test_a_leader_elected_again_is_heard_behind_answers_that_nobody_takes(cluster):
    """Else keep-alives would carry the old term, and the leader drop them."""
    client = connect(cluster, Listener())
    cluster.answer(*[b"x" * 100] * 500)
    cluster.elect(0)
    cluster.leader.send(cluster.leader.connection, cluster.new_leader_event())
    do_duties(cluster, client, lambda: SessionKeepAlive(2, 7) in cluster.leader.received)

    assert client.poll_egress() == 501


def test_answers_that_nobody_takes_are_held_up_to_a_bound_and_then_left_in_the_socket(cluster):
    listener = Listener()
    client = connect(cluster, listener)
    payload = bytes(1 << 20)
    answers = 2 * RETAINED_BYTES_MAX // len(payload)
    for _ in range(answers):
        cluster.answer(payload)
        client.do_duty()

    assert cluster.leader.connection.is_readable
    while client.poll_egress():
        pass
    assert listener.payloads == [payload] * answers


def test_what_the_duty_raises_ends_the_session_and_the_next_call_says_it(cluster, monkeypatch):
    client = connect(cluster)
    monkeypatch.setattr(cluster, "poll", lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        client.do_duty()
    assert client.is_closed and client.offer(b"x") == Offer.CLOSED
    with pytest.raises(ClientClosed, match="ZeroDivisionError: division by zero"):
        client.poll_egress()


def test_credentials_that_cannot_be_read_while_a_leader_is_sought_are_read_again(cluster, tmp_path):
    token = tmp_path / "token"
    token.write_text("secret")
    client = connect(cluster, credentials=TokenCredentials(token))
    token.write_text("")
    cluster.leader.stop()
    cluster.elect(1)
    do_duties(cluster, client, lambda: client.state is ClientState.AWAIT_NEW_LEADER)
    client.do_duty()
    token.write_text("another")
    do_duties(cluster, client, lambda: client.state is ClientState.CONNECTED and client.leader_member_id == 1)


def test_a_session_that_ends_between_two_polls_tells_all_and_then_raises(cluster):
    listener = Listener()
    client = connect(cluster, listener)
    cluster.answer(b"last")
    closed = cluster.event(EventCode.CLOSED, 0, "TIMEOUT", session_id=7)
    cluster.leader.send(cluster.leader.connection, closed)
    do_duties(cluster, client, lambda: client.is_closed)

    client.wait(0)
    assert client.poll_egress() == 2
    assert [told[0] for told in listener.told] == ["message", "session event"]
    for ask in (client.poll_egress, lambda: client.wait(0)):
        with pytest.raises(ClientClosed, match="session 7 is closed: TIMEOUT"):
            ask()
    assert client.do_duty() is None


@pytest.mark.parametrize("medium", ["ipc", "tcp", "grpc"])
def test_keep_alives_go_out_while_the_application_is_busy_in_its_listener_or_elsewhere(leader, medium):
    heard = []

    def listener(session_id, timestamp, payload):
        await_it(lambda: leader.keep_alives >= 6)
        heard.append(bytes(payload))

    with ClusterClient.connect(
        leader.endpoints[medium], listener, keep_alive_interval_s=0.05, message_timeout_s=DEADLINE_S
    ) as client:
        await_it(lambda: leader.keep_alives >= 3)
        client.offer(b"x")
        while not heard:
            client.wait(0.1)
            client.poll_egress()


def test_without_an_interval_there_is_no_thread(leader):
    before = threading.active_count()
    with ClusterClient.connect(leader.endpoints["ipc"], keep_alive_interval_s=None):
        assert threading.active_count() == before
    with ClusterClient.connect(leader.endpoints["ipc"]):
        assert threading.active_count() == before + 1
    await_it(lambda: threading.active_count() == before)


def test_a_client_that_is_forgotten_takes_its_thread_with_it(leader):
    before = threading.active_count()
    client = ClusterClient.connect(leader.endpoints["ipc"], keep_alive_interval_s=0.02)
    assert threading.active_count() == before + 1
    del client
    gc.collect()
    await_it(lambda: threading.active_count() == before)


def test_who_waits_learns_of_what_the_clients_thread_took_from_the_socket(leader):
    """The answer is late, and the interval so short that the client's thread may take it first."""
    leader.answers_late_s = 0.02
    heard = []
    with ClusterClient.connect(
        leader.endpoints["tcp"], lambda *told: heard.append(told), keep_alive_interval_s=0.001
    ) as client:
        begin = time.monotonic()
        for number in range(100):
            client.offer(b"x")
            while len(heard) <= number:
                client.wait(DEADLINE_S)
                client.poll_egress()
    assert time.monotonic() - begin < DEADLINE_S


@pytest.mark.parametrize("medium", ["ipc", "tcp", "grpc"])
def test_threads_may_share_a_client(leader, medium):
    """Each thread's messages are in the log once and in its order; answers come in the log's order."""
    threads, messages = 4, 400
    heard = []
    with ClusterClient.connect(
        leader.endpoints[medium],
        lambda session_id, timestamp, payload: heard.append(bytes(payload)),
        keep_alive_interval_s=0.01,
        window_bytes=16 * 1024,
    ) as client:

        def offer(thread):
            for number in range(messages):
                payload = b"%d:%d" % (thread, number)
                while client.offer(payload) < 0:
                    client.wait(0.01)

        def poll():
            while len(heard) < threads * messages:
                client.wait(0.05)
                client.poll_egress()

        running = [threading.Thread(target=offer, args=(thread,)) for thread in range(threads)]
        running += [threading.Thread(target=poll) for _ in range(2)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
        client.await_committed(DEADLINE_S)

    assert heard == leader.log
    for thread in range(threads):
        ours = [payload for payload in leader.log if payload.startswith(b"%d:" % thread)]
        assert ours == [b"%d:%d" % (thread, number) for number in range(messages)]


def test_a_close_ends_the_wait_of_another_thread(leader):
    client = ClusterClient.connect(leader.endpoints["ipc"])
    ended = []

    def wait():
        try:
            while True:
                client.wait(10 * DEADLINE_S)
                client.poll_egress()
        except ClientClosed as error:
            ended.append(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    client.close()
    waiting.join(DEADLINE_S)

    assert len(ended) == 1
    assert ended[0].endswith("closed by the client")
