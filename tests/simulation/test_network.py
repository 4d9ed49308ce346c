"""Production connections over simulated sockets: what TCP hides stays hidden, what it does not is there."""

import pytest

from cluster.protocol.enums import Offer
from cluster.protocol.frame import frame
from cluster.testing.world import MS, SECOND, Process, VirtualWorld
from cluster.transport.dial import dial
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.listener import Listener
from cluster.transport.sockets import Connection, ReceiveBuffer
from tests.simulation.network import FaultyNetwork

THERE = Endpoint(Medium.TCP, "b", 1)


class Host(Process):
    def __init__(self, world, network, name):
        super().__init__(world, name, name)
        self.poller = network.poller(self)

    def turn(self):
        return None


class Pair:
    """A dials B; time moves by hand."""

    def __init__(self, seed=1):
        self.world = VirtualWorld(seed)
        self.network = FaultyNetwork(self.world, self.world.random("network"))
        self.a, self.b = Host(self.world, self.network, "a"), Host(self.world, self.network, "b")

    def connect(self):
        listener = Listener(THERE, self.b.poller, pytest.fail)
        here = dial(THERE, self.a.poller, ReceiveBuffer(1 << 16))
        self.pass_time(10 * MS)
        (sock,) = listener.accept()
        return here, Connection(sock, self.b.poller, ReceiveBuffer(1 << 16))

    def pass_time(self, duration_ns):
        self.world.run_until(self.world.now_ns + duration_ns)
        self.a.poller.wait(0)
        self.b.poller.wait(0)


@pytest.fixture
def pair():
    return Pair()


def frames(count):
    return [frame(bytes([i]) * 100, session_id=0, stream_id=108) for i in range(count)]


def received(connection):
    data = b""
    while connection.receive():
        data += connection.buffer[connection.start : connection.end].tobytes()
        connection.release(connection.end)
    return data


def test_bytes_come_whole_and_in_order_however_they_are_cut(pair):
    here, there = pair.connect()
    pair.network.partial_chance = 0.9
    sent = frames(50)
    for one in sent:
        assert here.offer(one) > 0
    data = b""
    for _ in range(2_000):
        pair.pass_time(MS)
        data += received(there)

    assert data == b"".join(sent)


def test_nobody_who_listens_is_a_refusal_and_a_blocked_path_is_silence(pair):
    refused = dial(THERE, pair.a.poller, ReceiveBuffer(1 << 16))
    pair.pass_time(10 * MS)
    assert refused.is_closed and refused.was_refused

    pair.network.path("b", "a").is_blocked = True
    silent = dial(THERE, pair.a.poller, ReceiveBuffer(1 << 16))
    pair.pass_time(5 * SECOND)
    assert not silent.is_closed and not silent.is_connected


def test_what_a_blocked_path_holds_comes_when_it_opens(pair):
    here, there = pair.connect()
    pair.network.path("a", "b").is_blocked = True
    (one,) = frames(1)
    here.offer(one)
    pair.pass_time(5 * SECOND)
    assert received(there) == b""

    pair.network.path("a", "b").is_blocked = False
    pair.pass_time(5 * SECOND)
    assert received(there) == one


def test_what_a_path_held_comes_at_once_when_it_is_tried_again(pair):
    here, there = pair.connect()
    pair.network.path("a", "b").is_blocked = True
    first, second = frames(2)
    here.offer(first)
    pair.pass_time(5 * SECOND)
    (sock,) = pair.b.poller.connections()
    pair.network.retry(sock)
    pair.pass_time(0)
    assert received(there) == b""

    pair.network.path("a", "b").is_blocked = False
    pair.network.retry(sock)
    pair.pass_time(0)
    assert received(there) == first
    here.offer(second)
    pair.pass_time(5 * SECOND)
    assert received(there) == second


def test_of_what_a_killed_process_had_sent_some_is_lost_unless_told_otherwise():
    def arrives(seed, chance):
        pair = Pair(seed)
        pair.network.reset_of_killed_chance = chance
        here, there = pair.connect()
        (one,) = frames(1)
        here.offer(one)
        pair.network.on_killed(pair.a.poller)
        pair.pass_time(SECOND)
        return received(there) == one

    assert not all(arrives(seed, 0.5) for seed in range(30))
    assert all(arrives(seed, 0.0) for seed in range(30))


def test_a_cut_may_leave_half_a_frame_which_is_never_handed_over():
    for seed in range(30):
        pair = Pair(seed)
        here, there = pair.connect()
        sent = frames(3)
        here.offer(*sent)
        (sock,) = pair.b.poller.connections()
        pair.network.cut(sock)
        pair.pass_time(SECOND)

        data = received(there)
        assert data == b"".join(sent)[: len(data)]
        assert len(data) % len(sent[0]) == 0
        there.receive()  # behind the half frame, the end
        assert there.is_closed


def a_last_request(seed, *, reads_on):
    """What arrives of a request from who has not read all that was sent to it, and ends the connection."""
    pair = Pair(seed)
    here, there = pair.connect()
    there.offer(*frames(3))
    pair.pass_time(10 * MS)
    (request,) = frames(1)
    here.offer(request)
    if reads_on:
        here.finish()
        while here.discard():
            pass
    else:
        here.close()
    pair.pass_time(10 * MS)
    data = received(there)
    there.receive()
    assert there.is_closed
    return data == request


def test_a_request_may_be_lost_with_what_its_sender_has_not_read_but_not_if_it_reads_on():
    seeds = range(30)
    assert not all(a_last_request(seed, reads_on=False) for seed in seeds)
    assert all(a_last_request(seed, reads_on=True) for seed in seeds)


def test_a_machine_without_power_says_nothing_until_its_successor_resets_who_writes(pair):
    here, _ = pair.connect()
    pair.network.silence("b")
    pair.network.on_power_cut(pair.b.poller)
    pair.pass_time(5 * SECOND)
    assert not here.is_closed

    pair.network.revive("b")
    here.offer(*frames(1))
    pair.pass_time(5 * SECOND)
    here.receive()
    assert here.is_closed
    assert here.offer(*frames(1)) == Offer.CLOSED
