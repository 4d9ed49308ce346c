"""What an operator asks a running member for, by its toggles (Aeron: ClusterControl, NodeControl).

    NEUTRAL ── compare-and-set ──▶ action ── the member, in its slow tick ──▶ NEUTRAL

The one way there is, for a tool on the member's host (``cli/control.py``), and for the member's own process
when an administrator asks it over the network (``ControlPort``). Neither decides anything: the member does.
"""

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cluster.consensus.authentication import OnAdministered
from cluster.counters import Counter, CountersReader
from cluster.errors import ClusterError, NotLeader, TimedOut
from cluster.member.control import GOES_ON_LEADING, transfer_target
from cluster.protocol.counter_types import CounterTypeId
from cluster.protocol.enums import (
    ClusterControlToggle,
    ConsensusModuleState,
    ElectionState,
    NodeControlToggle,
    Role,
)
from cluster.protocol.link import ControlOutcome, ControlRequest, LinkErrorCode, LogStatus
from cluster.transport.clock import epoch_ms, pause
from cluster.transport.endpoint import Medium, parse_endpoints
from cluster.transport.log_server import Administrator

POLL_S = 0.01
TIMEOUT_S = 30.0
NONE = -1
TAIL_BYTES = 64 * 1024
# Ours, of the node toggle; it is never in the counters file, the member's process is asked itself.
RESTART = 1112
# What ends the cluster is done, as far as its leader knows, when it is begun.
ENDS = (ClusterControlToggle.SHUTDOWN, ClusterControlToggle.ABORT)


class ControlAction(NamedTuple):
    """What a toggle is set to: the leader's control toggle or, ``is_of_node``, that of any one member."""

    toggle: int
    is_of_node: bool = False

    @property
    def name(self) -> str:
        if self.is_transfer:
            return "TRANSFER_LEADERSHIP"
        if self.is_restart:
            return "RESTART"
        kind = NodeControlToggle if self.is_of_node else ClusterControlToggle
        return kind(self.toggle).name if self.toggle in list(kind) else str(self.toggle)

    @property
    def is_transfer(self) -> bool:
        """Of leadership, to another member."""
        return not self.is_of_node and transfer_target(self.toggle) is not None

    @property
    def is_restart(self) -> bool:
        """Of the member's process, by whoever runs that."""
        return self == ControlAction(RESTART, is_of_node=True)

    @property
    def state(self) -> ConsensusModuleState:
        """That of the module in which it is taken."""
        is_resume = not self.is_of_node and self.toggle == ClusterControlToggle.RESUME
        return ConsensusModuleState.SUSPENDED if is_resume else ConsensusModuleState.ACTIVE

    @property
    def is_end(self) -> bool:
        return not self.is_of_node and self.toggle in ENDS

    def check(self) -> None:
        """Raise ClusterError for what no member can do."""
        if self.is_transfer or self.is_restart:
            return
        kinds = NodeControlToggle if self.is_of_node else ClusterControlToggle
        if self.toggle not in list(kinds) or self.toggle <= ClusterControlToggle.NEUTRAL:
            raise ClusterError(f"toggle {self.toggle}: no action of a member has this code")

    def check_target(self, endpoints: str) -> None:
        """Raise ClusterError where leadership is to go to none of the members that ``endpoints`` has."""
        target = transfer_target(self.toggle) if self.is_transfer else None
        members = parse_endpoints(endpoints) if endpoints else {}
        if target not in (None, NONE, *members) and members:
            raise ClusterError(f"there is no member {target}, expected one of {', '.join(map(str, members))}")


# What is done once the member has a snapshot more.
MAKE_SNAPSHOTS = {
    ControlAction(ClusterControlToggle.SNAPSHOT): "took",
    ControlAction(NodeControlToggle.REPLICATE_STANDBY_SNAPSHOT, is_of_node=True): "replicated",
}


