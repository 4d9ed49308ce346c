"""What an operator asks the leader for: an action in the log, or the end of the cluster."""

from dataclasses import dataclass

from cluster.consensus.context import NULL_VALUE
from cluster.consensus.replica import ReplicatedState
from cluster.member.control import Toggles, transfer_target
from cluster.member.log.member_log import MemberLog
from cluster.member.phases.leadership_transfer import LeadershipTransfer
from cluster.member.reporter import Reporter
from cluster.member.services.snapshot_policy import SnapshotPolicy
from cluster.member.services.snapshot_taker import SnapshotTaker
from cluster.member.services.termination import Termination
from cluster.member.status import MemberStatus
from cluster.protocol.enums import (
    ClusterAction,
    ClusterActionFlags,
    ClusterControlToggle,
    ConsensusModuleState,
)
from cluster.protocol.log import ClusterActionRequest


@dataclass(eq=False)
class LeaderControl:
    """Carries out what the control toggle says, while the member leads."""

    _toggles: Toggles
    _log: MemberLog
    _replica: ReplicatedState
    _status: MemberStatus
    _snapshots: SnapshotTaker
    _termination: Termination
    _policy: SnapshotPolicy
    _transfer: LeadershipTransfer
    _reporter: Reporter

    def do_work(self, now_ns: int) -> int:
        """Take the action that is asked for; returns how much was done."""
        value, state = self._toggles.requested, self._status.module
        if value is None:
            return self._policy.do_work() if state is ConsensusModuleState.ACTIVE else 0
        if value == ClusterControlToggle.SNAPSHOT and self._snapshots.is_making:
            return 0  # one at a time
        if state is ConsensusModuleState.ACTIVE:
            self._while_active(value, now_ns)
            return 1
        if state is ConsensusModuleState.SUSPENDED and value == ClusterControlToggle.RESUME:
            self._append(ClusterAction.RESUME, ConsensusModuleState.ACTIVE)
            self._toggles.done()
            return 1
        return 0

    def _while_active(self, value: int, now_ns: int) -> None:
        """SUSPEND is done with RESUME, SNAPSHOT with the snapshot, an end never, a transfer when given up."""
        match value:
            case ClusterControlToggle.SUSPEND:
                self._append(ClusterAction.SUSPEND, ConsensusModuleState.SUSPENDED)
            case ClusterControlToggle.ABORT:
                self._termination.begin(now_ns)
            case ClusterControlToggle.SNAPSHOT:
                self._toggles.snapshot_position = self._append_snapshot()
            case ClusterControlToggle.SHUTDOWN:
                self._termination.begin_at(self._append_snapshot(), now_ns)
            case ClusterControlToggle.STANDBY_SNAPSHOT:
                self._append(ClusterAction.SNAPSHOT, None, flags=ClusterActionFlags.STANDBY_SNAPSHOT)
                self._toggles.done()
            case _ if (target_id := transfer_target(value)) is not None:
                if self._transfer.target_id == NULL_VALUE:
                    self._transfer.begin(target_id, now_ns)
            case _:  # RESUME has nothing to resume, and others are none; to leave them would block all
                self._toggles.done()

    def _append_snapshot(self) -> int:
        position = self._append(ClusterAction.SNAPSHOT, ConsensusModuleState.SNAPSHOT)
        self._snapshots.on_appended(position)
        return position

    def _append(self, action: ClusterAction, state: ConsensusModuleState | None, flags: int = 0) -> int:
        """Append the action; the module is in ``state`` from now on. Returns where its entry ends."""
        replica, publication = self._replica, self._log.publication
        assert publication is not None, "only a leader is asked"
        request = ClusterActionRequest(replica.leadership_term_id, 0, replica.cluster_time, action, flags)
        end = publication.end_of(len(request.encode()))
        position = publication.append(request.replace(log_position=end).encode())
        if state is not None:
            replica.module.change_by_log(state, position)
            self._status.show_module()
        self._reporter.event(f"{action.name} at {position}")
        return position
