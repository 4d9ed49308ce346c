"""Messages of other members, to whom they concern: the election, the leader, the follower."""

from typing import TYPE_CHECKING

import numpy as np

from cluster.consensus.context import NULL_VALUE
from cluster.errors import AgentTermination, ClusterError, DataLoss, RemoteProtocolError, StorageError
from cluster.member import leading
from cluster.member.admission import fault_of
from cluster.member.mending import range_answer
from cluster.protocol.consensus import (
    AppendPosition,
    CanvassPosition,
    CatchupPosition,
    CommitPosition,
    NewLeadershipTerm,
    RequestVote,
    StopCatchup,
    TerminationAck,
    TerminationPosition,
    Vote,
)
from cluster.protocol.enums import AppendPositionFlags, Role
from cluster.protocol.link import (
    CatchupProgress,
    EndOfStream,
    LinkError,
    LogGeometry,
    LogImage,
    LogRangeRequest,
    PromiseStatement,
    RecordingBlock,
    RecordingFetch,
    ReplicationRequest,
    SnapshotDigest,
    SnapshotOffer,
    SnapshotRequest,
)
from cluster.protocol.sbe import Message
from cluster.protocol.session import ChallengeResponse
from cluster.transport.message_frames import link_frame

if TYPE_CHECKING:
    from cluster.member.agent import ConsensusModuleAgent


