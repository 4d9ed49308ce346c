"""An exception that is meant for nothing costs a life of its member, neither agreement nor the process."""

import errno
import threading

import pytest

from cluster import ClusterClient, LogReader
from cluster.archive.files import OsFiles
from cluster.archive.message_file import read_stored_message
from cluster.errors import UnexpectedError
from cluster.member.busy import lend
from cluster.member.busy.lend import BusyTurns
from cluster.node import disk_failures
from cluster.node.config_text import load
from cluster.node.life import MemberLife
from cluster.node.node import ClusterNode
from cluster.protocol.life_note import LifeNote
from cluster.service.echo import EchoService
from cluster.service.open_sessions import OpenSessions
from cluster.testing import SimulatedCluster
from cluster.testing import cluster as simulated
from cluster.transport.poller import Poller
from tests.node.processes import await_that, endpoints_of, keys_of
from tests.simulation.world import MISTAKES, BadCall, Interrupted, Mistake, Mortal, NoMemory


class _Member(Mortal, simulated._Member):
    """Of a SimulatedCluster, with mistakes."""


@pytest.fixture(autouse=True)
def _members_meet_mistakes(monkeypatch):
    monkeypatch.setattr(simulated, "_Member", _Member)


def logs_of(cluster):
    recordings = [member.life.consensus_module.log.recording for member in cluster._members.values()]
    return {bytes(r.read(0, r.append_position)) for r in recordings}


@pytest.mark.parametrize("is_compiled", [False, True], ids=["Python's turns", "compiled turns"])
@pytest.mark.parametrize(
    ("effects", "mistake"),
    [
        (1, NoMemory),
        (3, BadCall),
        (3, Interrupted),
        (8, Mistake),
        *(pytest.param(n, kind, marks=pytest.mark.slow) for n in (1, 2, 3, 5, 8, 13) for kind in MISTAKES),
    ],
)
def test_members_have_one_history_after_a_mistake_at_any_call_of_the_leader(is_compiled, effects, mistake):
    """What a system call raises may be meant for something: a link that fails costs no life."""
    cluster = SimulatedCluster(EchoService, members=3, seed=3, compiled_turns=is_compiled)
    client = cluster.connect("alice")
    client.offer(b"before")
    cluster.settle()
    leader = cluster._members[cluster.leader]
    leader.err_soon(effects, mistake)
    lives = leader.incarnation
    for number in range(8):
        client.offer(b"after %d" % number)
        cluster.run(0.002)
    cluster.settle()
    assert leader.is_alive
    assert leader.incarnation > lives or issubclass(mistake, OSError)
    assert len(logs_of(cluster)) == 1


def test_members_have_one_history_after_a_mistake_before_a_compiled_run_is_taken_back(monkeypatch):
    """The leader has written, and told others, more than its Python knows of."""
    cluster = SimulatedCluster(EchoService, members=3, seed=3, compiled_turns=True)
    client = cluster.connect("alice")
    client.offer(b"before")
    cluster.settle()
    leader, raised = cluster._members[cluster.leader], []
    turn = lend.busy_turns

    def erring(tables):
        if raised:
            turn(tables)
            return
        publication = leader.life.consensus_module.log.publication
        before = publication.position
        turn(tables)
        if publication.position > before:
            raised.append(publication.position)
            raise Mistake("planted")

    monkeypatch.setattr(lend, "busy_turns", erring)
    for number in range(8):
        client.offer(b"after %d" % number)
        cluster.run(0.002)
    cluster.settle()
    assert raised and leader.is_alive
    assert len(logs_of(cluster)) == 1


def test_a_mistake_in_a_services_container_leaves_no_entry_half_taken(monkeypatch):
    """A service that went on would know of one session fewer than those of other members."""
    cluster = SimulatedCluster(EchoService, members=3, seed=3)
    cluster.connect("alice").offer(b"before")
    cluster.settle()
    follower = cluster._members[(cluster.leader + 1) % 3]
    life = follower.life
    erring, open_ = life.services[0].agent._sessions, OpenSessions.open

    def planted(self, *arguments, **named):
        if self is erring:
            raise Mistake("planted")
        return open_(self, *arguments, **named)

    monkeypatch.setattr(OpenSessions, "open", planted)
    cluster.connect("bob").offer(b"after")
    cluster.settle()
    assert follower.life is not life
    known = [list(m.life.services[0].agent._sessions.by_id) for m in cluster._members.values()]
    assert known[0] == known[1] == known[2] and len(known[0]) == 2


STEPS = [
    (MemberLife, "turn_busily", MemoryError),
    (BusyTurns, "_turn", OSError(errno.EIO, "planted")),  # after the compiled run, before it is taken back
    (MemberLife, "do_work", InterruptedError),
    (Poller, "wait", OSError(errno.EIO, "planted")),
]


def test_what_was_acknowledged_is_there_once_after_any_exception_between_the_steps_of_the_loop(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(disk_failures, "PAUSE_MAX_NS", 10**6)
    armed, raised = [], []

    def erring(original):
        def step(self, *arguments, **named):
            result = original(self, *arguments, **named)
            is_member = threading.current_thread().name == "cluster-0"
            if is_member and armed and armed[0][1] == original.__name__ and isinstance(self, armed[0][0]):
                raised.append(armed.pop())
                raise raised[-1][2]
            return result

        return step

    for owner, name in dict.fromkeys((owner, name) for owner, name, _ in STEPS):
        monkeypatch.setattr(owner, name, erring(getattr(owner, name)))
    sent = []
    with ClusterNode.launch(**keys_of(tmp_path, services=["echo"])) as node:
        for number, step in enumerate(STEPS):
            await_that(lambda: node.is_leader, "a leader")
            with ClusterClient.connect(endpoints_of(node, "ipc")) as client:
                client.offer(b"%d" % number)
                client.await_committed()
                sent.append(b"%d" % number)
                life = node._life
                armed.append(step)
                client.offer(b"maybe")
                await_that(lambda life=life: node._life not in (life, None), f"a new life after {step}")
    assert raised == STEPS
    with LogReader.open(dir=str(node.config.path)) as reader:
        rows = [entry["payload"] for entry in reader.entries() if entry["entryType"] == "SESSION_MESSAGE"]
    assert [row for row in rows if row != b"maybe"] == sent


def test_an_interrupt_from_the_keyboard_within_a_turn_is_a_crash(tmp_path, monkeypatch):
    """Of a node that runs in the main thread: nothing more is written, as if it had been killed."""
    do_work = MemberLife.do_work

    def interrupted(self, *now):
        work_count = do_work(self, *now)
        if self.consensus_module.log.commit_position > 0:
            raise KeyboardInterrupt
        return work_count

    monkeypatch.setattr(MemberLife, "do_work", interrupted)
    config = load(None, overrides=keys_of(tmp_path, services=["echo"]))
    with pytest.raises(KeyboardInterrupt):
        ClusterNode(config).run()
    note = read_stored_message(OsFiles(), str(config.cluster_path / "life.dat"), LifeNote)
    assert not note.has_ended


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
