"""Every change of phase that the diagram shows is taken here, and no other is possible."""

import inspect
import re
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.member import agent as agent_module
from cluster.member.agent import ConsensusModuleAgent
from cluster.member.phase import PHASES, Close, Elect, PhaseName
from cluster.protocol.enums import ClusterControlToggle
from tests.consensus.state_diagram import redrawn
from tests.member.cluster_steps import a_busy_cluster, a_cluster, lose_segment, toggle, wiped
from tests.member.in_memory.cluster import SECOND, SimulatedCluster
from tests.member.phase_diagram import phase_diagram

PHASES_MD = Path(__file__).resolve().parents[2] / "docs" / "phases.md"
P = PhaseName


@pytest.fixture
def taken(monkeypatch):
    """Every change of phase from here on, as (old, new)."""
    changes = []
    change_phase = ConsensusModuleAgent._change_phase

    def noting(self, phase):
        changes.append((self.phase.name, phase.name))
        change_phase(self, phase)

    monkeypatch.setattr(ConsensusModuleAgent, "_change_phase", noting)
    return changes


def test_every_phase_is_in_the_table():
    assert set(PHASES) == set(PhaseName)


def test_the_document_shows_the_diagram_of_the_code():
    text = PHASES_MD.read_text()

    assert phase_diagram() in text
    assert redrawn(text, phase_diagram()) == text


def test_the_phase_changes_in_one_place():
    source = inspect.getsource(agent_module)
    made = re.findall(r"def (\w+)\(|self\.phase(?:: Phase)? = (\w+)", source)
    within, changes = "", []
    for function, value in made:
        within = function or within
        if value:
            changes.append((within, value))

    # A life begins in one of three phases; after that there is one way.
    assert changes == [
        ("__init__", "Starting"),
        ("on_start", "Repairing"),
        ("on_start", "Replicating"),
        ("_change_phase", "phase"),
    ]


# ---- a way for each arrow


def elected_twice_and_ended():
    cluster = a_cluster()
    yield
    cluster.leader.enter_election("test")
    cluster.await_leader(timeout_ns=90 * SECOND)
    toggle(cluster, ClusterControlToggle.ABORT)
    cluster.run_until(lambda: all(member.agent is None for member in cluster.members))


def damaged_log_repaired():
    cluster = a_busy_cluster(messages=900)
    member = cluster.followers[0]
    member.stop()
    lose_segment(member, 1)
    yield
    member.start()
    cluster.run_until(lambda: member.is_following, timeout_ns=90 * SECOND)


def nobody_has_a_snapshot_for_an_empty_member():
    cluster = a_busy_cluster()
    member = cluster.followers[0]
    yield
    wiped(member)
    cluster.run_until(lambda: member.is_following, timeout_ns=90 * SECOND)


def nobody_answers(endpoint, recording_ids):
    raise ClusterError(f"{endpoint}: nobody is there")


def started_beside_a_newer_snapshot_of_a_standby():
    cluster = a_busy_cluster(accept_standby_snapshots=True)
    member = cluster.followers[0]
    cluster.archives = nobody_answers
    member.recording_log.append_snapshot(7, 0, 0, member.commit_position, 0, 0, "nobody:1")
    member.recording_log.append_snapshot(8, 0, 0, member.commit_position, 0, -1, "nobody:1")
    member.kill()
    yield
    member.start()
    cluster.run_until(lambda: member.is_following, timeout_ns=90 * SECOND)


def started():
    yield
    a_cluster()


WAYS = {
    started: {(P.STARTING, P.ELECTING), (P.ELECTING, P.LEADING), (P.ELECTING, P.FOLLOWING)},
    elected_twice_and_ended: {
        (P.LEADING, P.ELECTING),
        (P.FOLLOWING, P.ELECTING),
        (P.ELECTING, P.LEADING),
        (P.ELECTING, P.FOLLOWING),
        (P.LEADING, P.CLOSED),
        (P.FOLLOWING, P.CLOSED),
    },
    damaged_log_repaired: {
        (P.REPAIRING, P.STARTING),
        (P.STARTING, P.ELECTING),
        (P.ELECTING, P.FOLLOWING),
    },
    started_beside_a_newer_snapshot_of_a_standby: {
        (P.REPLICATING, P.STARTING),
        (P.STARTING, P.ELECTING),
        (P.ELECTING, P.FOLLOWING),
    },
    nobody_has_a_snapshot_for_an_empty_member: {
        (P.STARTING, P.ELECTING),
        (P.ELECTING, P.FETCHING),
        (P.FETCHING, P.ELECTING),
        (P.ELECTING, P.FOLLOWING),
    },
}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_way_has_these_changes_and_no_other(way, taken):
    steps = way()
    next(steps)
    taken.clear()
    next(steps, None)

    assert set(taken) == WAYS[way]


def test_the_ways_take_each_arrow_of_the_table():
    shown = {(old, new) for old, exits in PHASES.items() for new in exits}

    assert {arrow for way in WAYS.values() for arrow in way if arrow[1] is not P.CLOSED} == shown


def test_a_change_that_is_not_in_the_table_is_refused():
    cluster = SimulatedCluster(3, 1)
    cluster.await_leader(timeout_ns=90 * SECOND)
    leader = cluster.leader
    with pytest.raises(AssertionError, match="LEADING -> LEADING"):
        leader.agent._change_phase(leader.agent.phase)


@pytest.mark.parametrize("phase", ["electing", "leading", "following"])
def test_a_member_can_be_closed_in_any_phase(phase):
    cluster = a_cluster()
    member = cluster.leader if phase == "leading" else cluster.followers[0]
    if phase == "electing":
        member.agent.enter(Elect("test"))
        assert member.is_electing
    member.agent.enter(Close())

    assert member.agent.is_closed
    assert member.agent.do_work(cluster.world.now_ns, 0) == 0
