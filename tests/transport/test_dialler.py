"""How a client waits: without a sleep at first where an answer is due, as long as that pays."""

import socket
import time

import pytest

from cluster.transport.dialler import SPIN_NS, SPIN_REST, Dialler
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.poller import READABLE, Poller

LONG_NS = 20_000_000_000


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
