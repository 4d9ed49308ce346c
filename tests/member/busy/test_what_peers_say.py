"""What other members say that a compiled turn does not take: Python hears it, and nothing was done by it."""

import pytest

from cluster.consensus.context import ConsensusModuleContext
from cluster.member.busy import lend
from cluster.member.frames import consensus_frame
from cluster.member.phases.following import Following
from cluster.member.phases.leading import Leading
from cluster.protocol.consensus import AppendPosition, CommitPosition
from cluster.protocol.enums import AppendPositionFlags
from cluster.service.echo import EchoService
from cluster.testing import SimulatedCluster
from cluster.testing.network import SimulatedSocket
from tests.member.busy.busy_cluster import PAYLOADS, compiled_turns, processes, run

NONE, CATCHUP = AppendPositionFlags.NONE, AppendPositionFlags.CATCHUP


class Members:
    """A leader and its followers, at rest in one term, and what Python's turns hear of positions."""

    def __init__(self, monkeypatch):
        self.heard = []
        self.cluster = run([[b"x"] * 4], is_compiled=True)
        leader_id = self.cluster.leader
        self.leader, *self.followers = sorted(
            processes(self.cluster), key=lambda member: member.member_id != leader_id
        )
        module = self.leader.life.consensus_module
        self.term, self.end = module.replica.leadership_term_id, module.log.append_position
        for phase, name in ((Leading, "on_append_position"), (Following, "on_commit_position")):
            monkeypatch.setattr(phase, name, self._noting(getattr(phase, name)))

    def _noting(self, call):
        def noting(phase, *said):
            self.heard.append(said)
            return call(phase, *said)

        return noting

    def say(self, sender, receiver, message):
        """What Python hears of it: compiled turns take it, or leave it as it came."""
        turns = compiled_turns(receiver)
        sender.life.links.send(receiver.member_id, consensus_frame(message))
        self.cluster.run(0.003)
        assert self.heard or compiled_turns(receiver) > turns
        return self.heard


@pytest.fixture
def members(monkeypatch):
    return Members(monkeypatch)


def test_a_report_that_can_be_meant_is_taken(members):
    follower = members.followers[0]
    report = AppendPosition(members.term, members.end, follower.member_id, NONE)
    assert members.say(follower, members.leader, report) == []


@pytest.mark.parametrize(
    ("term", "ahead", "flags"),
    [(0, 32, NONE), (0, 1 << 40, NONE), (0, -1, NONE), (-1, 0, NONE), (1, 0, NONE), (0, 0, CATCHUP)],
)
def test_a_report_beyond_the_log_of_another_term_or_of_a_catch_up_is_left_to_python(
    members, term, ahead, flags
):
    follower = members.followers[0]
    said = members.term + term, members.end + ahead, follower.member_id, flags
    assert members.say(follower, members.leader, AppendPosition(*said)) == [(said[2], *said[:2], flags)]
    known = members.leader.life.consensus_module.parts.members[follower.member_id]
    assert known.report_position <= members.end
    members.cluster.check()


@pytest.mark.parametrize(("by_the_leader", "term", "ahead"), [(False, 0, 32), (True, 1, 0), (True, 0, 1)])
def test_a_commit_position_of_another_member_or_term_or_that_is_none_is_left_to_python(
    members, by_the_leader, term, ahead
):
    follower, other = members.followers
    sender = members.leader if by_the_leader else other
    said = members.term + term, members.end + ahead
    heard = members.say(sender, follower, CommitPosition(*said, sender.member_id))
    assert (sender.member_id, *said) in heard
    phase = follower.life.consensus_module.phase
    assert not isinstance(phase, Following) or phase.follower.notified_commit_position <= members.end
    members.cluster.check()


def test_clients_are_read_until_so_much_is_uncommitted_and_no_further(monkeypatch):
    bytes_max = 20_000
    monkeypatch.setattr(ConsensusModuleContext, "uncommitted_bytes_max", bytes_max)
    cluster = run([[b"x"]], is_compiled=True)
    (leader,) = [member for member in processes(cluster) if member.member_id == cluster.leader]
    client, log = cluster.clients[0], leader.life.consensus_module.log
    for member_id in cluster.running:
        if member_id != cluster.leader:
            cluster.pause(member_id)
    turns = compiled_turns(leader)
    for _ in range(60):
        client.offer(bytes(1000))
        cluster.run(0.001)

    assert compiled_turns(leader) > turns
    assert bytes_max <= log.publication.position - log.commit_position < bytes_max + 4_000


def test_an_entry_that_is_left_to_python_is_committed_as_soon_as_a_majority_has_it():
    cluster = run([[b"x"]], is_compiled=True)
    cluster.pause(next(member_id for member_id in cluster.running if member_id != cluster.leader))
    cluster.run(0.3)
    began_ns = cluster.world.now_ns
    cluster.connect("another")
    assert cluster.world.now_ns - began_ns < ConsensusModuleContext().leader_heartbeat_interval_ns / 2


def test_sockets_that_take_a_part_get_the_rest_after_it(monkeypatch):
    send = SimulatedSocket.send
    monkeypatch.setattr(SimulatedSocket, "send", lambda self, data: send(self, memoryview(data)[:700]))
    cluster = run(PAYLOADS, is_compiled=True)
    assert [[bytes(answer) for answer in client.answers] for client in cluster.clients] == PAYLOADS
    assert any(compiled_turns(member) for member in processes(cluster))
    cluster.check()


def test_more_log_than_a_follower_has_memory_for_is_left_to_python(monkeypatch):
    monkeypatch.setattr(lend, "FOLLOWER_LOG_BYTES", 64 * 1024)
    payloads = [[bytes([row]) * 1300 for row in range(100)]]
    cluster = SimulatedCluster(EchoService, members=3, seed=1, compiled_turns=True)
    client = cluster.connect()
    for row in range(4):
        client.offer(payloads[0][row])
        cluster.settle()
    for payload in payloads[0][4:]:
        client.offer(payload)
    cluster.settle()
    assert [bytes(answer) for answer in client.answers] == payloads[0]
    assert all(compiled_turns(member) for member in processes(cluster))
    cluster.check()
