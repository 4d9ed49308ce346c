"""How a client waits, at first without a sleep where an answer is due, and what else it has of the world."""

import queue
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from cluster.transport.dialler import SPIN_NS, SPIN_REST, Dialler
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.poller import READABLE, Poller

DEADLINE_S = 20
LONG_NS = DEADLINE_S * 1_000_000_000


@pytest.fixture
def dialler():
    dialler = Dialler()
    yield dialler
    dialler.close()


@pytest.fixture
def spins(dialler, monkeypatch):
    """For how long each wait spun; a spin finds something as long as ``spins.finds`` says so."""

    class Spins(list):
        finds = True

        def sleep(self, timeout_s, spin_ns=0):
            self.append(spin_ns)
            return spin_ns > 0 and self.finds

    spins = Spins()
    monkeypatch.setattr(dialler.poller, "sleep", spins.sleep)
    return spins


def test_a_wait_spins_for_what_is_due_as_long_as_that_finds_something(dialler, spins):
    for is_due in (True, False, True):
        dialler.wait(1, is_due=is_due)
    assert spins == [SPIN_NS, 0, SPIN_NS]


def test_after_a_spin_in_vain_waits_sleep_for_a_while(dialler, spins):
    spins.finds = False
    for _ in range(SPIN_REST + 2):
        dialler.wait(1, is_due=True)
        dialler.wait(1)
    assert spins[::2] == [SPIN_NS, *[0] * SPIN_REST, SPIN_NS]


def test_a_wait_for_a_session_over_grpc_leaves_the_interpreter_to_its_threads(dialler, spins):
    connection = dialler.dial(Endpoint(Medium.GRPC, "127.0.0.1", 1))
    dialler.wait(1, is_due=True)
    assert spins == [0]
    connection.close()


def test_a_wait_on_what_is_closed_ends_at_once(dialler):
    dialler.close()
    dialler.wait(60)


def test_the_duty_beside_is_called_once_when_it_is_asked_for_and_at_the_close(dialler):
    class Owner(queue.SimpleQueue):
        rest_s = 3600

        def duty(self):
            self.put("called")
            return self.rest_s

    owner = Owner()
    dialler.run_beside(owner.duty)
    owner.get(timeout=DEADLINE_S)
    dialler.call_soon()
    owner.get(timeout=DEADLINE_S)
    with pytest.raises(queue.Empty):
        owner.get(timeout=0.02)
    owner.rest_s = None
    dialler.close()
    owner.get(timeout=DEADLINE_S)


def test_a_copy_that_was_forked_off_while_another_thread_waited_can_be_closed():
    dialler = Dialler()
    dialler._sleeping.acquire()
    dialler.on_forked("it is a copy")
    closing = threading.Thread(target=dialler.close, daemon=True)
    closing.start()
    closing.join(DEADLINE_S)
    assert not closing.is_alive()


@pytest.mark.parametrize(
    ("medium", "host", "channel"),
    [
        (Medium.TCP, "10.0.0.1", "aeron:udp?endpoint=10.0.0.1:9"),
        (Medium.TCP, "::1", "aeron:udp?endpoint=[::1]:9"),
        (Medium.IPC, "", "aeron:ipc"),
    ],
)
def test_a_response_channel_names_the_clients_own_end(dialler, medium, host, channel):
    connection = SimpleNamespace(local_address=(host, 9))
    assert dialler.response_channel(connection, Endpoint(medium)) == channel


@pytest.fixture
def watched():
    """A poller that watches one end of a pair, and the other end."""
    poller = Poller()
    ours, theirs = socket.socketpair()
    poller.register(ours.fileno(), object(), READABLE)
    yield poller, theirs
    poller.close()
    ours.close()
    theirs.close()


@pytest.mark.parametrize("spin_ns", [0, LONG_NS])
def test_a_sleep_ends_with_what_came_whether_it_spins_or_not(watched, spin_ns):
    poller, theirs = watched
    theirs.send(b"x")
    assert poller.sleep(60, spin_ns) == (spin_ns > 0)


def test_a_sleep_spins_no_longer_than_it_may_last(watched):
    poller, _ = watched
    began = time.monotonic()
    assert not poller.sleep(0, LONG_NS)
    assert not poller.sleep(0.001, LONG_NS)
    assert time.monotonic() - began < LONG_NS / 2e9
