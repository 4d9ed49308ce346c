"""The control toggle of a running leader, set from outside (Aeron: ClusterControl, ToggleApplication)."""

from __future__ import annotations

import time

from cluster.archive.files import OsFiles
from cluster.counters import Counter, CountersReader
from cluster.errors import ClusterError, NotLeader, TimedOut
from cluster.protocol.counter_types import CounterTypeId
from cluster.protocol.enums import ClusterControlToggle, ConsensusModuleState, ElectionState, Role
from cluster.protocol.mark_file import ClusterMarkFileHeader
from cluster.reader.member_directory import is_running, members_in

POLL_S = 0.01
TIMEOUT_S = 30.0
# What the leader's module is when such a request is done; any other is when the toggle is NEUTRAL again.
DONE_STATES = {
    ClusterControlToggle.SUSPEND: ConsensusModuleState.SUSPENDED,
    ClusterControlToggle.RESUME: ConsensusModuleState.ACTIVE,
    ClusterControlToggle.SHUTDOWN: ConsensusModuleState.CLOSED,
    ClusterControlToggle.ABORT: ConsensusModuleState.CLOSED,
}


def set_control_toggle(
    counters: CountersReader, mark: ClusterMarkFileHeader, toggle_name: str, state_name: str
) -> None:
    """Ask the member for an action, and wait until it has done it.

    The toggle must be NEUTRAL (SUSPEND too, for RESUME). Raises NotLeader, ClusterError with the reason of a
    refusal, TimedOut.
    """
    who = f"member {mark.member_id}"
    role = _counter(counters, mark, CounterTypeId.NODE_ROLE)
    election = _counter(counters, mark, CounterTypeId.ELECTION_STATE)
    if role.get() != Role.LEADER or election.get() != ElectionState.CLOSED:
        raise NotLeader(f"{who} does not lead: this is for the leader")
    state = _counter(counters, mark, CounterTypeId.CONSENSUS_MODULE_STATE)
    if (found := ConsensusModuleState(state.get())) is not ConsensusModuleState[state_name]:
        raise ClusterError(f"{who} is {found.name}, expected {state_name}")
    toggle = _counter(counters, mark, CounterTypeId.CONTROL_TOGGLE)
    wanted = ClusterControlToggle[toggle_name]
    allowed = {ClusterControlToggle.NEUTRAL}
    if wanted is ClusterControlToggle.RESUME:
        allowed.add(ClusterControlToggle.SUSPEND)
    before = toggle.get()
    if before not in allowed:
        raise ClusterError(f"{who} has its control toggle at {_name(before)}, expected NEUTRAL")
    snapshots = _counter(counters, mark, CounterTypeId.SNAPSHOT_COUNT)
    snapshots_before = snapshots.get()
    toggle.set(wanted)
    deadline = time.monotonic() + TIMEOUT_S
    while not _is_done(wanted, toggle, state):
        if toggle.get() not in (wanted, ClusterControlToggle.NEUTRAL):
            raise NotLeader(f"{who} lost its leadership before {toggle_name} was done")
        if time.monotonic() > deadline:
            raise TimedOut(f"{who} was asked for {toggle_name}, and has not done it within {TIMEOUT_S:g} s")
        time.sleep(POLL_S)
    if wanted is ClusterControlToggle.SNAPSHOT and snapshots.get() == snapshots_before:
        raise ClusterError(f"{who} took no snapshot: `cluster tool errors` says why")


def _is_done(wanted: ClusterControlToggle, toggle: Counter, state: Counter) -> bool:
    done_state = DONE_STATES.get(wanted)
    return toggle.get() == ClusterControlToggle.NEUTRAL if done_state is None else state.get() == done_state


def await_end(directory: str) -> None:
    """Wait until no process has the member's directory, or those of a whole cluster. Raises TimedOut."""
    files = OsFiles()
    members = members_in(files, directory) or [directory]
    deadline = time.monotonic() + TIMEOUT_S
    while running := [member for member in members if is_running(files, member)]:
        if time.monotonic() > deadline:
            raise TimedOut(f"not ended within {TIMEOUT_S:g} s: {', '.join(running)}")
        time.sleep(POLL_S)


def _counter(counters: CountersReader, mark: ClusterMarkFileHeader, type_id: CounterTypeId) -> Counter:
    counter = counters.find(type_id, mark.cluster_id)
    if counter is None:
        raise ClusterError(f"{counters.path}: no counter of type {int(type_id)} of cluster {mark.cluster_id}")
    return counter


def _name(value: int) -> str:
    try:
        return ClusterControlToggle(value).name
    except ValueError:
        return str(value)
