"""Messages that are offered one right after the other are sent together, and none of them waits for long."""

import pytest

from cluster.client import ClientState
from cluster.client.gathering import GATHER_NS, GATHERED_MAX, LOOK_S, LOOKS_MAX
from cluster.protocol.session import SessionCloseRequest, SessionKeepAlive
from cluster.service.buffer_claim import BufferClaim
from tests.client.scripted import connect, poll_until


@pytest.fixture
def client(cluster):
    """With a thread beside, which the test turns."""
    client = connect(cluster)
    client.run_beside()
    cluster.wait(1)
    return client


def writes_of(cluster):
    """How many calls brought the leader something from now on."""
    connection, writes = cluster.leader.connection, []
    write = connection.write
    connection.write = lambda buffer: writes.append(len(buffer)) or write(buffer)
    return writes


def test_a_message_alone_is_sent_by_its_offer(cluster, client):
    for number in range(3):
        client.offer(b"%d" % number)
        assert cluster.log[-1] == b"%d" % number
        cluster.wait(GATHER_NS / 1e9)
    assert cluster.calls_soon == 0


def test_without_a_thread_of_its_own_a_client_lets_none_wait(cluster):
    client = connect(cluster)
    for number in range(3):
        client.offer(b"%d" % number)
    assert cluster.log == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.poll_egress(),
        lambda client: client.wait(0),
        lambda client: client.send_keep_alive(),
        lambda client: client.send_admin_request_to_take_a_snapshot(1),
        lambda client: client.commit_wait().is_over() or client.poll_egress(),
        lambda client: client.close(),
    ],
    ids=["poll", "wait", "keep-alive", "admin request", "commit wait", "close"],
)
def test_what_has_gathered_goes_out_as_one_with_the_next_call_and_before_it(cluster, client, call):
    writes = writes_of(cluster)
    offered = [b"%d" % number * number for number in range(10)]
    for payload in offered:
        client.offer(payload)
    assert cluster.log == offered[:1]

    call(client)

    assert cluster.log == offered
    assert len(writes) == 2
    told = [type(message) for message in cluster.leader.received]
    for other in (SessionKeepAlive, SessionCloseRequest):
        assert other not in told or told.index(other) == len(told) - 1


def test_a_batch_and_a_claim_go_behind_what_has_gathered(cluster, client):
    claim = BufferClaim()
    client.offer(b"0")
    client.offer(b"1")
    client.offer_batch([b"2", b"3"])
    client.offer(b"4")
    assert client.try_claim(1, claim) > 0
    claim.buffer[:] = b"5"
    claim.commit()
    assert cluster.log == [b"%d" % number for number in range(6)]


def test_an_offer_sends_what_has_gathered_for_long_enough(cluster, client):
    client.offer(b"0")
    client.offer(b"1")
    cluster.wait(GATHER_NS / 1e9)
    assert cluster.log == [b"0"]
    client.offer(b"2")
    assert cluster.log == [b"0", b"1", b"2"]


def test_no_more_gathers_than_a_leader_takes_at_once(cluster, client):
    writes = writes_of(cluster)
    payload = bytes(900)
    for _ in range(200):
        client.offer(payload)
    client.poll_egress()
    assert len(cluster.log) == 200
    assert max(writes) < GATHERED_MAX + 1_000
    assert len(writes) <= 2 + 200 * 1_000 // GATHERED_MAX


def test_the_client_s_thread_sends_what_nobody_else_does(cluster, client):
    client.offer(b"0")
    client.offer(b"1")
    assert cluster.calls_soon == 1
    assert client.do_duty() == LOOK_S
    assert cluster.log == [b"0"], "the application may be about to"
    cluster.wait(LOOK_S)
    client.do_duty()
    assert cluster.log == [b"0", b"1"]
    client.offer(b"2")
    client.offer(b"3")
    assert cluster.calls_soon == 2, "it went to rest"


def test_the_thread_s_other_duties_are_done_however_long_messages_gather(cluster, client):
    rests = []
    for number in range(2 * LOOKS_MAX):
        client.offer(b"%d" % number)
        client.offer(b"again")
        rests.append(client.do_duty())
        cluster.wait(LOOK_S)
    assert 1 <= sum(rest != LOOK_S for rest in rests) <= 4
    client.poll_egress()
    assert len(cluster.log) == 4 * LOOKS_MAX


def test_what_has_gathered_when_the_leader_dies_goes_to_the_next_one_once(cluster, client):
    client.offer(b"0")
    for number in range(1, 10):
        client.offer(b"%d" % number)
    cluster.leader.stop()
    cluster.elect(1)
    poll_until(client, lambda: client.state is ClientState.CONNECTED and client.leader_member_id == 1)
    client.offer(b"last")
    client.poll_egress()
    assert cluster.log == [b"%d" % number for number in range(10)] + [b"last"]
    assert client.offered == 11


def test_what_has_gathered_counts_as_offered_and_for_the_window(cluster):
    client = connect(cluster, window_bytes=8 * 1024)
    client.run_beside()
    taken = 0
    while client.offer(bytes(100)) > 0:
        taken += 1
        assert client.offered == taken
        assert taken < 100, "there is an end"
    assert len(cluster.log) == taken
