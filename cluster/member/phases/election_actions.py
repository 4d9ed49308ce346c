"""What an election asks for, done on the member's media; one method an action, in the order of the list."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from cluster.archive.node_state_file import NodeStateFile
from cluster.archive.recording import Recording
from cluster.consensus import actions
from cluster.consensus.context import ConsensusModuleContext
from cluster.consensus.election import Election
from cluster.consensus.replica import ReplicatedState
from cluster.counters import Counter
from cluster.member.clocks import MemberClocks
from cluster.member.disk.histories import MemberHistories
from cluster.member.disk.promise_keeper import PromiseKeeper
from cluster.member.frames import consensus_frame
from cluster.member.log.member_log import MemberLog
from cluster.member.log.processing import LogProcessing
from cluster.member.log.publication import LogPublication
from cluster.member.log.requests import LogRequests
from cluster.member.log.sender import LogSender
from cluster.member.log.subscription import LogSubscription
from cluster.member.log.sync_pacing import FetchedLogSync
from cluster.member.phase import Establish, Fetch, Next
from cluster.member.phases.log_replay import LogReplay
from cluster.member.ports import Links
from cluster.member.reporter import Reporter
from cluster.member.services.service_adapter import MAX_LOG_POSITION, ServiceAdapter
from cluster.member.status import MemberStatus
from cluster.member.turn import Turn
from cluster.member.unrelated import Unrelated
from cluster.protocol import streams
from cluster.protocol.consensus import CanvassPosition, NewLeadershipTerm, Vote
from cluster.protocol.enums import ElectionState, Role
from cluster.protocol.link import CatchupProgress, TransferLeadership
from cluster.protocol.log import NewLeadershipTermEvent
from cluster.transport.message_frames import link_frame


class ElectionPorts(Protocol):
    """What the actions of all elections of a member reach of its ``Parts``."""

    context: ConsensusModuleContext
    links: Links
    node_state: NodeStateFile
    promise_keeper: PromiseKeeper
    histories: MemberHistories
    unrelated: Unrelated
    log: MemberLog
    log_requests: LogRequests
    log_sender: LogSender
    processing: LogProcessing
    replica: ReplicatedState
    services: ServiceAdapter
    status: MemberStatus
    election_state: Counter
    turn: Turn
    clocks: MemberClocks
    reporter: Reporter
    request_ids: Iterator[int]  # of replays and of requests for the log
    fetched_log_sync: FetchedLogSync
    without_snapshot: set[int]  # members that had none when they were asked, until an election fails

    def leave(self, log_position: int) -> None:
        """Undo what an earlier leadership left, back to the commit position."""


class ElectionActions:
    """Carries out the actions of one election. ``next``: what they lead to."""

    def __init__(self, election: Election, ports: ElectionPorts) -> None:
        self.log_replay: LogReplay | None = None
        self.next: Next | None = None
        self._election = election
        self._ports = ports
        self._do: dict[type[actions.Action], Callable[[Any], bool | None]] = {
            actions.Send: self._send,
            actions.ProposeTerm: self._propose_term,
            actions.KeepPromises: self._keep_promises,
            actions.RecordTerm: self._record_term,
            actions.TruncateLog: self._truncate_log,
            actions.SetApart: self._set_apart,
            actions.PrepareForNewLeadership: self._prepare_for_new_leadership,
            actions.SetRole: self._set_role,
            actions.ChangeState: self._change_state,
            actions.CreateLogPublication: self._create_log_publication,
            actions.StartReplay: self._start_replay,
            actions.StopReplay: self._stop_replay,
            actions.StartReplication: self._start_replication,
            actions.StopReplication: self._stop_replication,
            actions.FetchSnapshot: self._fetch_snapshot,
            actions.SubscribeToLog: self._subscribe_to_log,
            actions.JoinServicesToLog: self._join_log,
            actions.AppendNewLeadershipTermEvent: self._append_new_leadership_term_event,
            actions.CompleteElection: self._complete_election,
        }

    def carry_out(self, wanted: list[actions.Action]) -> int:
        """Do all in order; returns how much. What no link took is no work, and asked for again."""
        work_count = 0
        for action in wanted:
            if self._do[type(action)](action) is not False:
                work_count += 1
        return work_count

    # ---- messages

    def _send(self, action: actions.Send) -> bool:
        ports, message = self._ports, action.message
        if action.member_id in ports.unrelated:
            return False
        if isinstance(message, CatchupProgress | TransferLeadership):
            frames = link_frame(message)
        else:
            frames = consensus_frame(message)
        if isinstance(message, NewLeadershipTerm):
            self._recording()
            frames = ports.log_sender.geometry_frame() + frames
        elif isinstance(message, CanvassPosition | Vote):
            frames = ports.promise_keeper.frame() + frames
        is_sent = ports.links.send(action.member_id, frames) > 0
        if is_sent:
            self._election.on_sent(action.member_id, message)
        return is_sent

    # ---- what must be durable

    def _propose_term(self, action: actions.ProposeTerm) -> None:
        ports = self._ports
        ports.node_state.propose(action.candidate_term_id, action.log_position, ports.turn.now_ms)

    def _keep_promises(self, action: actions.KeepPromises) -> None:
        self._ports.promise_keeper.store()

    def _record_term(self, action: actions.RecordTerm) -> None:
        ports = self._ports
        self._recording()
        ports.log.record_term(
            action.leadership_term_id,
            action.term_base_log_position,
            action.log_position,
            ports.clocks.own,
        )

    def _truncate_log(self, action: actions.TruncateLog) -> None:
        self._ports.log.truncate(action.log_position, action.first_removed_term_id)
        self._ports.reporter.event(
            f"log cut to {action.log_position}, terms from {action.first_removed_term_id} on dropped"
        )
        self._ports.histories.do_work()

    def _set_apart(self, action: actions.SetApart) -> None:
        self._ports.unrelated.add(
            action.leader_member_id,
            f"it leads, and its log differs from position {action.log_position} on, but "
            f"{action.committed_position} is committed here",
        )

    # ---- state

    def _prepare_for_new_leadership(self, action: actions.PrepareForNewLeadership) -> None:
        ports = self._ports
        self.log_replay = None
        ports.leave(action.log_position)
        self.carry_out(self._election.on_prepared(ports.log.append_position, ports.turn.now_ns))

    def _set_role(self, action: actions.SetRole) -> None:
        self._ports.status.set_role(action.role)

    def _change_state(self, action: actions.ChangeState) -> None:
        if action.new is not ElectionState.CLOSED:  # shown after the term, by the code that enters it
            self._ports.election_state.set(action.new)
        self._ports.reporter.event(f"election {action.old.name} -> {action.new.name}: {action.reason}")

    # ---- the recording

    def _recording(self) -> Recording:
        """The log's recording; made in the shape of the leader's log when there is none."""
        log, election = self._ports.log, self._election
        if log.recording is not None:
            return log.recording
        geometry = self._ports.log_requests.geometry_of.get(election.leader_member_id)
        recording = log.create(election.log_session_id, geometry)
        election.on_log_created(recording.recording_id)
        return recording

    def _active_recording(self, log_session_id: int) -> Recording:
        """The log's recording, being written under this session."""
        self._recording()
        return self._ports.log.extend(log_session_id)

    # ---- leading

    def _create_log_publication(self, action: actions.CreateLogPublication) -> None:
        self._ports.log_sender.streams.open(self._active_recording(action.log_session_id))

    def _append_new_leadership_term_event(self, action: actions.AppendNewLeadershipTermEvent) -> None:
        ports = self._ports
        replica, publication = ports.replica, ports.log.publication
        assert publication is not None
        # The whole log is processed: what it says of time, no clock takes back (I-20).
        replica.advance_time(replica.sessions.table.last_timestamp)
        ports.clocks.begin()
        event = NewLeadershipTermEvent(
            leadership_term_id=action.leadership_term_id,
            log_position=0,
            timestamp=replica.cluster_time,
            term_base_log_position=action.term_base_log_position,
            leader_member_id=ports.context.member_id,
            log_session_id=publication.params.session_id,
            time_unit=ports.context.time_unit,
            app_version=ports.context.app_version,
        )
        end = publication.end_of(len(event.encode()))
        position = publication.append(event.replace(log_position=end).encode())
        assert position == end
        publication.flush()
        self.carry_out(self._election.on_term_event_appended(position, ports.turn.now_ns))

    # ---- replay: local, and seen by nobody else

    def _start_replay(self, action: actions.StartReplay) -> None:
        ports = self._ports
        assert ports.log.recording is not None
        assert ports.log.commit_position == action.log_position < action.stop_position
        self.log_replay = LogReplay(
            ports.services,
            ports.log.recording,
            action.log_position,
            action.stop_position,
            next(ports.request_ids),
        )

    def _stop_replay(self, action: actions.StopReplay) -> None:
        self.log_replay = None

    # ---- following

    def _start_replication(self, action: actions.StartReplication) -> None:
        log = self._ports.log
        recording = self._active_recording(self._recording().session_id)
        log.subscription = LogSubscription(
            recording,
            log.params(recording.session_id),
            leader_member_id=action.leader_member_id,
            leadership_term_id=action.leadership_term_id,
            correlation_id=next(self._ports.request_ids),
            stop_position=action.stop_position,
        )
        self._request_log(action.leader_member_id)

    def _stop_replication(self, action: actions.StopReplication) -> None:
        self._ports.log.subscription = None

    def _subscribe_to_log(self, action: actions.SubscribeToLog) -> None:
        log = self._ports.log
        recording = self._active_recording(action.log_session_id)
        assert recording.append_position == action.log_position
        request_id = next(self._ports.request_ids)
        log.subscription = LogSubscription(
            recording,
            log.params(action.log_session_id),
            leader_member_id=action.leader_member_id,
            leadership_term_id=action.leadership_term_id,
            # A catch-up is asked for by the election's CatchupPosition, which knows no other number.
            correlation_id=action.log_position if action.is_catchup else request_id,
            is_requested=action.is_catchup,
        )
        self._request_log(action.leader_member_id)

    def _request_log(self, leader_member_id: int) -> None:
        """Ask for the log; an empty member spares itself the replay of what a snapshot stands for."""
        ports = self._ports
        is_empty = ports.log.append_position == 0 and not ports.promise_keeper.promises.has_say
        if is_empty and leader_member_id not in ports.without_snapshot:
            self.next = Fetch(leader_member_id, is_needed=False)
        else:
            ports.log_requests.request()

    def _fetch_snapshot(self, action: actions.FetchSnapshot) -> None:
        self.next = Fetch(action.leader_member_id, is_needed=True)

    # ---- both

    def _join_log(self, action: actions.JoinServicesToLog) -> None:
        ports, election = self._ports, self._election
        recording = self._active_recording(action.log_session_id)
        if action.role is Role.LEADER:
            params = ports.log.params(action.log_session_id)
            ports.log.publication = LogPublication(recording, ports.log_sender.streams, params)
        ports.replica.enter_term(action.leadership_term_id)
        ports.services.join_log(
            recording,
            log_position=action.log_position,
            max_log_position=MAX_LOG_POSITION,
            log_session_id=action.log_session_id,
            log_stream_id=streams.LOG,
            is_startup=action.is_startup,
            role=action.role,
            on_acked=lambda _: election.on_log_joined(ports.turn.now_ns),
        )

    def _complete_election(self, action: actions.CompleteElection) -> None:
        self.next = Establish(action)
