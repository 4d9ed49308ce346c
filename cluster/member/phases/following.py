"""An established follower: sync and report first, everything else can wait for it.

turn        sync, AppendPosition to the leader; process what is committed; ingress, which is redirected
slow tick   whether the leader is heard, and its log comes
"""

from typing import Protocol

from cluster.consensus.actions import CompleteElection
from cluster.consensus.backup_sessions import BackupSessions
from cluster.consensus.context import NULL_POSITION, ConsensusModuleContext
from cluster.consensus.follower import Follower
from cluster.consensus.replica import ReplicatedState
from cluster.errors import ClusterError, RemoteProtocolError
from cluster.member.admission import Admission
from cluster.member.clients.supervision import Supervision
from cluster.member.frames import PositionFrame
from cluster.member.log.member_log import MemberLog
from cluster.member.log.processing import LogProcessing
from cluster.member.log.requests import LogRequests
from cluster.member.phase import Elect, Next, Phase, PhaseName
from cluster.member.ports import Links
from cluster.member.reporter import Reporter
from cluster.member.services.snapshot_taker import SnapshotTaker
from cluster.member.services.termination import Termination
from cluster.member.turn import Turn
from cluster.protocol.consensus import (
    AppendPosition,
    CanvassPosition,
    NewLeadershipTerm,
    RequestVote,
    TerminationPosition,
)
from cluster.protocol.enums import AppendPositionFlags
from cluster.protocol.link import EndOfStream, LinkError, LogImage, TakenAnswers, TransferLeadership
from cluster.protocol.sbe import Message

RETRY_NS = 1_000_000  # of a report that the link did not take


class FollowerPorts(Protocol):
    """What a follower reaches of its member's ``Parts``."""

    context: ConsensusModuleContext
    links: Links
    log: MemberLog
    log_requests: LogRequests
    processing: LogProcessing
    replica: ReplicatedState
    backups: BackupSessions
    admission: Admission
    snapshots: SnapshotTaker
    supervision: Supervision
    termination: Termination
    turn: Turn
    reporter: Reporter

    def poll_clients(self) -> int: ...


