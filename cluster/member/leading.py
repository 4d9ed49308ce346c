"""A turn of an established leader, and what other members tell it."""

from typing import TYPE_CHECKING

from cluster.consensus.actions import CompleteElection
from cluster.consensus.context import NULL_POSITION, NULL_VALUE
from cluster.consensus.election import Election
from cluster.consensus.established import Leader
from cluster.errors import ClusterError, RemoteProtocolError
from cluster.member.admission import fault_of_report, present_leader
from cluster.member.frames import CommitPositionFrame, consensus_frame
from cluster.member.service_adapter import stamped
from cluster.protocol.consensus import CanvassPosition, CatchupPosition, StopCatchup
from cluster.protocol.enums import AppendPositionFlags
from cluster.protocol.link import (
    EndOfStream,
    LinkError,
    LinkErrorCode,
    LogGeometry,
    LogImage,
    ReplicationRequest,
)
from cluster.protocol.log import TimerEvent
from cluster.transport.message_frames import link_frame

if TYPE_CHECKING:
    from cluster.member.agent import ConsensusModuleAgent


class Leading:
    """Exists while the member leads; what goes into the log goes through here, or through ingress."""

    def __init__(self, agent: "ConsensusModuleAgent", action: CompleteElection, election: Election) -> None:
        self._agent = agent
        self._replica = agent.replica
        publication, recording = agent.publication, agent.log.recording
        assert publication is not None and recording is not None and election.leadership is not None
        self._publication = publication
        self._recording = recording
        self._commit_frame = CommitPositionFrame(agent.context.member_id)
        self._is_commit_untold = False  # of a risen commit position, to the followers
        self._is_full_told = False
        self.is_ingress_read = True  # else nobody can tell which clients are silent
        self.leader = Leader(
            agent.context,
            agent.members,
            election.leadership,
            commit_position=action.log_position,
            candidate_term_id=election.candidate_term_id,
        )

    def do_work(self) -> int:
        """Timers, service messages, ingress; one write, one send a follower, one sync; commit."""
        agent, replica = self._agent, self._replica
        context = agent.context
        work_count = 0
        if self._is_commit_untold:
            self._tell_commit()
        if self._publication.is_full:
            self._tell_full()
        elif self._is_too_far_ahead:
            self.is_ingress_read = False  # clients wait in their sockets for the majority
        elif replica.module.is_active:
            if len(replica.timers):
                work_count += replica.timers.poll(
                    replica.cluster_time, self._on_timer_expiry, context.timer_limit_per_poll
                )
            for tracker in replica.trackers:
                if tracker.has_unappended:
                    work_count += tracker.poll(
                        self._append_service_message, context.service_message_limit_per_poll
                    )
            work_count += agent.clients.poll(agent.ingress_adapter)
            self.is_ingress_read = True
            if agent.election is not None:
                return work_count  # what a client sent ended the leadership
        publication, recording = self._publication, self._recording
        publication.flush()
        if agent.streams.has_laggards:
            work_count += agent.streams.do_work()
        if recording.synced_position != recording.append_position:
            recording.sync()
        if self.leader.update(recording.synced_position, agent.now_ns):
            work_count += self._on_update()
        return work_count

    @property
    def _is_too_far_ahead(self) -> bool:
        ahead = self._publication.position - self.leader.commit_position
        return ahead >= self._agent.context.uncommitted_bytes_max

    def _on_update(self) -> int:
        """Tell where the commit is: everyone here if it rose, and the followers.

        They hear of a rise with the next turn: woken now, they would take the processors from the service
        and the clients that wait for it.
        """
        agent, leader = self._agent, self.leader
        if leader.regression is not None:
            agent.tell(leader.regression)
            leader.regression = None
        commit_position = leader.commit_position
        if commit_position == agent.log.commit_position:
            self._tell_commit()
            return 0
        self._is_commit_untold = True
        adapter = agent.log.adapter
        while adapter.position < commit_position:
            adapter.poll(self._publication, commit_position, is_applied=False)
        agent.log.commit(commit_position)
        self._replica.sweep(commit_position)
        if self._replica.sessions.has_pending_work:
            agent.hasten_slow_tick()
        agent.snapshots.on_committed(commit_position)
        return 1

    def _tell_full(self) -> None:
        if not self._is_full_told:
            self._is_full_told = True
            self._agent.on_error(
                ClusterError(
                    f"the log is at position {self._publication.position} and takes no more input: "
                    f"{self._publication.params.position_max} is the last one of its term length; "
                    "take a snapshot and begin a new log from it"
                )
            )

    def _tell_commit(self) -> None:
        self._is_commit_untold = False
        agent, leader = self._agent, self.leader
        frame = self._commit_frame.of(leader.leadership_term_id, leader.leadership.quorum_position)
        for member_id in agent.other_ids:
            agent.links.send(member_id, frame)

    def close_log(self) -> None:
        """Tell the followers that the log ends here in order: they need not find out that we are gone."""
        agent = self._agent
        self._publication.flush()
        end = link_frame(EndOfStream(NULL_VALUE, self._publication.position, LinkErrorCode.OK))
        for member_id in agent.other_ids:
            agent.links.send(member_id, end)

    # ---- into the log

    def _on_timer_expiry(self, correlation_id: int) -> int:
        event = TimerEvent(self._replica.leadership_term_id, correlation_id, self._replica.cluster_time)
        return self._publication.append(event.encode())

    def _append_service_message(self, service_session_id: int, message: bytes) -> int:
        replica = self._replica
        entry = stamped(message, service_session_id, replica.leadership_term_id, replica.cluster_time)
        return self._publication.append(entry)

    # ---- other members

    def on_append_position(self, member_id: int, term_id: int, log_position: int, flags: int) -> None:
        agent = self._agent
        if (fault := fault_of_report(agent, term_id, log_position)) is not None:
            told = f"member {member_id} reports position {log_position} of term {term_id}: {fault}"
            agent.on_error(RemoteProtocolError(told))
            return
        self.leader.on_append_position(member_id, term_id, log_position, agent.now_ns)
        if agent.streams.has_suspended and term_id == self.leader.leadership_term_id:
            agent.streams.resume(member_id)
        if flags == AppendPositionFlags.CATCHUP:
            check_catchup(agent, member_id, term_id, log_position)

    def on_canvass_position(self, message: CanvassPosition) -> None:
        agent = self._agent
        reply = self.leader.on_canvass_position(
            message, self._publication.position, self._replica.cluster_time, agent.now_ns
        )
        if reply is not None:
            agent.streams.suspend(message.follower_member_id)
            agent.links.send(message.follower_member_id, geometry_frame(agent) + consensus_frame(reply))


