"""The control toggle of a running leader, set from outside (Aeron: ClusterControl, ToggleApplication)."""

from __future__ import annotations

import time

from cluster.counters import Counter, CountersReader
from cluster.errors import ClusterError, NotLeader, TimedOut
from cluster.protocol.counter_types import CounterTypeId
from cluster.protocol.enums import ClusterControlToggle, ConsensusModuleState, ElectionState, Role
from cluster.protocol.mark_file import ClusterMarkFileHeader

POLL_S = 0.01


def set_control_toggle(
    counters: CountersReader,
    mark: ClusterMarkFileHeader,
    toggle_name: str,
    state_name: str,
    wait_s: float,
) -> str:
    """Ask the member for an action; return how that went. With ``wait_s``, wait until it is done.

    The toggle must be NEUTRAL (SUSPEND too, for RESUME). Raises NotLeader, ClusterError with the reason of a
    refusal, TimedOut.
    """
    who = f"member {mark.member_id}"
    role = _counter(counters, mark, CounterTypeId.NODE_ROLE)
    election = _counter(counters, mark, CounterTypeId.ELECTION_STATE)
    if role.get() != Role.LEADER or election.get() != ElectionState.CLOSED:
        raise NotLeader(f"{who} does not lead: this is for the leader")
    state = ConsensusModuleState(_counter(counters, mark, CounterTypeId.CONSENSUS_MODULE_STATE).get())
    if state is not ConsensusModuleState[state_name]:
        raise ClusterError(f"{who} is {state.name}, expected {state_name}")
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
    if not wait_s:
        return "applied"
    deadline = time.monotonic() + wait_s
    while toggle.get() == wanted:
        if time.monotonic() > deadline:
            raise TimedOut(f"{who} has not done {toggle_name} within {wait_s:.0f} s")
        time.sleep(POLL_S)
    if toggle.get() != ClusterControlToggle.NEUTRAL:
        raise NotLeader(f"{who} lost its leadership before {toggle_name} was done")
    if wanted is ClusterControlToggle.SNAPSHOT and snapshots.get() == snapshots_before:
        raise ClusterError(f"{who} took no snapshot: `cluster tool errors` tells why")
    return "completed"


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
