"""A member that did not run for a while looks around before it acts (SIGSTOP, a paused machine, a stall).

    a gap between two turns as long as a leader's lease
      leader     no majority within the heartbeat timeout: stands down at once
                 else reads what others have sent, and takes input again once nothing is left to be read and a
                 majority has reported in its term since
      follower   reads what others have sent, before it calls its leader silent

Else the first act of a leader that was replaced meanwhile would be to answer what lay in its sockets
(cowsql/raft 99), or to time out sessions whose keep-alives lay there.
"""

from typing import TYPE_CHECKING

from cluster.consensus.context import SECOND
from cluster.protocol.enums import ConsensusModuleState

if TYPE_CHECKING:
    from cluster.member.agent import ConsensusModuleAgent


class Waking:
    """``is_looking_around`` from the gap on, until the member may act again."""

    def __init__(self, agent: "ConsensusModuleAgent") -> None:
        self._agent = agent
        self._woken_ns = 0
        self.is_looking_around = False

    def on_gap(self, gap_ns: int) -> None:
        """A turn begins so long after the one before."""
        agent = self._agent
        if agent.election is None and agent.replica.module.state is not ConsensusModuleState.TERMINATING:
            agent.tell(f"woke up after {gap_ns / SECOND:.1f} s")
            self._woken_ns = agent.now_ns
            self.is_looking_around = True
            agent.check_quorum()

    def on_polled(self, heard: int) -> None:
        """So much was there to be read in this turn."""
        agent = self._agent
        if agent.leading is not None:
            leadership = agent.leading.leader.leadership
            is_done = not heard and leadership.is_followed_since(self._woken_ns, agent.now_ns)
            if not is_done:
                agent.check_quorum()
        else:
            is_done = not heard or agent.now_ns - self._woken_ns >= agent.context.lease_ns
        if is_done or agent.election is not None:
            self.is_looking_around = False