# ---- what a leader does for its followers, in an election too


def geometry_frame(agent: "ConsensusModuleAgent") -> bytes:
    """Shape of our log, for members that have none."""
    recording = agent.log_recording()
    return link_frame(LogGeometry(recording.initial_term_id, recording.term_length, recording.mtu))


def on_replication_request(
    agent: "ConsensusModuleAgent", member_id: int, request: ReplicationRequest, log_session_id: int
) -> None:
    """A follower wants recorded bytes, or the live log from a position on."""
    recording = agent.log_recording()
    if request.from_position < recording.start_position:
        _refuse(agent, member_id, request.correlation_id, request.from_position)
        return
    if request.from_position > recording.append_position:
        agent.tell(f"member {member_id} asks for the log from {request.from_position}, which is not here")
        return
    if not _is_boundary(agent, member_id, request.from_position):
        return
    agent.streams.start(member_id, request.correlation_id, request.from_position, request.to_position)
    _send_image(agent, member_id, request.correlation_id, request.from_position, log_session_id)


def on_catchup_position(agent: "ConsensusModuleAgent", message: CatchupPosition, log_session_id: int) -> None:
    """A follower behind in this term; one catch-up at a time (C-149)."""
    member_id = message.follower_member_id
    running = agent.streams.get(member_id)
    recording = agent.log_recording()
    is_running = running is not None and running.is_catchup and not running.has_canvassed
    if is_running or message.log_position > recording.append_position:
        return
    if message.log_position < recording.start_position:
        _refuse(agent, member_id, message.log_position, message.log_position)
        return
    if not _is_boundary(agent, member_id, message.log_position):
        return
    agent.streams.start(member_id, message.log_position, message.log_position, is_catchup=True)
    _send_image(agent, member_id, message.log_position, message.log_position, log_session_id)


def _is_boundary(agent: "ConsensusModuleAgent", member_id: int, position: int) -> bool:
    """Whether a frame begins where a follower says that its log ends; its mistake is no damage of ours."""
    if agent.log_recording().is_boundary(position):
        return True
    agent.on_error(
        RemoteProtocolError(f"member {member_id} asks for the log from {position}, within a frame")
    )
    return False


def _refuse(agent: "ConsensusModuleAgent", member_id: int, correlation_id: int, position: int) -> None:
    """The log does not reach down to where the member's ends: it needs a snapshot."""
    text = f"the log begins at {agent.log_recording().start_position}, {position} is not here any more"
    agent.tell(f"member {member_id} asks for {position}: {text}")
    agent.links.send(member_id, link_frame(LinkError(correlation_id, LinkErrorCode.NOT_AVAILABLE, text)))


def _send_image(
    agent: "ConsensusModuleAgent", member_id: int, correlation_id: int, position: int, log_session_id: int
) -> None:
    term_id, _ = present_leader(agent)
    agent.links.send(member_id, link_frame(LogImage(correlation_id, term_id, position, log_session_id)))


def check_catchup(agent: "ConsensusModuleAgent", member_id: int, term_id: int, log_position: int) -> None:
    """Tell a follower that it is level: it has all that there was when it was merged (C-152)."""
    stream = agent.streams.get(member_id)
    if (
        stream is not None
        and stream.is_catchup
        and stream.merge_position != NULL_POSITION
        and log_position >= stream.merge_position
    ):
        agent.links.send(member_id, consensus_frame(StopCatchup(term_id, member_id)))
