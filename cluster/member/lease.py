"""A member that did not run for a while asks the others before it acts (SIGSTOP, a paused machine, a stall).

    a gap between two turns as long as a leader's lease
      leader     no majority within the heartbeat timeout: stands down at once
                 else reads what others have sent, and takes input again once nothing is left to be read and a
                 majority has reported in its term since
      follower   reads what others have sent, before it calls its leader silent

Else the first act of a leader that was replaced meanwhile would be to answer what lay in its sockets
(cowsql/raft 99), or to time out sessions whose keep-alives lay there.
"""

from cluster.consensus.context import SECOND
from cluster.member.phase import BEFORE_RECOVERY, Next, Phase, PhaseName
from cluster.member.reporter import Reporter
from cluster.member.status import MemberStatus
from cluster.protocol.enums import ConsensusModuleState

_WITHOUT_LEASE = (*BEFORE_RECOVERY, PhaseName.ELECTING, PhaseName.FETCHING, PhaseName.CLOSED)


class Lease:
    """``is_looking_around`` from the gap on, until the member may act again."""

    def __init__(self, lease_ns: int, status: MemberStatus, reporter: Reporter) -> None:
        self.is_looking_around = False
        self._lease_ns = lease_ns
        self._status = status
        self._reporter = reporter
        self._woken_ns = 0
        self._has_just_woken = False

    def on_turn(self, gap_ns: int, now_ns: int, phase: Phase) -> Next | None:
        """A turn begins so long after the one before."""
        if gap_ns < self._lease_ns or phase.name in _WITHOUT_LEASE:
            return None
        if self._status.module is ConsensusModuleState.TERMINATING:
            return None
        self._reporter.warning(f"woke up after {gap_ns / SECOND:.1f} s")
        self._woken_ns = now_ns
        self._has_just_woken = True
        self.is_looking_around = True
        return phase.check_quorum()

    def on_polled(self, heard: int, phase: Phase) -> Next | None:
        """So much was there to be read in this turn; in the first one sockets may not have been asked yet."""
        if not self.is_looking_around:
            return None
        was_first, self._has_just_woken = self._has_just_woken, False
        if phase.name in _WITHOUT_LEASE or (not was_first and phase.look_around(heard, self._woken_ns)):
            self.is_looking_around = False
            return None
        step = phase.check_quorum()
        self.is_looking_around = step is None
        return step
