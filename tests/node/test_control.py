"""The toggles of a member, as they are set from outside in the counters file: when they may, and why not."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster.consensus.context import ConsensusModuleContext
from cluster.counters import CountersFile
from cluster.errors import ClusterError, NotLeader, TimedOut
from cluster.member.control import transfer_toggle
from cluster.member.counters import MemberCounters
from cluster.node.control import ControlAction, MemberControl
from cluster.node.node_log import NodeLog
from cluster.protocol.enums import (
    ClusterControlToggle,
    ConsensusModuleState,
    ElectionState,
    NodeControlToggle,
    Role,
)
from cluster.transport.clock import epoch_ms

T = ClusterControlToggle
State = ConsensusModuleState


@pytest.fixture
def patience(monkeypatch):
    """Nobody waits for a leader that does nothing."""
    monkeypatch.setattr("cluster.node.control.TIMEOUT_S", 0.0)


class ALeader:
    """Counters of an established leader, in memory."""

    def __init__(self, toggle=T.NEUTRAL, state=ConsensusModuleState.ACTIVE):
        self.file = CountersFile.in_memory(now_ms=epoch_ms())
        self.counters = MemberCounters(self.file, ConsensusModuleContext())
        self.counters.node_role.set(Role.LEADER)
        self.counters.election_state.set(ElectionState.CLOSED)
        self.counters.module_state.set(state)
        self.counters.control_toggle.set(toggle)

    def asked(self, toggle, is_of_node=False, node_log=Path("no log")):
        MemberControl(self.file, 0, 2, node_log).carry_out(ControlAction(toggle, is_of_node))


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
    leader.asked(T.RESUME)


def acts(monkeypatch, leader, steps):
    """Whenever the tool sleeps the leader is one step of (toggle, state) further; returns those to come."""
    steps = list(steps)

    def step(_):
        toggle, state = steps.pop(0)
        leader.counters.control_toggle.set(toggle)
        leader.counters.module_state.set(state)

    monkeypatch.setattr("cluster.node.control.pause", step)
    return steps


@pytest.mark.parametrize(
    ("wanted", "steps"),
    [
        (T.SUSPEND, [(T.SUSPEND, State.ACTIVE), (T.SUSPEND, State.SUSPENDED)]),
        (T.SHUTDOWN, [(T.SHUTDOWN, State.ACTIVE), (T.SHUTDOWN, State.SNAPSHOT)]),
        (T.ABORT, [(T.ABORT, State.ACTIVE), (T.ABORT, State.TERMINATING)]),
        (T.STANDBY_SNAPSHOT, [(T.STANDBY_SNAPSHOT, State.ACTIVE), (T.NEUTRAL, State.ACTIVE)]),
    ],
)
def test_a_request_returns_when_it_is_done_and_an_end_when_it_has_begun(monkeypatch, wanted, steps):
    leader = ALeader()
    to_come = acts(monkeypatch, leader, steps)
    leader.asked(wanted)

    assert to_come == []


def test_a_transfer_that_is_given_up_fails_with_the_reason_that_the_member_has_noted(monkeypatch, tmp_path):
    node_log, wanted = tmp_path / "node.log", transfer_toggle(1)

    def give_up(why):
        leader = ALeader()
        acts(monkeypatch, leader, [(T.NEUTRAL, State.ACTIVE)])
        with pytest.raises(ClusterError, match=f"(?m)^member 2 goes on leading: {why}$"):
            leader.asked(wanted, node_log=node_log)

    give_up("its node.log says why")
    log = NodeLog(node_log, "info")
    log.info("goes on leading: of the last time")
    log.info("goes on leading: member 1 does not follow")
    log.info("snapshot at 1024: recordings [1, 2]")
    log.close()
    node_log.write_bytes(node_log.read_bytes() + b'not a line\n{"event": 7}\n')
    give_up("member 1 does not follow")


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


@pytest.mark.conformance("C-285")
def test_of_two_operators_at_once_one_is_told_what_the_other_asks_for(patience):
    """The second sees NEUTRAL, and the first sets the toggle before it does."""
    leader = ALeader()
    second = MemberControl(leader.file, 0, 2, Path("no log"))
    find, seen = second._find, []

    def find_late(type_id):
        counter = find(type_id)
        seen.append(counter.get())
        with pytest.raises(TimedOut):
            leader.asked(T.SUSPEND)
        return counter

    second._find = find_late
    with pytest.raises(ClusterError, match="has its control toggle at SUSPEND, expected NEUTRAL"):
        second.carry_out(ControlAction(T.SHUTDOWN))

    assert seen == [T.NEUTRAL]
    assert leader.counters.control_toggle.get() == T.SUSPEND


@pytest.mark.conformance("S-132")
@pytest.mark.parametrize("done_s", [0.5, 29.9, 30.5])
def test_a_snapshot_is_waited_for_until_it_is_done_and_30_seconds_at_most(monkeypatch, done_s):
    leader, passed_s = ALeader(), [0.0]

    def pause(duration_s):
        passed_s[0] += duration_s
        if passed_s[0] >= done_s:
            leader.counters.snapshot_count.set(1)
            leader.counters.control_toggle.set(T.NEUTRAL)

    monkeypatch.setattr("cluster.node.control.pause", pause)
    monkeypatch.setattr("cluster.node.control.time", SimpleNamespace(monotonic=lambda: passed_s[0]))
    if done_s > 30:
        with pytest.raises(TimedOut, match="has not done it within 30 s"):
            leader.asked(T.SNAPSHOT)
    else:
        leader.asked(T.SNAPSHOT)
    assert passed_s[0] == pytest.approx(min(done_s, 30), abs=0.1)


def test_a_snapshot_is_done_when_the_next_operator_has_his_turn_already(monkeypatch):
    leader = ALeader()

    def step(_):
        leader.counters.snapshot_count.set(1)
        leader.counters.control_toggle.set(T.SUSPEND)

    monkeypatch.setattr("cluster.node.control.pause", step)
    leader.asked(T.SNAPSHOT)


def test_a_snapshot_that_a_service_did_not_take_is_none(monkeypatch):
    leader = ALeader()
    acts(monkeypatch, leader, [(T.NEUTRAL, State.ACTIVE)])
    with pytest.raises(ClusterError, match="member 2 took no snapshot"):
        leader.asked(T.SNAPSHOT)


def test_a_member_that_ends_meanwhile_is_not_waited_for(monkeypatch):
    leader = ALeader()
    monkeypatch.setattr("cluster.node.control.pause", lambda _: leader.file.update_heartbeat(-1))
    with pytest.raises(ClusterError, match="member 2 ended before SNAPSHOT was done"):
        leader.asked(T.SNAPSHOT)


def test_what_is_about_one_member_alone_any_member_takes(monkeypatch, patience):
    member = ALeader()
    member.counters.node_role.set(Role.FOLLOWER)
    toggle = member.counters.node_control_toggle
    toggle.set(NodeControlToggle.NEUTRAL)
    validate = NodeControlToggle.VALIDATE_RECORDING_LOG
    with pytest.raises(TimedOut, match="was asked for VALIDATE_RECORDING_LOG"):
        member.asked(validate, is_of_node=True)
    with pytest.raises(ClusterError, match="its node toggle at VALIDATE_RECORDING_LOG, expected NEUTRAL"):
        member.asked(validate, is_of_node=True)
    toggle.set(NodeControlToggle.NEUTRAL)
    monkeypatch.setattr("cluster.node.control.TIMEOUT_S", 30.0)
    monkeypatch.setattr("cluster.node.control.pause", lambda _: toggle.set(NodeControlToggle.NEUTRAL))
    member.asked(validate, is_of_node=True)


@pytest.mark.parametrize(
    ("toggle", "is_of_node", "why"),
    [
        (0, False, "toggle 0: no action of a member has this code"),
        (1, False, "toggle 1: no action of a member has this code"),
        (8, False, "toggle 8: no action of a member has this code"),
        (4, True, "toggle 4: no action of a member has this code"),
    ],
)
def test_what_is_no_action_is_not_asked_for(toggle, is_of_node, why):
    leader = ALeader()
    with pytest.raises(ClusterError, match=why):
        leader.asked(toggle, is_of_node)
    assert leader.counters.control_toggle.get() == T.NEUTRAL
    assert leader.counters.node_control_toggle.get() == NodeControlToggle.INACTIVE
