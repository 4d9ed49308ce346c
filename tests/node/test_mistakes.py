"""An exception that is meant for nothing costs a life of its member, neither agreement nor the process."""

import pytest

from cluster import ClusterClient
from cluster.errors import UnexpectedError
from cluster.member.busy import words
from cluster.member.busy.lend import BusyTurns
from cluster.node.node import ClusterNode
from cluster.service.echo import EchoService
from cluster.testing import SimulatedCluster
from cluster.testing.world import Mistake
from tests.node.processes import await_that, endpoints_of, keys_of


def logs_of(cluster):
    recordings = [member.life.consensus_module.log.recording for member in cluster._members.values()]
    return {bytes(r.read(0, r.append_position)) for r in recordings}


@pytest.mark.parametrize("is_compiled", [False, True], ids=["Python's turns", "compiled turns"])
@pytest.mark.parametrize("effects", [1, 3, 8])
def test_members_have_one_history_after_a_mistake_at_any_call_of_the_leader(is_compiled, effects):
    cluster = SimulatedCluster(EchoService, members=3, seed=3, compiled_turns=is_compiled)
    client = cluster.connect("alice")
    client.offer(b"before")
    cluster.settle()
    leader = cluster._members[cluster.leader]
    leader.err_soon(effects)
    lives = leader.incarnation
    for number in range(8):
        client.offer(b"after %d" % number)
        cluster.run(0.002)
    cluster.settle()
    assert leader.incarnation > lives and leader.is_alive
    assert len(logs_of(cluster)) == 1


def test_members_have_one_history_after_a_mistake_before_a_compiled_run_is_taken_back(monkeypatch):
    """The leader has written, and told others, more than its Python knows of."""
    cluster = SimulatedCluster(EchoService, members=3, seed=3, compiled_turns=True)
    client = cluster.connect("alice")
    client.offer(b"before")
    cluster.settle()
    leader, raised = cluster._members[cluster.leader], []
    turn = BusyTurns._turn

    def erring(self, log, params, recording):
        publication = self._agent.parts.log.publication
        before = None if publication is None else publication.position
        turn(self, log, params, recording)
        is_leader = self._words[words.ROLE] == words.LEADER_ROLE
        if not raised and is_leader and publication.position > before:
            raised.append(publication.position)
            raise Mistake("planted")

    monkeypatch.setattr(BusyTurns, "_turn", erring)
    for number in range(8):
        client.offer(b"after %d" % number)
        cluster.run(0.002)
    cluster.settle()
    assert raised and leader.is_alive
    assert len(logs_of(cluster)) == 1


def test_a_member_begins_a_new_life_and_says_what_it_was_at(tmp_path, monkeypatch):
    with ClusterNode.launch(**keys_of(tmp_path, services=["echo"])) as node:
        await_that(lambda: node.is_leader, "a leader")
        module = node._life.consensus_module
        monkeypatch.setattr(module.parts.services, "poll", lambda position: {}["planted"])
        await_that(lambda: node._life is not None and node._life.consensus_module is not module, "a new life")
        await_that(lambda: node.is_leader, "a leader again")
        with ClusterClient.connect(endpoints_of(node, "ipc")) as client:
            client.offer(b"goes on")
            client.await_committed()
        assert node._life.counters.errors.get() == 1
    text = (node.config.path / "node.log").read_text()
    assert "KeyError: 'planted', in <lambda> (test_mistakes.py:" in text
    assert UnexpectedError.code in text and "LEADING, term 0" in text