class MemberControl:
    """The toggles of one running member, in its counters file, which is open for writing."""

    def __init__(self, counters: CountersReader, cluster_id: int, member_id: int, node_log: Path) -> None:
        """Raises ClusterError when a counter is missing."""
        self._node_log = node_log
        self._counters = counters
        self._cluster_id = cluster_id
        self._who = f"member {member_id}"
        self._role = self._find(CounterTypeId.NODE_ROLE)
        self._election = self._find(CounterTypeId.ELECTION_STATE)
        self._state = self._find(CounterTypeId.CONSENSUS_MODULE_STATE)
        self._snapshots = self._find(CounterTypeId.SNAPSHOT_COUNT)

    def _find(self, type_id: CounterTypeId) -> Counter:
        counter = self._counters.find(type_id, self._cluster_id)
        if counter is None:
            path, cluster_id = self._counters.path, self._cluster_id
            raise ClusterError(f"{path}: no counter of type {int(type_id)} of cluster {cluster_id}")
        return counter

    def carry_out(self, action: ControlAction) -> None:
        """Ask for the action and wait until it is done. Raises NotLeader, ClusterError, TimedOut."""
        action.check()
        if not action.is_of_node and not self._leads:
            raise NotLeader(f"{self._who} does not lead: this is for the leader")
        if (found := ConsensusModuleState(self._state.get())) is not action.state:
            raise ClusterError(f"{self._who} is {found.name}, expected {action.state.name}")
        snapshots_before = self._snapshots.get()
        toggle = self._take(action)
        deadline = time.monotonic() + TIMEOUT_S
        while not self._is_done(action, toggle.get()):
            if not self._counters.is_live(epoch_ms()):
                raise ClusterError(f"{self._who} ended before {action.name} was done")
            if time.monotonic() > deadline:
                raise TimedOut(
                    f"{self._who} was asked for {action.name}, and has not done it within {TIMEOUT_S:g} s"
                )
            pause(POLL_S)
        if (does := MAKE_SNAPSHOTS.get(action)) and self._snapshots.get() == snapshots_before:
            raise ClusterError(f"{self._who} {does} no snapshot: `cluster tool errors` says why")
        if action.is_transfer and self._leads:
            raise ClusterError(f"{self._who} {GOES_ON_LEADING}: {self._why_it_leads()}")

    def _why_it_leads(self) -> str:
        """As the member has just noted it, where its log has the level info."""
        begin = f"{GOES_ON_LEADING}: "
        with contextlib.suppress(OSError):
            for line in reversed(self._node_log.read_bytes()[-TAIL_BYTES:].splitlines()):
                with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                    if (event := json.loads(line)["event"]).startswith(begin):
                        return str(event.removeprefix(begin))
        return "its node.log says why"

    @property
    def _leads(self) -> bool:
        return self._role.get() == Role.LEADER and self._election.get() == ElectionState.CLOSED

    def _take(self, action: ControlAction) -> Counter:
        """Set the toggle, unless somebody else has; from SUSPEND, RESUME is taken too."""
        types = CounterTypeId
        toggle = self._find(types.NODE_CONTROL_TOGGLE if action.is_of_node else types.CONTROL_TOGGLE)
        before = int(ClusterControlToggle.NEUTRAL)
        if action.state is ConsensusModuleState.SUSPENDED and toggle.get() == ClusterControlToggle.SUSPEND:
            before = ClusterControlToggle.SUSPEND
        if not toggle.compare_and_set(before, action.toggle):
            name = "node" if action.is_of_node else "control"
            found = ControlAction(toggle.get(), action.is_of_node).name
            raise ClusterError(f"{self._who} has its {name} toggle at {found}, expected NEUTRAL")
        return toggle

    def _is_done(self, action: ControlAction, toggle: int) -> bool:
        """Raises NotLeader when an election came in between."""
        if action.is_transfer:
            return toggle != action.toggle and self._election.get() == ElectionState.CLOSED
        if not action.is_of_node and toggle == ClusterControlToggle.INACTIVE:
            raise NotLeader(f"{self._who} lost its leadership before {action.name} was done")
        if action.is_end:
            return self._state.get() != action.state
        if action == ControlAction(ClusterControlToggle.SUSPEND):
            return self._state.get() == ConsensusModuleState.SUSPENDED
        return toggle != action.toggle


def next_leader(member_id: int, status: Callable[[], LogStatus | None]) -> int:
    """Who leads after the member, as that says when its log shows it. Raises TimedOut."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() <= deadline:
        found = status()
        if found is not None and found.leader_member_id not in (NONE, member_id):
            return found.leader_member_id
        pause(POLL_S)
    raise TimedOut(f"member {member_id} has not said within {TIMEOUT_S:g} s who leads after it")


@dataclass(frozen=True, slots=True)
class ControlPort:
    """Does what administrators ask a member for over the network; called in threads beside the member's."""

    path: str  # of the member's counters file
    cluster_id: int
    member_id: int
    status: Callable[[], LogStatus]
    endpoints: Mapping[Medium, str]  # the members', as known
    restart: Callable[[], None]  # ends the process, to be started again; ClusterError where nobody would
    on_administered: OnAdministered
    node_log: Path

    def __call__(self, request: ControlRequest, who: Administrator) -> ControlOutcome:
        """What came of the request, when it is done."""
        code, text, leader_id = LinkErrorCode.OK, "", NONE
        endpoints = self.endpoints.get(who.medium, "")
        action = ControlAction(request.toggle, bool(request.is_of_node))
        try:
            action.check_target(endpoints)
            if action.is_restart:
                self.restart()
            else:
                with CountersReader(self.path, write=True) as counters:
                    control = MemberControl(counters, self.cluster_id, self.member_id, self.node_log)
                    control.carry_out(action)
            if action.is_transfer:
                leader_id = next_leader(self.member_id, self.status)
        except NotLeader as error:
            code, text = LinkErrorCode.NOT_LEADER, str(error)
        except ClusterError as error:
            code, text = LinkErrorCode.FAILED, str(error)
        self.on_administered(who.peer, who.encoded_principal, action.name, text or "done")
        return ControlOutcome(
            correlation_id=request.correlation_id,
            member_id=self.member_id,
            leader_member_id=leader_id if leader_id != NONE else self._leader_member_id(),
            code=code,
            ingress_endpoints=endpoints,
            text=text,
        )

    def _leader_member_id(self) -> int:
        try:
            return self.status().leader_member_id
        except ClusterError:
            return NONE
