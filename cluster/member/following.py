"""A turn of an established follower: sync and report first, everything else can wait for it."""

from typing import TYPE_CHECKING

from cluster.consensus.actions import CompleteElection
from cluster.consensus.context import NULL_POSITION
from cluster.consensus.established import Follower
from cluster.errors import RemoteProtocolError
from cluster.member.admission import fault_of_commit
from cluster.member.frames import AppendPositionFrame

if TYPE_CHECKING:
    from cluster.member.agent import ConsensusModuleAgent


class Following:
    """Exists while the member follows an established leader."""

    def __init__(self, agent: "ConsensusModuleAgent", action: CompleteElection) -> None:
        self._agent = agent
        self._append_frame = AppendPositionFrame(agent.context.member_id)
        self.follower = Follower(
            agent.context,
            leadership_term_id=action.leadership_term_id,
            leader_member_id=action.leader_member_id,
            notified_commit_position=action.notified_commit_position,
            candidate_term_id=agent.node_state.candidate_term_id,
            now_ns=agent.now_ns,
        )
        self._seen_position = NULL_POSITION  # of the recording
        self._seen_ns = agent.now_ns

    def on_commit_position(self, member_id: int, term_id: int, log_position: int) -> None:
        agent = self._agent
        if (fault := fault_of_commit(agent, member_id, term_id, log_position)) is not None:
            told = f"member {member_id} tells of a commit to {log_position} in term {term_id}: {fault}"
            agent.on_error(RemoteProtocolError(told))
            return
        reason = self.follower.on_commit_position(term_id, log_position, member_id, agent.now_ns)
        if reason is not None:
            agent.enter_election(reason)

    def is_log_missing(self) -> bool:
        """Whether for the heartbeat timeout no log was announced, or none came of what is committed.

        Whatever was lost on the way (our request, the LogImage): an election asks for all of it again.
        """
        agent = self._agent
        recording, subscription = agent.log.recording, agent.subscription
        assert recording is not None
        position = recording.append_position
        is_level = (
            subscription is not None
            and subscription.has_image
            and self.follower.notified_commit_position <= position
        )
        if is_level or position != self._seen_position:
            self._seen_position, self._seen_ns = position, agent.now_ns
        return agent.now_ns - self._seen_ns >= agent.context.leader_heartbeat_timeout_ns

    def do_work(self) -> int:
        agent, follower = self._agent, self.follower
        recording = agent.log.recording
        assert recording is not None
        work_count = 0
        if recording.append_position != recording.synced_position:
            recording.sync()
            work_count = 1
        synced_position = recording.synced_position
        if follower.is_append_position_due(synced_position, agent.now_ns):
            frame = self._append_frame.of(follower.leadership_term_id, synced_position)
            if agent.links.send(follower.leader_member_id, frame) > 0:
                follower.on_append_position_sent(synced_position, agent.now_ns)
        if agent.replica.module.reads_log:
            if agent.log.adapter.position < follower.notified_commit_position:
                work_count += agent.process_log(follower.notified_commit_position)
            if agent.termination.check_follower():
                agent.termination.terminate_services()
            else:
                work_count += agent.clients.poll(agent.ingress_adapter)
        return work_count
