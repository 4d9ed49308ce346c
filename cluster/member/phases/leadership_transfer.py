"""A leader hands its term over to a follower, for maintenance (Raft: Ongaro's thesis, 3.10).

    begun      nothing is appended any more: clients wait in their sockets
    level      the follower has all of the log, and all of it is committed; our services have answered it, for
               which half an election timeout is waited: the next leader's have processed it, and say nothing
    asked      TransferLeadership ──▶ the follower, which stands at once and says so to all:
    over       an election like any other, in which it asks first

What does not come about in an election timeout is given up, and the leader goes on; at once where the link to
the follower breaks.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cluster.consensus.cluster_member import ClusterMember
from cluster.consensus.context import NULL_VALUE, ConsensusModuleContext
from cluster.consensus.replica import ReplicatedState
from cluster.member.control import GOES_ON_LEADING, Toggles
from cluster.member.log.member_log import MemberLog
from cluster.member.ports import Peers
from cluster.member.reporter import Reporter
from cluster.member.services.service_adapter import ServiceAdapter
from cluster.member.status import MemberStatus
from cluster.protocol.link import TransferLeadership
from cluster.transport.message_frames import link_frame


@dataclass(eq=False)
class LeadershipTransfer:
    """``target_id`` is who is to lead next, NULL_VALUE while nobody is."""

    _context: ConsensusModuleContext
    _members: Mapping[int, ClusterMember]
    _peers: Peers
    _log: MemberLog
    _replica: ReplicatedState
    _status: MemberStatus
    _toggles: Toggles
    _services: ServiceAdapter
    _reporter: Reporter
    target_id: int = NULL_VALUE
    _deadline_ns: int = 0
    _is_asked: bool = False

    def reset(self) -> None:
        """An election is entered, this one's or another."""
        self.target_id = NULL_VALUE
        self._is_asked = self._status.is_handing_over = False

    def begin(self, target_id: int, now_ns: int) -> None:
        """Hand over to a member; with NULL_VALUE to one that would serve clients, then who has most log."""
        following = self.following(now_ns)
        if target_id == NULL_VALUE:
            best = max(following, key=lambda m: (m.serves_clients, m.report_position), default=None)
            target_id = NULL_VALUE if best is None else best.id
        if target_id not in (member.id for member in following):
            if target_id == self._context.member_id:
                self._give_up("it leads already")
            else:
                nobody = target_id == NULL_VALUE
                self._give_up("no member follows" if nobody else f"member {target_id} does not follow")
            return
        self.target_id = target_id
        self._status.is_handing_over = True
        self._deadline_ns = now_ns + self._context.election_timeout_ns
        self._reporter.event(f"hands leadership over to member {target_id}")

    def following(self, now_ns: int) -> list[ClusterMember]:
        """Who might lead next."""
        return [
            member
            for member in self._members.values()
            if member.id != self._context.member_id
            and member.report_term_id == self._replica.leadership_term_id
            and member.is_active(now_ns, self._context.leader_heartbeat_timeout_ns)
        ]

    def do_work(self, commit_position: int, now_ns: int) -> None:
        """Ask the follower when it is level, and give up in time."""
        publication = self._log.publication
        assert publication is not None and self.target_id != NULL_VALUE
        target, position = self._members[self.target_id], publication.position
        if target.report_term_id != self._replica.leadership_term_id:
            self._give_up(f"the link to member {target.id} broke")
        elif now_ns >= self._deadline_ns:
            why = (
                "has not stood"
                if self._is_asked
                else f"has the log to {target.report_position} of {position}"
            )
            self._give_up(f"member {target.id} {why} within an election timeout")
        elif (
            not self._is_asked
            and commit_position == position == target.report_position
            and (self._services.have_answered(position) or self._is_half_over(now_ns))
        ):
            message = TransferLeadership(self._replica.leadership_term_id, position, target.id)
            self._is_asked = self._peers.links.send(target.id, link_frame(message)) > 0

    def _is_half_over(self, now_ns: int) -> bool:
        return self._deadline_ns - now_ns <= self._context.election_timeout_ns // 2

    def is_asked(self, member_id: int) -> bool:
        """Whether the member was asked to stand."""
        return self._is_asked and member_id == self.target_id

    def _give_up(self, why: str) -> None:
        self._reporter.event(f"{GOES_ON_LEADING}: {why}")
        self.reset()
        self._toggles.done()
