"""Ending in order: followers reach the leader's end, services end, the term's end is written down.

leader    TerminationPosition(P) ──▶ follower   processes the log up to P
          its services end at P                 its services end at P
          ◀── TerminationAck(P) ──────────────  recording log: term ends at P; closed
          all acked, or 10 s: the same; closed
"""

from typing import TYPE_CHECKING

from cluster.consensus.context import NULL_POSITION, NULL_VALUE
from cluster.errors import RemoteProtocolError
from cluster.member.frames import consensus_frame
from cluster.protocol.consensus import TerminationAck, TerminationPosition
from cluster.protocol.enums import ConsensusModuleState

if TYPE_CHECKING:
    from cluster.member.agent import ConsensusModuleAgent


class Termination:
    """``position`` is where the log is to end, NULL_POSITION while nobody asked for an end."""

    def __init__(self, agent: "ConsensusModuleAgent") -> None:
        self._agent = agent
        self.position = NULL_POSITION
        self._leadership_term_id = NULL_VALUE
        self._deadline_ns = 0
        self._are_services_done = False

    def reset(self) -> None:
        """An election came in between: who has told its services to end ends, all others go on."""
        if self._agent.replica.module.state is ConsensusModuleState.TERMINATING:
            self._close()
        else:
            self.position = NULL_POSITION

    # ---- the leader

    def begin(self) -> bool:
        """End the whole cluster at the log's present end (ABORT); False when this member does not lead."""
        agent = self._agent
        if agent.leading is None or agent.publication is None or self.position != NULL_POSITION:
            return False
        agent.publication.flush()
        self.begin_at(agent.publication.position)
        self.terminate_services()
        return True

    def begin_at(self, log_position: int) -> None:
        """Have all members end at ``log_position``; of a SHUTDOWN it is behind a snapshot, taken first."""
        agent = self._agent
        self.position = log_position
        self._leadership_term_id = agent.replica.leadership_term_id
        self._deadline_ns = agent.now_ns + agent.context.termination_timeout_ns
        frame = consensus_frame(TerminationPosition(self._leadership_term_id, self.position))
        for member_id in agent.other_ids:
            agent.members[member_id].has_terminated = False
            agent.links.send(member_id, frame)

    def on_snapshot_done(self, log_position: int) -> None:
        """The leader has taken the snapshot that comes before its end; followers see for themselves."""
        agent = self._agent
        if self.position == log_position and agent.leading is not None:
            self._deadline_ns = agent.now_ns + agent.context.termination_timeout_ns
            self.terminate_services()

    def on_termination_ack(self, ack: TerminationAck) -> None:
        agent = self._agent
        member = agent.members.get(ack.member_id)
        if (
            member is not None
            and self.position != NULL_POSITION
            and ack.leadership_term_id == self._leadership_term_id
            and ack.log_position >= self.position
        ):
            member.has_terminated = True

    def check_leader(self) -> int:
        """Close once the services are done and all followers are, or their time is up.

        Services may never be done: without a majority the position is never committed.
        """
        agent = self._agent
        are_all_done = self._are_services_done and all(
            agent.members[member_id].has_terminated or member_id in agent.gone_member_ids
            for member_id in agent.other_ids
        )
        if not are_all_done and agent.now_ns < self._deadline_ns:
            return 0
        self._close()
        return 1

    # ---- a follower

    def on_termination_position(self, message: TerminationPosition) -> None:
        agent = self._agent
        following = agent.following
        if following is not None and message.leadership_term_id == following.follower.leadership_term_id:
            following.follower.time_of_last_leader_message_ns = agent.now_ns
            self.position = message.log_position
            self._leadership_term_id = message.leadership_term_id

    @property
    def is_near(self) -> bool:
        """A follower was told where to end, and comes there without its leader: it has the log up to it.

        One that has not needs a leader as before, or it would wait for ever (the reference does).
        """
        agent = self._agent
        return (
            self.position != NULL_POSITION
            and agent.following is not None
            and agent.log.recording is not None
            and min(agent.following.follower.notified_commit_position, agent.log.recording.append_position)
            >= self.position
        )

    def check_follower(self) -> bool:
        """Whether the log is processed up to its end; an end that a longer log passes was none."""
        agent = self._agent
        if self.position == NULL_POSITION or agent.log.adapter.position < self.position:
            return False
        if agent.log.adapter.position > self.position:
            told = f"the log was to end at {self.position}, and goes on to {agent.log.adapter.position}"
            agent.on_error(RemoteProtocolError(told))
            self.position = NULL_POSITION
            return False
        return True

    # ---- both

    def terminate_services(self) -> None:
        """The services end when they reach the position."""
        self._are_services_done = False
        self._agent.set_module_state(ConsensusModuleState.TERMINATING)
        self._agent.services.terminate(self.position, lambda _: self._on_services_terminated())

    def _on_services_terminated(self) -> None:
        self._are_services_done = True
        agent = self._agent
        if agent.following is not None:
            if agent.replica.leadership_term_id == self._leadership_term_id:
                ack = TerminationAck(self._leadership_term_id, self.position, agent.context.member_id)
                agent.links.send(agent.following.follower.leader_member_id, consensus_frame(ack))
            self._close()
        elif agent.election is not None:
            self._close()

    def _close(self) -> None:
        agent = self._agent
        recording = agent.log.recording
        if recording is not None:
            recording.stop(agent.now_ms)
            if recording.append_position == self.position:
                agent.log.recording_log.commit_log_position(self._leadership_term_id, self.position)
        agent.set_module_state(ConsensusModuleState.CLOSED)
        agent.on_terminated()
