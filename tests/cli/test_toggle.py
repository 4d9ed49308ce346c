"""The control toggle of a leader, as a tool sets it in the counters file: when it may, and why not."""

import pytest

from cluster.cli.toggle import set_control_toggle
from cluster.consensus.context import ConsensusModuleContext
from cluster.counters import CountersFile
from cluster.errors import ClusterError, NotLeader, TimedOut
from cluster.member.counters import MemberCounters
from cluster.protocol.enums import ClusterControlToggle, ConsensusModuleState, ElectionState, Role

T = ClusterControlToggle
State = ConsensusModuleState


@pytest.fixture
def patience(monkeypatch):
    """Nobody waits for a leader that does nothing."""
    monkeypatch.setattr("cluster.cli.toggle.TIMEOUT_S", 0.0)


class Mark:
    member_id = 2
    cluster_id = 0


class ALeader:
    """Counters of an established leader, in memory."""

    def __init__(self, toggle=T.NEUTRAL, state=ConsensusModuleState.ACTIVE):
        self.file = CountersFile.in_memory()
        self.counters = MemberCounters(self.file, ConsensusModuleContext())
        self.counters.node_role.set(Role.LEADER)
        self.counters.election_state.set(ElectionState.CLOSED)
        self.counters.module_state.set(state)
        self.counters.control_toggle.set(toggle)

    def asked(self, toggle, state="ACTIVE"):
        set_control_toggle(self.file, Mark, toggle.name, state)


@pytest.mark.conformance("C-284")
def test_the_codes_of_the_toggle_are_those_of_the_reference():
    names = "INACTIVE NEUTRAL SUSPEND RESUME SNAPSHOT SHUTDOWN ABORT STANDBY_SNAPSHOT"
    assert [toggle.name for toggle in T] == names.split()
    assert [int(toggle) for toggle in T] == list(range(8))


@pytest.mark.conformance("C-285", "S-133", "S-135")
@pytest.mark.parametrize("wanted", [T.SUSPEND, T.SNAPSHOT, T.SHUTDOWN, T.ABORT])
@pytest.mark.parametrize("before", list(T))
def test_an_action_is_taken_from_neutral_and_from_nothing_else(wanted, before, patience):
    leader = ALeader(before)
    if before is T.NEUTRAL:
        with pytest.raises(TimedOut, match=f"was asked for {wanted.name}, and has not done it"):
            leader.asked(wanted)
        assert leader.counters.control_toggle.get() == wanted
    else:
        with pytest.raises(ClusterError, match=f"has its control toggle at {before.name}, expected NEUTRAL"):
            leader.asked(wanted)
        assert leader.counters.control_toggle.get() == before


@pytest.mark.conformance("C-285")
def test_resume_is_taken_from_suspend_too(monkeypatch):
    leader = ALeader(T.SUSPEND, ConsensusModuleState.SUSPENDED)
    acts(monkeypatch, leader, [(T.RESUME, State.SUSPENDED), (T.NEUTRAL, State.ACTIVE)])
    leader.asked(T.RESUME, "SUSPENDED")


def acts(monkeypatch, leader, steps):
    """Whenever the tool sleeps the leader is one step of (toggle, state) further; returns those to come."""
    steps = list(steps)

    def step(_):
        toggle, state = steps.pop(0)
        leader.counters.control_toggle.set(toggle)
        leader.counters.module_state.set(state)

    monkeypatch.setattr("cluster.cli.toggle.time.sleep", step)
    return steps


@pytest.mark.parametrize(
    ("wanted", "steps"),
    [
        (T.SUSPEND, [(T.SUSPEND, State.ACTIVE), (T.SUSPEND, State.SUSPENDED)]),
        (
            T.SHUTDOWN,
            [(T.SHUTDOWN, State.SNAPSHOT), (T.SHUTDOWN, State.TERMINATING), (T.SHUTDOWN, State.CLOSED)],
        ),
        (T.ABORT, [(T.ABORT, State.TERMINATING), (T.ABORT, State.CLOSED)]),
    ],
)
def test_a_request_returns_when_it_is_done(monkeypatch, wanted, steps):
    leader = ALeader()
    to_come = acts(monkeypatch, leader, steps)
    leader.asked(wanted)

    assert to_come == []


def test_a_leader_that_is_deposed_meanwhile_has_done_nothing(monkeypatch):
    leader = ALeader()
    acts(monkeypatch, leader, [(T.SUSPEND, State.ACTIVE), (T.INACTIVE, State.ACTIVE)])
    with pytest.raises(NotLeader, match="member 2 lost its leadership before SUSPEND was done"):
        leader.asked(T.SUSPEND)


def test_who_does_not_lead_is_in_another_state_or_says_nothing_is_told_so(patience):
    leader = ALeader()
    leader.counters.election_state.set(ElectionState.CANVASS)
    with pytest.raises(NotLeader, match="member 2 does not lead"):
        leader.asked(T.SNAPSHOT)
    with pytest.raises(ClusterError, match="member 2 is SNAPSHOT, expected ACTIVE"):
        ALeader(state=ConsensusModuleState.SNAPSHOT).asked(T.SNAPSHOT)
    with pytest.raises(TimedOut, match="was asked for SNAPSHOT, and has not done it within 0 s"):
        ALeader().asked(T.SNAPSHOT)
