"""An established leader: what goes into the log goes through here, or through ingress.

turn        timers, messages of the services, ingress ── into the publication
            one write, one send a follower, one sync
            what a majority has synced is committed
slow tick   toggles, sessions to open and to time out, the majority
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from cluster.archive.node_state_file import NodeStateFile
from cluster.consensus.actions import CompleteElection
from cluster.consensus.backup_sessions import BackupSessions
from cluster.consensus.cluster_member import MemberTable
from cluster.consensus.context import NULL_VALUE, ConsensusModuleContext
from cluster.consensus.leader import Leader
from cluster.consensus.leadership import Leadership
from cluster.consensus.replica import ReplicatedState
from cluster.consensus.session_events import KnownLeader
from cluster.counters import Counter
from cluster.errors import ClusterError, RemoteProtocolError
from cluster.member.admission import Admission
from cluster.member.clients.client_requests import ClientRequests
from cluster.member.clients.supervision import Supervision
from cluster.member.control import Toggles
from cluster.member.frames import PositionFrame, consensus_frame
from cluster.member.log.member_log import MemberLog
from cluster.member.log.processing import LogProcessing
from cluster.member.log.room import LogRoom
from cluster.member.log.sender import LedLog, LogSender
from cluster.member.phase import Close, Elect, Next, Phase, PhaseName
from cluster.member.phases.leader_control import LeaderControl
from cluster.member.phases.leadership_transfer import LeadershipTransfer
from cluster.member.phases.unserved_clients import UnservedClients
from cluster.member.ports import Peers
from cluster.member.reporter import Reporter
from cluster.member.services.service_adapter import ServiceAdapter, stamped
from cluster.member.services.snapshot_digests import SnapshotDigests
from cluster.member.services.snapshot_taker import SnapshotTaker
from cluster.member.services.termination import Termination
from cluster.member.turn import Turn
from cluster.protocol.consensus import (
    CanvassPosition,
    CatchupPosition,
    CommitPosition,
    NewLeadershipTerm,
    RequestVote,
    Vote,
)
from cluster.protocol.enums import AppendPositionFlags, ConsensusModuleState
from cluster.protocol.link import (
    CatchupProgress,
    EndOfStream,
    LinkErrorCode,
    ReplicationRequest,
    SnapshotDigest,
    TransferLeadership,
)
from cluster.protocol.log import TimerEvent
from cluster.protocol.sbe import Message
from cluster.protocol.session import ChallengeResponse
from cluster.transport.clock import NEVER_NS
from cluster.transport.message_frames import link_frame
from cluster.transport.server import Heard

# Timers, and messages of each service: what a turn appends of them. Clients have theirs in batches, too, and
# each of their messages may cause one of a service and a timer.
OWN_BYTES_PER_TURN = 256 * 1024
WAITING_TURNS_MAX = 16  # in a row, in which clients wait for more of these


class LeaderPorts(Protocol):
    """What a leader reaches of its member's ``Parts``."""

    context: ConsensusModuleContext
    members: MemberTable
    peers: Peers
    log: MemberLog
    log_sender: LogSender
    processing: LogProcessing
    replica: ReplicatedState
    admission: Admission
    requests: ClientRequests
    backups: BackupSessions
    supervision: Supervision
    control: LeaderControl
    transfer: LeadershipTransfer
    toggles: Toggles
    services: ServiceAdapter
    snapshots: SnapshotTaker
    digests: SnapshotDigests
    termination: Termination
    node_state: NodeStateFile
    timed_out_clients: Counter
    turn: Turn
    reporter: Reporter
    room: LogRoom

    def poll_clients(self) -> int: ...

    def greet_clients(self, heard: Heard) -> int: ...