class MemberMessages:
    """What the consensus adapter calls for everything that does not come in every turn."""

    def __init__(self, agent: "ConsensusModuleAgent") -> None:
        self._agent = agent

    def on_message(self, member_id: int, message: Message) -> None:
        """One decoded message that came over the link of ``member_id``."""
        if (fault := fault_of(self._agent, member_id, message)) is not None:
            self._agent.on_error(RemoteProtocolError(f"member {member_id}: {fault}: {message}"))
            return
        match message:
            case PromiseStatement():
                self._agent.promise_keeper.on_statement(member_id, message)
            case CatchupProgress():
                self._on_catchup_progress(member_id, message)
            case LogGeometry():
                self._agent.on_log_geometry(member_id, message)
            case LogImage():
                self._on_log_image(member_id, message)
            case EndOfStream():
                self._on_log_end(member_id)
            case ReplicationRequest():
                self._on_replication_request(member_id, message)
            case CatchupPosition():
                self._on_catchup_position(message)
            case LogRangeRequest():
                self._agent.links.send(member_id, range_answer(self._agent.files, message))
            case RecordingBlock() | LinkError() if (mending := self._agent.repair.mending) is not None:
                mending.on_answer(member_id, message, self._agent.now_ns)
            case RecordingFetch():  # what is wrong with our own recordings ends this life
                self._agent.replications.server.on_fetch(member_id, message)
            case SnapshotRequest() | SnapshotOffer() | RecordingBlock() | LinkError():
                self._on_replication(member_id, message)
            case SnapshotDigest():
                if self._agent.leading is not None:
                    self._agent.digests.on_reported(member_id, message)
            case TerminationPosition():
                self._agent.termination.on_termination_position(message)
            case TerminationAck():
                self._agent.termination.on_termination_ack(message)
            case _ if self._agent.election is not None:
                self._in_election(message)
            case _ if self._agent.leading is not None:
                self._as_leader(message)
            case _ if self._agent.following is not None:
                self._as_follower(message)

    def _on_replication(self, member_id: int, message: Message) -> None:
        agent = self._agent
        try:
            agent.replications.on_message(member_id, message)
        except (StorageError, DataLoss, AgentTermination):
            raise
        except ClusterError as error:  # of what was fetched: it is given up
            agent.on_election_error(error)

    def _in_election(self, message: Message) -> None:
        agent = self._agent
        if agent.replications.current is not None:
            return  # a member that fetches its state has no say
        election, now_ns = agent.election, agent.now_ns
        assert election is not None
        match message:
            case AppendPosition():
                agent.carry_out(election.on_append_position_of(message, now_ns))
                if message.leadership_term_id == election.leadership_term_id:
                    agent.streams.resume(message.follower_member_id)
                if message.flags == AppendPositionFlags.CATCHUP:
                    leading.check_catchup(
                        agent, message.follower_member_id, message.leadership_term_id, message.log_position
                    )
            case CommitPosition():
                agent.carry_out(election.on_commit_position(message, now_ns))
            case CanvassPosition():
                agent.streams.suspend(message.follower_member_id)
                agent.carry_out(election.on_canvass_position(message, now_ns))
            case RequestVote():
                agent.carry_out(election.on_request_vote(message, now_ns))
            case Vote():
                agent.carry_out(election.on_vote(message, now_ns))
            case NewLeadershipTerm():
                agent.carry_out(election.on_new_leadership_term(message, now_ns))
            case StopCatchup():
                agent.carry_out(election.on_stop_catchup(message, now_ns))

    def _as_leader(self, message: Message) -> None:
        agent = self._agent
        assert agent.leading is not None
        leader = agent.leading.leader
        reason = None
        match message:
            case CanvassPosition():
                agent.leading.on_canvass_position(message)
            case RequestVote():
                reason = leader.on_request_vote(message, agent.now_ns)
            case Vote():
                reason = leader.on_vote(message)
                if reason is not None:
                    position = agent.log.commit_position
                    agent.node_state.propose(message.candidate_term_id, position, agent.now_ms)
            case NewLeadershipTerm():
                reason = leader.on_new_leadership_term(message)
            case CommitPosition():
                reason = leader.on_commit_position(message)
            case ChallengeResponse():
                agent.requests.on_challenge_response(message)
        if reason is not None:
            agent.enter_election(reason)

    def _as_follower(self, message: Message) -> None:
        agent = self._agent
        assert agent.following is not None
        follower = agent.following.follower
        reason = None
        match message:
            case CanvassPosition():
                reason = follower.on_canvass_position(message)
            case RequestVote():
                reason = follower.on_request_vote(message, agent.now_ns)
            case NewLeadershipTerm():
                reason = follower.on_new_leadership_term(message, agent.now_ns)
        if reason is not None:
            agent.enter_election(reason)

    # ---- the log between a leader and its followers

    @property
    def _led_session_id(self) -> tuple[int, int]:
        """(term, session) of the log that this member leads, in an election too; else nulls."""
        agent = self._agent
        if agent.leading is not None:
            return agent.leading.leader.leadership_term_id, agent.leading.leader.leadership.log_session_id
        if agent.election is not None and agent.role is Role.LEADER:
            return agent.election.leadership_term_id, agent.election.log_session_id
        return NULL_VALUE, NULL_VALUE

    def _on_log_end(self, member_id: int) -> None:
        """The leader closed its log in order: it is not waited for in the election that follows (C-163)."""
        agent = self._agent
        following = agent.following
        if (
            following is not None
            and following.follower.leader_member_id == member_id
            and not agent.termination.is_near
        ):
            agent.enter_election(f"leader {member_id} closed its log", graceful_closed_leader_id=member_id)

    def _on_replication_request(self, member_id: int, request: ReplicationRequest) -> None:
        term_id, session_id = self._led_session_id
        if session_id != NULL_VALUE and request.leadership_term_id == term_id:
            leading.on_replication_request(self._agent, member_id, request, session_id)

    def _on_catchup_position(self, message: CatchupPosition) -> None:
        term_id, session_id = self._led_session_id
        if session_id != NULL_VALUE and message.leadership_term_id == term_id:
            leading.on_catchup_position(self._agent, message, session_id)

    def _on_catchup_progress(self, member_id: int, message: CatchupProgress) -> None:
        term_id, session_id = self._led_session_id
        if session_id != NULL_VALUE and message.leadership_term_id == term_id:
            self._agent.streams.resume(member_id)
            leading.check_catchup(self._agent, member_id, term_id, message.log_position)

    def _on_log_image(self, member_id: int, image: LogImage) -> None:
        """The leader begins to send what was asked for."""
        agent = self._agent
        subscription = agent.subscription
        if (
            subscription is None
            or subscription.leader_member_id != member_id
            or subscription.correlation_id != image.correlation_id
            or subscription.leadership_term_id != image.leadership_term_id
        ):
            return
        recording = agent.log_recording()
        if image.join_position != recording.append_position:
            error = ClusterError(
                f"the log of member {member_id} joins at {image.join_position}, "
                f"expected {recording.append_position}"
            )
            agent.on_error(error)
            agent.subscription = None
            if agent.election is None:
                agent.enter_election(str(error))
                return
        else:
            subscription.has_image = True
        if agent.election is not None and subscription.is_live:
            agent.carry_out(
                agent.election.on_log_image(image.leadership_term_id, image.join_position, agent.now_ns)
            )

    def on_log_frames(self, member_id: int, buffer: np.ndarray, start: int, end: int) -> int:
        """A run of log bytes of another member; returns its end, ``start`` when nobody asked for it."""
        agent = self._agent
        subscription = agent.subscription
        if subscription is None:
            return start
        try:
            return subscription.on_frames(member_id, buffer, start, end)
        except RemoteProtocolError as error:
            agent.subscription = None
            if agent.election is not None:
                agent.on_election_error(error)
            else:
                agent.on_error(error)
                agent.enter_election(str(error))
            return start

    def request_log(self) -> None:
        """Ask the leader for what the subscription wants; asked again while the link does not take it."""
        agent = self._agent
        subscription = agent.subscription
        assert subscription is not None
        if subscription.is_requested or not agent.links.is_up(subscription.leader_member_id):
            return
        request = ReplicationRequest(
            correlation_id=subscription.correlation_id,
            leadership_term_id=subscription.leadership_term_id,
            from_position=agent.log_recording().append_position,
            to_position=subscription.stop_position,
        )
        subscription.is_requested = agent.links.send(subscription.leader_member_id, link_frame(request)) > 0
