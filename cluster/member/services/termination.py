"""Ending in order: followers reach the leader's end, services end, the term's end is written down.

leader    TerminationPosition(P) ──▶ follower   processes the log up to P
          its services end at P                 its services end at P
          ◀── TerminationAck(P) ──────────────  recording log: term ends at P; closed
          all acked, or 10 s: the same; closed
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cluster.consensus.cluster_member import ClusterMember
from cluster.consensus.context import NULL_POSITION, NULL_VALUE, ConsensusModuleContext
from cluster.consensus.replica import ReplicatedState
from cluster.errors import RemoteProtocolError
from cluster.member.frames import consensus_frame
from cluster.member.log.member_log import MemberLog
from cluster.member.ports import Peers
from cluster.member.reporter import Reporter
from cluster.member.services.service_adapter import ServiceAdapter
from cluster.member.status import MemberStatus
from cluster.member.turn import Turn
from cluster.protocol.consensus import TerminationAck, TerminationPosition
from cluster.protocol.enums import ConsensusModuleState


@dataclass(eq=False)
class Termination:
    """``position``: where the log is to end, or NULL_POSITION; ``is_over``: the member is to close now."""

    _context: ConsensusModuleContext
    _members: Mapping[int, ClusterMember]
    _peers: Peers
    _log: MemberLog
    _replica: ReplicatedState
    _status: MemberStatus
    _services: ServiceAdapter
    _turn: Turn
    _reporter: Reporter
    position: int = NULL_POSITION
    is_over: bool = False
    _leadership_term_id: int = NULL_VALUE
    _deadline_ns: int = 0
    _are_services_done: bool = False

    def reset(self) -> None:
        """An election came in between: a member whose services were asked to end ends, all others go on."""
        if self._status.module is ConsensusModuleState.TERMINATING:
            self.end()
        else:
            self.position = NULL_POSITION

    # ---- the leader

    def begin(self, now_ns: int) -> None:
        """End the whole cluster at the log's present end (ABORT)."""
        publication = self._log.publication
        assert self._status.is_leading and publication is not None
        publication.flush()
        self.begin_at(publication.position, now_ns)
        self.terminate_services()

    def begin_at(self, log_position: int, now_ns: int) -> None:
        """Have all members end at ``log_position``; of a SHUTDOWN it is after a snapshot, taken first."""
        self.position = log_position
        self._leadership_term_id = self._replica.leadership_term_id
        self._deadline_ns = now_ns + self._context.termination_timeout_ns
        frame = consensus_frame(TerminationPosition(self._leadership_term_id, self.position))
        for member_id in self._peers.ids:
            self._members[member_id].has_terminated = False
            self._peers.links.send(member_id, frame)

    def on_snapshot_done(self, log_position: int, now_ns: int) -> None:
        """The leader has taken the snapshot that comes before its end; followers see for themselves."""
        if self.position == log_position and self._status.is_leading:
            self._deadline_ns = now_ns + self._context.termination_timeout_ns
            self.terminate_services()

    def on_termination_ack(self, ack: TerminationAck) -> None:
        member = self._members.get(ack.member_id)
        if (
            member is not None
            and self.position != NULL_POSITION
            and ack.leadership_term_id == self._leadership_term_id
            and ack.log_position >= self.position
        ):
            member.has_terminated = True

    def is_leader_done(self, now_ns: int) -> bool:
        """Whether services and followers are done, or their time is up; without a majority they never are."""
        are_all_done = self._are_services_done and all(
            self._members[member_id].has_terminated or member_id in self._peers.gone_ids
            for member_id in self._peers.ids
        )
        return are_all_done or now_ns >= self._deadline_ns

    # ---- a follower

    def on_termination_position(self, message: TerminationPosition) -> None:
        """The leader that is followed ends its log there."""
        self.position = message.log_position
        self._leadership_term_id = message.leadership_term_id

    def is_near(self, notified_commit_position: int) -> bool:
        """A follower comes to the end without its leader: it has the log up to it."""
        return (
            self.position != NULL_POSITION
            and min(notified_commit_position, self._log.append_position) >= self.position
        )

    def is_reached(self) -> bool:
        """Whether a follower's log is processed up to its end; an end that a longer log passes was none."""
        position = self._log.commit_position
        if self.position == NULL_POSITION or position < self.position:
            return False
        if position > self.position:
            detail = f"the log was to end at {self.position}, and goes on to {position}"
            self._reporter.error(RemoteProtocolError(detail))
            self.position = NULL_POSITION
            return False
        return True

    # ---- both

    def terminate_services(self) -> None:
        """The services end when they reach the position."""
        self._are_services_done = False
        self._status.set_module(ConsensusModuleState.TERMINATING)
        self._services.terminate(self.position, lambda _: self._on_services_terminated())

    def _on_services_terminated(self) -> None:
        self._are_services_done = True
        status = self._status
        if status.is_following and self._replica.leadership_term_id == self._leadership_term_id:
            ack = TerminationAck(self._leadership_term_id, self.position, status.member_id)
            self._peers.links.send(status.leader_member_id, consensus_frame(ack))
        self.is_over = not status.is_leading

    def end(self) -> None:
        """The member ends here: its last term does, if all of the log is recorded. Raises StorageError."""
        self.is_over = True
        self._log.stop(self._turn.now_ms)
        if self.position != NULL_POSITION:
            self._log.close_term(self._leadership_term_id, self.position)
        self._status.set_module(ConsensusModuleState.CLOSED)
