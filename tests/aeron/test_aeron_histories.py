"""A client over random histories of a cluster that loses what it may lose: each message is in the log once.

The leader reads what was offered to it, and drops what is meant for another term. An election cuts what is
not committed, anywhere. Connections break for a while, events get lost, and time passes in jumps.
"""

from __future__ import annotations

import random
import socket
from typing import Any
from zlib import crc32

import pytest

from cluster.aeron.aeron_gateway import AeronGateway
from cluster.aeron.log_follower import FoundMessages, FoundTerm
from cluster.client.cluster_client import ClusterClient
from cluster.client.connecting import SessionOpening
from cluster.client.context import ClientContext
from cluster.client.session_conductor import ClientState
from cluster.transport.dialler import Dialler
from cluster.transport.endpoint import Endpoint
from cluster.transport.sockets import Connection
from tests.aeron.scripted_cluster import LOG_MESSAGE_MAX, ScriptedFollower, ScriptedMembers

STEPS = 250


class History:
    """The cluster, the gateway and the client, in one thread and one clock."""

    def __init__(self, monkeypatch: Any, seed: int) -> None:
        self.chance = random.Random(seed)
        self.members = ScriptedMembers(monkeypatch)
        self.follower = ScriptedFollower()
        self.gateway = AeronGateway(self.members.session, self.follower, LOG_MESSAGE_MAX)  # type: ignore[arg-type]
        self.term, self.leader = 3, 0
        self.appended: list[bytes | FoundTerm] = []  # of the leader's log, beyond what is committed
        self.committed: list[bytes] = []
        self.read: dict[int, int] = {}  # payloads of each publication, by its place
        self.sent: list[bytes] = []
        self.members.answers_at_once = True
        self.world = World(self)
        context = ClientContext("aeron:host:1", keep_alive_interval_s=None, new_leader_timeout_s=1000)
        opening = SessionOpening(context, self.world)  # type: ignore[arg-type]
        while not opening.poll():
            self.world.wait(0.001)
        self.client = ClusterClient(context, self.world, opening)  # type: ignore[arg-type]

    # ---- the cluster

    def deliver(self, count: int) -> None:
        """The leader reads what has come."""
        place = max(i for i, each in enumerate(self.members.all) if each is self.members.to(self.leader))
        publication = self.members.all[place]
        if publication.is_connected:
            begin = self.read.get(place, 0)
            payloads = publication.payloads[begin : begin + count]
            self.read[place] = begin + len(payloads)
            self.appended += [payload for term_id, payload in payloads if term_id == self.term]

    def commit(self, count: int) -> None:
        for _ in range(min(count, len(self.appended))):
            entry = self.appended.pop(0)
            if isinstance(entry, bytes):
                self.committed.append(entry)
                self.follower.found.append(FoundMessages([crc32(entry)], 100 * len(self.committed)))
            else:
                self.follower.found.append(entry)

    def elect(self) -> None:
        """The new leader has what is committed, and some of what is not."""
        del self.appended[self.chance.randrange(len(self.appended) + 1) :]
        self.term, self.leader = self.term + 1, self.chance.randrange(3)
        self.appended.append(FoundTerm(self.term, self.leader))
        if self.chance.random() < 0.7:
            self.members.say(self.members.new_leader(self.term, self.leader))

    def disturb(self) -> None:
        match self.chance.randrange(12):
            case 0:
                self.elect()
            case 1:
                self.members.to(self.leader).is_connected = False
            case 2:
                self.members.connects = self.chance.random() < 0.5
            case 3:
                self.members.to(self.leader).results += [-2] * self.chance.randrange(5)
            case 4:
                self.members.clock.wait(self.chance.choice([1, 8]))
            case _:
                self.heal()

    def heal(self) -> None:
        self.members.connects = True
        for each in self.members.all:
            each.is_connected = True

    # ---- time

    def step(self) -> None:
        self.deliver(self.chance.randrange(4))
        self.commit(self.chance.randrange(4))
        self.gateway.do_work()
        for _ in range(self.chance.randrange(3)):
            message = b"%d" % len(self.sent)
            if self.client.offer(message) > 0:
                self.sent.append(message)
        self.client.poll_egress()
        self.members.clock.wait(0.02)

    def settle(self) -> None:
        """No more trouble: all is committed in the end."""
        for _ in range(2000):
            self.heal()
            self.step()
            if self.client.acknowledged == len(self.sent):
                return
        raise AssertionError(f"{self.client.state}: {self.client.acknowledged} of {len(self.sent)}")


class World(Dialler):
    def __init__(self, history: History) -> None:
        super().__init__()
        self.history = history
        self.now_ns = lambda: history.members.clock.now_ns  # type: ignore[method-assign]

    def dial(self, endpoint: Endpoint) -> Connection:
        ours, theirs = socket.socketpair()
        self.history.gateway.take(theirs)
        return Connection(ours, self.poller, self._receive_buffer)

    def wait(self, timeout_s: float, *, is_due: bool = False) -> None:
        self.history.members.clock.wait(timeout_s)
        self.history.gateway.do_work()
        self.poll()


@pytest.mark.conformance("M-38")
@pytest.mark.timeout(600)  # hundreds of them take a minute of a machine that does nothing else
@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 400), marks=pytest.mark.slow)])
def test_whatever_a_cluster_loses_each_message_is_in_its_log_once_and_in_order(monkeypatch, seeds):
    terms = 0
    for seed in seeds:
        history = History(monkeypatch, seed)
        for _ in range(STEPS):
            history.disturb()
            history.step()
            assert history.committed == history.sent[: len(history.committed)], f"seed {seed}"
        history.settle()
        assert history.committed == history.sent, f"seed {seed}"
        assert history.client.state is ClientState.CONNECTED
        terms += history.term
        history.client.close()
        history.gateway.close()
    assert terms > 10 * len(seeds), "there were elections"


def test_a_message_that_the_leader_never_got_unseen_ends_the_session_and_is_no_silent_loss(monkeypatch):
    history = History(monkeypatch, 1)
    for message in (b"0", b"1", b"2"):
        assert history.client.offer(message) > 0
    history.gateway.do_work()
    del history.members.to(0).offered[-2]  # the image was lost for a moment
    history.deliver(9)
    history.commit(9)
    for _ in range(5):
        history.gateway.do_work()
        history.members.clock.wait(0.02)
        if not history.client.is_closed:
            history.client.poll_egress()
    assert history.client.acknowledged == 1
    assert "the leader has missed some before it" in history.client.why_closed