class Following(Phase):
    """Exists while the member follows an established leader."""

    name = PhaseName.FOLLOWING
    takes_commits = True

    def __init__(self, result: CompleteElection, candidate_term_id: int, ports: FollowerPorts) -> None:
        recording = ports.log.recording
        assert recording is not None
        self._ports = ports
        self._recording = recording
        self._append_frame = PositionFrame(
            AppendPosition(0, 0, ports.context.member_id, AppendPositionFlags.NONE)
        )
        self.follower = Follower(
            ports.context,
            leadership_term_id=result.leadership_term_id,
            leader_member_id=result.leader_member_id,
            notified_commit_position=result.notified_commit_position,
            candidate_term_id=candidate_term_id,
            now_ns=ports.turn.now_ns,
        )
        self._seen_position = NULL_POSITION  # of the recording
        self._seen_ns = ports.turn.now_ns

    # ---- a turn

    @property
    def awaits_events(self) -> bool:
        recording, processed = self._recording, self._ports.processing.position
        return (
            recording.synced_position == recording.append_position
            and processed >= min(self.follower.notified_commit_position, recording.append_position)
            and self._ports.termination.position == NULL_POSITION
        )

    @property
    def next_due_ns(self) -> int:
        # Not at once where the link did not take the last report.
        return max(self.follower.next_append_position_ns, self._ports.turn.now_ns + RETRY_NS)

    def do_work(self) -> Next | None:
        ports, follower, recording = self._ports, self.follower, self._recording
        turn = ports.turn
        if recording.append_position != recording.synced_position:
            recording.sync()
            turn.work_count += 1
        synced_position = recording.synced_position
        if follower.is_append_position_due(synced_position, turn.now_ns):
            assert synced_position <= recording.append_position, "reports what is on the disk (I-3)"
            frame = self._append_frame.of(follower.leadership_term_id, synced_position)
            if ports.links.send(follower.leader_member_id, frame) > 0:
                follower.on_append_position_sent(synced_position, turn.now_ns)
        if ports.replica.module.reads_log:
            if ports.processing.position < follower.notified_commit_position:
                turn.work_count += ports.processing.process(follower.notified_commit_position)
            if not ports.termination.is_reached():
                turn.work_count += ports.poll_clients()
            elif not ports.snapshots.is_busy_at(ports.termination.position):
                ports.termination.terminate_services()
        return None

    # ---- the slow tick

    def slow_tick(self) -> Next | None:
        ports = self._ports
        turn, replica = ports.turn, ports.replica
        ports.log_requests.request()
        if replica.module.is_active:
            turn.work_count += ports.backups.process_pending(turn.now_ns, turn.now_ms)
        if not replica.module.reads_log or self._is_end_near:
            return None
        reason = None
        if self.follower.is_leader_silent(turn.now_ns):
            reason = "leader heartbeat timeout"
        elif self._is_log_missing():
            reason = "the leader is heard, but its log does not come"
        if reason is None:
            return None
        turn.work_count += 1
        return Elect(reason)

    def look_around(self, heard: int, since_ns: int) -> bool:
        """Its leader may have sent much: not for longer than the leader itself would wait."""
        return not heard or self._ports.turn.now_ns - since_ns >= self._ports.context.lease_ns

    @property
    def _is_end_near(self) -> bool:
        return self._ports.termination.is_near(self.follower.notified_commit_position)

    def _is_log_missing(self) -> bool:
        """Whether no log was announced, or none of what is committed came, for the heartbeat timeout."""
        ports, now_ns = self._ports, self._ports.turn.now_ns
        subscription, position = ports.log.subscription, self._recording.append_position
        is_level = (
            subscription is not None
            and subscription.has_image
            and self.follower.notified_commit_position <= position
        )
        if is_level or position != self._seen_position:
            self._seen_position, self._seen_ns = position, now_ns
        return now_ns - self._seen_ns >= ports.context.leader_heartbeat_timeout_ns

    # ---- other members

    def on_commit_position(self, member_id: int, term_id: int, log_position: int) -> Next | None:
        ports = self._ports
        if (fault := ports.admission.fault_of_commit(member_id, term_id, log_position)) is not None:
            detail = f"member {member_id} tells of a commit to {log_position} in term {term_id}: {fault}"
            ports.reporter.error(RemoteProtocolError(detail))
            return None
        reason = self.follower.on_commit_position(term_id, log_position, member_id, ports.turn.now_ns)
        return None if reason is None else Elect(reason)

    def on_message(self, member_id: int, message: Message) -> Next | None:
        follower, now_ns = self.follower, self._ports.turn.now_ns
        reason = None
        match message:
            case CanvassPosition():
                reason = follower.on_canvass_position(message)
            case RequestVote():
                reason = follower.on_request_vote(message, now_ns)
            case NewLeadershipTerm():
                reason = follower.on_new_leadership_term(message, now_ns)
            case LogImage():
                reason = self._on_log_image(member_id, message)
            case EndOfStream() if member_id == follower.leader_member_id and not self._is_end_near:
                # It is not waited for in the election that follows (C-163).
                return Elect(f"leader {member_id} closed its log", graceful_closed_leader_id=member_id)
            case LinkError() if self._ports.log_requests.is_refused(member_id, message):
                reason = f"leader {member_id} has no log to go on with"  # an election fetches its snapshot
            case TakenAnswers() if member_id == follower.leader_member_id:
                self._ports.supervision.on_reported(message)
            case TerminationPosition() if message.leadership_term_id == follower.leadership_term_id:
                follower.time_of_last_leader_message_ns = now_ns
                self._ports.termination.on_termination_position(message)
            case TransferLeadership() if message.leadership_term_id == follower.leadership_term_id:
                return self._on_transfer(member_id, message)
        return None if reason is None else Elect(reason)

    def _on_transfer(self, member_id: int, message: TransferLeadership) -> Next | None:
        """Stand at once, if the leader asks this member; make room for the vote, if it asks another."""
        if member_id == message.candidate_member_id:
            return Elect(f"member {member_id} is to lead next", successor_id=member_id)
        is_asked = message.candidate_member_id == self._ports.context.member_id
        is_level = message.log_position == self._recording.synced_position == self._recording.append_position
        if not is_asked or not is_level or member_id != self.follower.leader_member_id:
            return None
        return Elect(f"leader {member_id} hands over", successor_id=message.candidate_member_id)

    def _on_log_image(self, member_id: int, image: LogImage) -> str | None:
        client = self._ports.log_requests
        subscription = client.subscription_of(member_id, image.correlation_id)
        if subscription is None or subscription.leadership_term_id != image.leadership_term_id:
            return None
        try:
            client.join(subscription, image)
        except ClusterError as error:
            self._ports.reporter.error(error)
            return str(error)
        return None

    def on_log_fault(self, error: ClusterError) -> Next | None:
        return Elect(str(error))

    def on_member_gone(self, member_id: int) -> Next | None:
        if member_id != self.follower.leader_member_id or self._is_end_near:
            return None
        return Elect(f"leader {member_id} is gone")