class Leading(Phase):
    """Exists while the member leads."""

    name = PhaseName.LEADING
    takes_reports = True

    def __init__(
        self, result: CompleteElection, leadership: Leadership, candidate_term_id: int, ports: LeaderPorts
    ) -> None:
        publication, recording = ports.log.publication, ports.log.recording
        assert publication is not None and recording is not None
        self._ports = ports
        self._publication = publication
        self._recording = recording
        self._replica = ports.replica
        self._commit_frame = PositionFrame(CommitPosition(0, 0, ports.context.member_id))
        self._has_own = False  # timers or messages of services went into the log in this turn: more may wait
        self._waiting_turns = 0  # in a row, of clients
        self._is_full_reported = False
        self._is_without_room = False  # for more log, which clients have heard
        self._is_ingress_read = True  # else it is not known which clients are silent
        self._read_ns = ports.turn.now_ns  # when ingress was read last
        self._sign_due_ns = 0  # of life, for clients of which nothing is taken
        self._led = LedLog(leadership.leadership_term_id, leadership.log_session_id)
        self._unserved = UnservedClients(
            ports.context, ports.services, ports.room, ports.transfer, ports.toggles, ports.reporter
        )
        self.leader = Leader(
            ports.context,
            ports.members,
            leadership,
            commit_position=result.log_position,
            candidate_term_id=candidate_term_id,
        )

    # ---- a turn

    @property
    def awaits_events(self) -> bool:
        return self.may_be_lent and not self.leader.is_commit_unsent

    @property
    def may_be_lent(self) -> bool:
        ports = self._ports
        return not (
            self._has_own
            or self._publication.position != self._recording.synced_position
            or self.leader.has_news
            or ports.transfer.target_id != NULL_VALUE
            or ports.log_sender.streams.has_laggards
            or ports.room.is_full
            or self._has_unappended
        )

    def do_work(self) -> Next | None:
        ports, replica = self._ports, self._replica
        self._has_own = self._is_ingress_read = False
        publication, recording, turn = self._publication, self._recording, ports.turn
        if self.leader.is_commit_unsent:
            self._send_commit()
        if ports.transfer.target_id != NULL_VALUE:
            ports.transfer.do_work(self.leader.commit_position, turn.now_ns)
        elif publication.is_full:
            self._report_full()
        elif replica.module.is_active and not (ports.room.is_full or self._is_too_far_ahead):
            # Else clients wait in their sockets for room, or for the majority.
            own_count = self._append_own()
            self._has_own = own_count > 0
            turn.work_count += own_count
            self._is_ingress_read = not self._is_own_left or self._waiting_turns == WAITING_TURNS_MAX
            self._waiting_turns = 0 if self._is_ingress_read else self._waiting_turns + 1
            if self._is_ingress_read:
                turn.work_count += self._read_ingress()
        publication.flush()
        turn.work_count += ports.log_sender.streams.do_work()
        if recording.synced_position != recording.append_position:
            recording.sync()
        if self.leader.update(recording.synced_position, turn.now_ns):
            self._on_update()
        return None

    def _read_ingress(self) -> int:
        """Take what clients sent; after a time in which nobody was heard, time-outs begin again (C-296)."""
        now_ns = self._ports.turn.now_ns
        deaf_ns, self._read_ns = now_ns - self._read_ns, now_ns
        if deaf_ns >= self._ports.context.session_timeout_ns // 4:
            self._replica.sessions.table.touch_all(now_ns)
        return self._ports.poll_clients()

    def _append_own(self) -> int:
        """Timers that are due, then messages of services; returns how many."""
        context, replica = self._ports.context, self._replica
        count = 0
        if len(replica.timers):
            expire = partial(replica.timers.poll, replica.cluster_time, self._on_timer_expiry)
            count += self._append_all(expire, context.timer_limit_per_poll)
        for tracker in replica.trackers:
            if tracker.has_unappended:
                append = partial(tracker.poll, self._append_service_message)
                count += self._append_all(append, context.service_message_limit_per_poll)
        return count

    def _append_all(self, poll: Callable[[int], int], limit: int) -> int:
        """Poll until nothing is left, or a turn has appended enough."""
        begin, count, appended = self._publication.position, 0, limit
        while appended == limit and self._publication.position - begin < OWN_BYTES_PER_TURN:
            appended = poll(limit)
            count += appended
        return count

    @property
    def _is_own_left(self) -> bool:
        """Whether this turn has not appended all timers and messages of services that wait."""
        deadline = self._replica.timers.next_deadline
        return self._has_unappended or (deadline is not None and deadline <= self._replica.cluster_time)

    @property
    def _has_unappended(self) -> bool:
        return any(tracker.has_unappended for tracker in self._replica.trackers)

    @property
    def _is_too_far_ahead(self) -> bool:
        ahead = self._publication.position - self.leader.commit_position
        return ahead >= self._ports.context.uncommitted_bytes_max

    def _on_update(self) -> None:
        """Report where the commit is: to everyone here if it rose, and to the followers.

        They hear of a rise with the next turn: woken now, they would take the processors from the service
        and the clients that wait for it.
        """
        ports, leader = self._ports, self.leader
        if leader.regression is not None:
            ports.reporter.event(leader.regression)
            leader.regression = None
        commit_position = leader.commit_position
        if commit_position == ports.log.commit_position:
            self._send_commit()
            return
        assert commit_position <= self._recording.synced_position, "commits what is on the own disk (I-3)"
        ports.processing.count(self._publication, commit_position)
        ports.log.commit(commit_position)
        self._on_committed(commit_position)

    def _on_committed(self, commit_position: int) -> None:
        ports = self._ports
        self._replica.sweep(commit_position)
        if self._replica.sessions.has_pending_work:
            ports.turn.hasten_slow_tick()
        ports.snapshots.on_committed(commit_position)
        ports.turn.work_count += 1

    def take_back(self, commit_position: int, last_ns: int) -> None:
        """What came of turns that compiled code took, the last one at ``last_ns`` (``busy/lend.py``).

        ``commit_position`` was the log's before them.
        """
        self._read_ns = last_ns
        if commit_position != self._ports.log.commit_position:
            self._on_committed(self._ports.log.commit_position)

    @property
    def next_due_ns(self) -> int:
        replica, turn = self._replica, self._ports.turn
        deadline = replica.timers.next_deadline if len(replica.timers) else None
        if deadline is None:
            return NEVER_NS
        unit_ns = self._ports.context.time_unit.nanoseconds
        return turn.now_ns + max(deadline - replica.cluster_time, 0) * unit_ns

    def _report_full(self) -> None:
        if not self._is_full_reported:
            self._is_full_reported = True
            self._ports.reporter.error(
                ClusterError(
                    f"the log is at position {self._publication.position} and takes no more input: "
                    f"{self._publication.params.position_max} is the last one of its term length; "
                    "take a snapshot and begin a new log from it"
                )
            )

    def _send_commit(self) -> None:
        leader, peers = self.leader, self._ports.peers
        leader.is_commit_unsent = False
        frame = self._commit_frame.of(leader.leadership_term_id, leader.leadership.quorum_position)
        for member_id in peers.ids:
            peers.links.send(member_id, frame)

    def close(self) -> None:
        """Let the followers know that the log ends here in order: they need not find out that we are gone."""
        peers = self._ports.peers
        self._publication.flush()
        end = link_frame(EndOfStream(NULL_VALUE, self._publication.position, LinkErrorCode.OK))
        for member_id in peers.ids:
            peers.links.send(member_id, end)

    # ---- into the log

    def _on_timer_expiry(self, correlation_id: int) -> int:
        event = TimerEvent(self._replica.leadership_term_id, correlation_id, self._replica.cluster_time)
        return self._publication.append(event.encode())

    def _append_service_message(self, service_session_id: int, message: bytes) -> int:
        replica = self._replica
        entry = stamped(message, service_session_id, replica.leadership_term_id, replica.cluster_time)
        return self._publication.append(entry)

    # ---- the slow tick

    def slow_tick(self) -> Next | None:
        ports, module = self._ports, self._replica.module
        now_ns = ports.turn.now_ns
        if module.is_active:
            self._unserved.do_work(self.leader.commit_position, now_ns)
        ports.turn.work_count += ports.control.do_work(now_ns)
        is_without_room = ports.room.is_full
        if is_without_room and not self._is_without_room:
            ports.requests.report_full()
        self._is_without_room = is_without_room
        if module.state is ConsensusModuleState.SUSPENDED or is_without_room:
            # Who wants a session waits for the end of it, or hears that there is no room.
            ports.turn.work_count += ports.greet_clients(
                Heard.STRANGERS if is_without_room else Heard.GREETINGS
            )
        if not self._is_ingress_read and self.leader.has_active_quorum(now_ns):
            self._give_sign_of_life(now_ns)
        ports.supervision.report_to_followers(now_ns)
        if module.is_active and ports.transfer.target_id == NULL_VALUE:
            self._check_sessions()
        elif module.state is ConsensusModuleState.TERMINATING and ports.termination.is_leader_done(now_ns):
            return Close()
        # While suspended, too (not so in Aeron): else a leader that hears nobody stays one until resumed.
        return self.check_quorum()

    def _give_sign_of_life(self, now_ns: int) -> None:
        """To clients: who hears nothing of its leader for long gives it up, and misses answers meanwhile."""
        if now_ns >= self._sign_due_ns:
            self._sign_due_ns = now_ns + self._ports.context.leader_heartbeat_timeout_ns // 4
            self._replica.sessions.table.owe_acks()

    def _check_sessions(self) -> None:
        ports, replica = self._ports, self._replica
        sessions, turn = replica.sessions, ports.turn
        leader = KnownLeader(replica.leadership_term_id, ports.context.member_id)
        if sessions.pending_count:
            turn.work_count += sessions.process_pending(
                leader, replica.cluster_time, turn.now_ns, turn.now_ms
            )
        turn.work_count += ports.backups.process_pending(turn.now_ns, turn.now_ms)
        before = sessions.timed_out_count
        if self._is_ingress_read:
            turn.work_count += sessions.check_sessions(leader, turn.now_ns)
        ports.requests.close_lost()
        if sessions.timed_out_count != before:
            ports.timed_out_clients.set(sessions.timed_out_count)

    def check_quorum(self) -> Next | None:
        """A leader that no majority has reported to for the heartbeat timeout is none any more (C-17).

        Not while services take a snapshot that is committed, nor at the end; but one whose action was
        never heard of would wait for it for ever.
        """
        module = self._replica.module
        may_leave = module.reads_log or module.has_uncommitted
        if not may_leave or self.leader.has_active_quorum(self._ports.turn.now_ns):
            return None
        return Elect("inactive follower quorum")

    def look_around(self, heard: int, since_ns: int) -> bool:
        now_ns = self._ports.turn.now_ns
        return not heard and self.leader.leadership.is_followed_since(since_ns, now_ns)

    # ---- other members

    def on_append_position(self, member_id: int, term_id: int, log_position: int, flags: int) -> Next | None:
        ports = self._ports
        if (fault := ports.admission.fault_of_report(term_id, log_position)) is not None:
            detail = f"member {member_id} reports position {log_position} of term {term_id}: {fault}"
            ports.reporter.error(RemoteProtocolError(detail))
            return None
        self.leader.on_append_position(member_id, term_id, log_position, ports.turn.now_ns)
        server = ports.log_sender
        if server.streams.has_suspended and term_id == self.leader.leadership_term_id:
            server.streams.resume(member_id)
        if flags == AppendPositionFlags.CATCHUP:
            server.check_catchup(member_id, term_id, log_position)
        return None

    def on_message(self, member_id: int, message: Message) -> Next | None:
        ports, leader = self._ports, self.leader
        reason = None
        match message:
            case ReplicationRequest() | CatchupPosition() | CatchupProgress():
                ports.log_sender.on_message(member_id, message, self._led)
            case CanvassPosition():
                self._on_canvass_position(message)
            case RequestVote():
                reason = leader.on_request_vote(message, ports.turn.now_ns)
            case Vote():
                reason = self._on_vote(message)
            case NewLeadershipTerm():
                reason = leader.on_new_leadership_term(message)
            case CommitPosition():
                reason = leader.on_commit_position(message)
            case SnapshotDigest():
                ports.digests.on_reported(member_id, message)
            case TransferLeadership(candidate_member_id=id_) if id_ == member_id:
                if ports.transfer.is_asked(id_):
                    return Elect(f"member {id_} takes over", successor_id=id_)
            case ChallengeResponse():
                ports.requests.on_challenge_response(message)
        return None if reason is None else Elect(reason)

    def _on_canvass_position(self, message: CanvassPosition) -> None:
        ports, member_id = self._ports, message.follower_member_id
        reply = self.leader.on_canvass_position(
            message, self._publication.position, self._replica.cluster_time, ports.turn.now_ns
        )
        if reply is not None:
            server = ports.log_sender
            server.streams.suspend(member_id)
            ports.peers.links.send(member_id, server.geometry_frame() + consensus_frame(reply))

    def _on_vote(self, message: Vote) -> str | None:
        """A vote of a later term is known before its election is entered."""
        ports = self._ports
        reason = self.leader.on_vote(message)
        if reason is not None:
            position = ports.log.commit_position
            ports.node_state.propose(message.candidate_term_id, position, ports.turn.now_ms)
        return reason

    def on_link_down(self, member_id: int) -> Next | None:
        self.leader.on_link_down(member_id)
        return None
