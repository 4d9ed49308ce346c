"""SIGSTOP for longer than the time-outs, then SIGCONT: who sleeps loses its say, and takes it up late."""

from __future__ import annotations

import pytest

from benchmarks.load import Load, Session
from benchmarks.real_members import await_that
from cluster import ClusterClient, LogReader
from cluster.client import ClientState
from tests.faults.conftest import (
    BEYOND_STEADY_S,
    SHORT_TIMEOUTS,
    STEADY_TIMEOUTS,
    check_everything,
    leadership_terms,
)

pytestmark = pytest.mark.faults


def test_a_leader_that_wakes_neither_answers_nor_acknowledges_by_its_old_term(members_of):
    """Input waits in its sockets: it must know that it is deposed before it looks at any of it."""
    members = members_of(keys=SHORT_TIMEOUTS)
    members.start()
    asleep = members.await_leader()
    old_term = leadership_terms(members)[asleep]
    answers: list[bytes] = []
    with (
        Load(members.tcp) as load,
        ClusterClient.connect(members.tcp, lambda *told: answers.append(bytes(told[2]))) as client,
    ):
        load.await_progress(members.tell)
        members.pause(asleep)
        offered = [b"waits-0:%d" % number for number in range(1, 101)]
        for payload in offered:
            assert client.offer(payload) > 0, "the socket of a process that is stopped takes it"
        members.await_leader(other_than=asleep)
        load.await_progress(members.tell)
        assert client.acknowledged == 0
        members.wake(asleep)
        await_that(
            lambda: asleep in members.established() and members.leader() not in (None, asleep),
            "the woken one follows",
            tell=members.tell,
        )
        client.await_committed(60)
        waits = Session("waits-0", client.cluster_session_id, 100, client.acknowledged)
        check_everything(members, load, others=[waits])
    with LogReader.open(dir=str(members.member_dir(asleep))) as reader:
        terms = {
            entry["leadershipTermId"]
            for entry in reader.entries()
            if entry["entryType"] == "SESSION_MESSAGE" and entry["clusterSessionId"] == waits.session_id
        }
    assert min(terms) > old_term, "what waited is in the log by the new leader alone"
    assert len(answers) <= len(offered)


class Hears:
    """A listener that notes of each new leader whether the session was with it already."""

    def __init__(self) -> None:
        self.told: list[tuple[int, bool]] = []
        self.client: ClusterClient | None = None

    def on_message(self, *told: object) -> None:
        pass

    def on_new_leader(
        self, cluster_session_id: int, leadership_term_id: int, leader_member_id: int, endpoints: str
    ) -> None:
        assert self.client is not None
        is_resumed = self.client.leadership_term_id == leadership_term_id
        self.told.append((leader_member_id, is_resumed))


@pytest.mark.parametrize("medium", ["ipc", "tcp", "grpc"])
def test_a_leader_that_wakes_and_was_replaced_sends_its_clients_to_the_new_one(members_of, medium):
    """They are told by NewLeaderEvent, on the connection that they have, and wait for no time-out."""
    members = members_of(keys=SHORT_TIMEOUTS)
    members.start()
    asleep = members.await_leader()
    endpoints = {"ipc": members.ipc, "tcp": members.tcp, "grpc": members.endpoints}[medium]
    hears = Hears()
    # Without a thread of its own, which would take the session up before the listener hears of it.
    with ClusterClient.connect(endpoints, hears, keep_alive_interval_s=None) as client:
        hears.client = client
        members.pause(asleep)
        members.await_leader(other_than=asleep)
        members.wake(asleep)

        def is_moved() -> bool:
            client.wait(0.05)
            client.poll_egress()
            return client.leader_member_id != asleep and client.state is ClientState.CONNECTED

        await_that(is_moved, "the client is with the new leader", tell=members.tell)
        assert hears.told[0] == (client.leader_member_id, False)
        assert client.offer(b"after") > 0
        client.await_committed(60)
    members.stop()


def test_a_follower_that_sleeps_costs_nothing_and_catches_up(members_of):
    members = members_of(keys=STEADY_TIMEOUTS)
    members.start()
    with Load(members.tcp) as load:
        leader = members.await_leader()
        term = leadership_terms(members)[leader]
        follower = (leader + 1) % 3
        members.pause(follower)
        for _ in range(BEYOND_STEADY_S):
            load.await_seconds(1)
            load.await_progress(members.tell)
        members.wake(follower)
        members.await_level()
        assert leadership_terms(members)[leader] == term, "nobody needed another leader"
        check_everything(members, load)


def test_a_majority_that_sleeps_acknowledges_nothing_until_it_wakes(members_of):
    members = members_of(keys=SHORT_TIMEOUTS)
    members.start()
    with Load(members.tcp) as load:
        load.await_progress(members.tell)
        leader = members.await_leader()
        asleep = [leader, (leader + 1) % 3]
        for member_id in asleep:
            members.pause(member_id)
        load.await_seconds(0.5)  # what was on its way has come
        acknowledged = load.acknowledged
        load.await_seconds(4)
        assert load.acknowledged == acknowledged
        for member_id in asleep:
            members.wake(member_id)
        load.await_progress(members.tell)
        check_everything(members, load)
