"""The control toggle of a leader, as a tool sets it in the counters file: when it may, and why not."""

import pytest

from cluster.cli.toggle import set_control_toggle
from cluster.consensus.context import ConsensusModuleContext
from cluster.counters import CountersFile
from cluster.errors import ClusterError, NotLeader, TimedOut
from cluster.member.counters import MemberCounters
from cluster.protocol.enums import ClusterControlToggle, ConsensusModuleState, ElectionState, Role

T = ClusterControlToggle


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

    def asked(self, toggle, state="ACTIVE", wait_s=0.0):
        return set_control_toggle(self.file, Mark, toggle.name, state, wait_s)


@pytest.mark.conformance("C-284")
def test_the_codes_of_the_toggle_are_those_of_the_reference():
    names = "INACTIVE NEUTRAL SUSPEND RESUME SNAPSHOT SHUTDOWN ABORT STANDBY_SNAPSHOT"
    assert [toggle.name for toggle in T] == names.split()
    assert [int(toggle) for toggle in T] == list(range(8))


@pytest.mark.conformance("C-285", "S-133", "S-135")
@pytest.mark.parametrize("wanted", [T.SUSPEND, T.SNAPSHOT, T.SHUTDOWN, T.ABORT])
@pytest.mark.parametrize("before", list(T))
def test_an_action_is_taken_from_neutral_and_from_nothing_else(wanted, before):
    leader = ALeader(before)
    if before is T.NEUTRAL:
        assert leader.asked(wanted) == "applied"
        assert leader.counters.control_toggle.get() == wanted
    else:
        with pytest.raises(ClusterError, match=f"has its control toggle at {before.name}, expected NEUTRAL"):
            leader.asked(wanted)
        assert leader.counters.control_toggle.get() == before


@pytest.mark.conformance("C-285")
def test_resume_is_taken_from_suspend_too():
    leader = ALeader(T.SUSPEND, ConsensusModuleState.SUSPENDED)
    assert leader.asked(T.RESUME, "SUSPENDED") == "applied"


def test_who_does_not_lead_is_in_another_state_or_says_nothing_is_told_so():
    leader = ALeader()
    leader.counters.election_state.set(ElectionState.CANVASS)
    with pytest.raises(NotLeader, match="member 2 does not lead"):
        leader.asked(T.SNAPSHOT)
    with pytest.raises(ClusterError, match="member 2 is SNAPSHOT, expected ACTIVE"):
        ALeader(state=ConsensusModuleState.SNAPSHOT).asked(T.SNAPSHOT)
    with pytest.raises(TimedOut, match="has not done SNAPSHOT within 0 s"):
        ALeader().asked(T.SNAPSHOT, wait_s=0.02)
