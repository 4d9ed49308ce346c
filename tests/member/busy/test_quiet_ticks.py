"""Slow ticks in compiled code look for what an operator asks; the rest is left to Python's, every 50 ms."""

from itertools import pairwise

import pytest

from cluster.member.agent import ConsensusModuleAgent
from cluster.member.phases.leading import Leading
from cluster.member.turn import QUIET_NS
from cluster.protocol.enums import ClusterControlToggle, ConsensusModuleState
from cluster.service.echo import EchoService
from cluster.testing import SimulatedCluster
from tests.member.busy.busy_cluster import processes

TICK_S = 0.010


@pytest.fixture
def cluster():
    cluster = SimulatedCluster(EchoService, members=3, seed=7, compiled_turns=True)
    client = cluster.connect()
    client.offer(b"first")
    cluster.settle()
    cluster.run(0.5)
    return cluster


@pytest.fixture
def ticks(monkeypatch):
    """When each member took a slow tick in Python, in ns by its id."""
    taken = {}
    slow_tick = ConsensusModuleAgent._slow_tick

    def noted(self):
        taken.setdefault(self.context.member_id, []).append(self.turn.now_ns)
        slow_tick(self)

    monkeypatch.setattr(ConsensusModuleAgent, "_slow_tick", noted)
    return taken


def modules(cluster):
    return {member.member_id: member.life.consensus_module for member in processes(cluster)}


def test_an_idle_member_takes_a_slow_tick_in_python_every_50_ms(cluster, ticks):
    cluster.run(1.0)

    assert sorted(ticks) == [0, 1, 2]
    for taken in ticks.values():
        apart = [after - before for before, after in pairwise(taken)]
        assert min(apart) >= QUIET_NS
        assert max(apart) <= QUIET_NS + 2 * TICK_S * 1e9


@pytest.mark.parametrize("which", ["control_toggle", "node_control_toggle"])
def test_what_an_operator_asks_for_is_seen_within_a_tick(cluster, ticks, which):
    leader = modules(cluster)[cluster.await_leader()]
    leader_id = leader.context.member_id
    cluster.run_until(lambda: leader_id in ticks, "the leader takes a slow tick")
    toggle = getattr(leader.counters, which)
    asked = ClusterControlToggle.SUSPEND if which == "control_toggle" else 3  # VALIDATE_RECORDING_LOG
    toggle.set(asked)
    cluster.run(TICK_S * 1.5)

    if which == "control_toggle":
        assert leader.replica.module.state is ConsensusModuleState.SUSPENDED
    else:
        assert toggle.get() == ClusterControlToggle.NEUTRAL, "done"


@pytest.mark.parametrize(
    "pending",
    [
        ("parts.replica.sessions", "_has_pending_events"),
        ("parts.backups", "_rejected"),
        ("parts.requests", "_undecided"),
        ("parts.standby_snapshots", "_candidates"),
    ],
    ids=lambda pending: pending[0].rpartition(".")[2],
)
def test_no_tick_is_quiet_while_something_waits_for_it(cluster, pending):
    where, name = pending
    module = modules(cluster)[cluster.await_leader()]
    assert module.quiet_until_ns > 0
    part = module
    for attribute in where.split("."):
        part = getattr(part, attribute)
    before = getattr(part, name)
    something = {bool: True, list: [None], dict: {0: None}}
    setattr(part, name, something[type(before)])

    assert module.quiet_until_ns == 0
    setattr(part, name, before)


def test_a_session_that_is_opened_in_compiled_turns_is_seen_by_the_very_next_turn(cluster, monkeypatch):
    """The commit of its open event hastens the slow tick, which completes it: nobody waits 10 ms for that."""
    waited = []
    on_committed = Leading._on_committed
    slow_tick = ConsensusModuleAgent._slow_tick
    hastened = {}

    def committed(self, commit_position):
        on_committed(self, commit_position)
        if self._replica.sessions.has_pending_work:
            hastened.setdefault(self._ports.context.member_id, self._ports.turn.now_ns)

    def ticked(self):
        if (since_ns := hastened.pop(self.context.member_id, None)) is not None:
            waited.append(self.turn.now_ns - since_ns)
        slow_tick(self)

    monkeypatch.setattr(Leading, "_on_committed", committed)
    monkeypatch.setattr(ConsensusModuleAgent, "_slow_tick", ticked)
    for number in range(10):
        cluster.connect(f"client {number}")

    assert len(waited) >= 10
    assert max(waited) < 1_000_000


def test_turns_in_compiled_code_are_no_stall_of_the_module_or_of_its_service(cluster):
    client = cluster.connect()
    for number in range(40):
        client.offer(b"%d" % number)
        cluster.run(0.005)

    for member in processes(cluster):
        module, (service,) = member.life.counters, member.life.services
        assert service.counters.max_cycle_time_ns.get() <= 1.5 * TICK_S * 1e9
        assert module.max_cycle_time_ns.get() <= 2.5 * TICK_S * 1e9
