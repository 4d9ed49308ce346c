"""What an election asks for, done on the member's media; one method an action, in the order of the list."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cluster.consensus import actions
from cluster.consensus.context import NULL_POSITION
from cluster.member.frames import consensus_frame
from cluster.member.leading import geometry_frame
from cluster.member.log_publication import LogPublication
from cluster.member.log_replay import LogReplay
from cluster.member.log_subscription import LogSubscription
from cluster.member.service_adapter import MAX_LOG_POSITION
from cluster.protocol import streams
from cluster.protocol.consensus import CanvassPosition, NewLeadershipTerm, Vote
from cluster.protocol.enums import Role
from cluster.protocol.link import CatchupProgress
from cluster.protocol.log import NewLeadershipTermEvent
from cluster.transport.message_frames import link_frame

if TYPE_CHECKING:
    from cluster.member.agent import ConsensusModuleAgent


class ElectionActions:
    """Carries out the actions of the agent's election."""

    def __init__(self, agent: "ConsensusModuleAgent") -> None:
        self._agent = agent
        self._correlation_id = 0
        self.log_replay: LogReplay | None = None
        self._do: dict[type[actions.Action], Callable[[Any], bool | None]] = {
            actions.Send: self._send,
            actions.ProposeTerm: self._propose_term,
            actions.KeepPromises: self._keep_promises,
            actions.RecordTerm: self._record_term,
            actions.TruncateLog: self._truncate_log,
            actions.PrepareForNewLeadership: self._prepare_for_new_leadership,
            actions.SetRole: self._set_role,
            actions.ChangeState: self._change_state,
            actions.CreateLogPublication: self._create_log_publication,
            actions.StartReplay: self._start_replay,
            actions.StopReplay: self.stop_replay,
            actions.StartReplication: self._start_replication,
            actions.StopReplication: self._stop_replication,
            actions.FetchSnapshot: self._fetch_snapshot,
            actions.SubscribeToLog: self._subscribe_to_log,
            actions.JoinServicesToLog: self._join_log,
            actions.AppendNewLeadershipTermEvent: self._append_new_leadership_term_event,
            actions.CompleteElection: self._complete_election,
        }

    def carry_out(self, wanted: list[actions.Action]) -> int:
        """Do all of them in order; returns how much was done.

        What a link did not take is no work: it is asked for again in each cycle, and must not keep the
        member from resting between them.
        """
        work_count = 0
        for action in wanted:
            if self._do[type(action)](action) is not False:
                work_count += 1
        return work_count

    # ---- messages

    def _send(self, action: actions.Send) -> bool:
        agent = self._agent
        message = action.message
        if isinstance(message, CatchupProgress):
            frames = link_frame(message)
        else:
            frames = consensus_frame(message)
        if isinstance(message, NewLeadershipTerm):
            frames = geometry_frame(agent) + frames
        elif isinstance(message, CanvassPosition | Vote):
            frames = agent.promise_keeper.frame() + frames
        is_sent = agent.links.send(action.member_id, frames) > 0
        if is_sent and agent.election is not None:
            agent.election.on_sent(action.member_id, message)
        return is_sent

    # ---- what must be durable

    def _propose_term(self, action: actions.ProposeTerm) -> None:
        agent = self._agent
        agent.node_state.propose(action.candidate_term_id, action.log_position, agent.now_ms)

    def _keep_promises(self, action: actions.KeepPromises) -> None:
        self._agent.promise_keeper.store()

    def _record_term(self, action: actions.RecordTerm) -> None:
        agent = self._agent
        recording = agent.log_recording()
        log = agent.log.recording_log
        known = log.find_term(action.leadership_term_id)
        is_reopened = (
            known is not None
            and action.log_position == NULL_POSITION
            and known == log.find_last_term()
            and known.log_position != NULL_POSITION
        )
        if is_reopened:
            log.commit_log_position(action.leadership_term_id, NULL_POSITION)
            return
        log.ensure_coherent(
            recording_id=recording.recording_id,
            # The terms before the first one are filled in, unless a snapshot stands for them.
            initial_log_leadership_term_id=0
            if action.term_base_log_position == 0
            else action.leadership_term_id,
            initial_term_base_log_position=action.term_base_log_position,
            leadership_term_id=action.leadership_term_id,
            term_base_log_position=action.term_base_log_position,
            log_position=action.log_position,
            timestamp=agent.replica.cluster_time,
        )

    def _truncate_log(self, action: actions.TruncateLog) -> None:
        """Entries first: a closed term before a longer recording is a cut that a restart finishes."""
        agent = self._agent
        log = agent.log.recording_log
        while (last := log.find_last_term()) is not None and (
            last.leadership_term_id >= action.first_removed_term_id
            or last.term_base_log_position > action.log_position
        ):
            log.remove(last)
        if last is not None:
            log.commit_log_position(last.leadership_term_id, action.log_position)
        recording = agent.log.recording
        if recording is not None:
            recording.truncate(action.log_position)
        agent.tell(f"log cut to {action.log_position}, terms from {action.first_removed_term_id} on dropped")

    # ---- state

    def _prepare_for_new_leadership(self, action: actions.PrepareForNewLeadership) -> None:
        agent = self._agent
        append_position = agent.prepare_for_new_leadership(action.log_position)
        assert agent.election is not None
        self.carry_out(agent.election.on_prepared(append_position, agent.now_ns))

    def _set_role(self, action: actions.SetRole) -> None:
        self._agent.set_role(action.role)

    def _change_state(self, action: actions.ChangeState) -> None:
        agent = self._agent
        agent.counters.election_state.set(action.new)
        agent.tell(f"election {action.old.name} -> {action.new.name}: {action.reason}")

    # ---- leading

    def _create_log_publication(self, action: actions.CreateLogPublication) -> None:
        self._agent.streams.open(self._agent.log_recording())

    def _append_new_leadership_term_event(self, action: actions.AppendNewLeadershipTermEvent) -> None:
        agent = self._agent
        publication, election = agent.publication, agent.election
        assert publication is not None and election is not None
        # The whole log is processed: what it says of time, no clock takes back (I-20).
        agent.replica.advance_time(agent.replica.sessions.table.last_timestamp)
        event = NewLeadershipTermEvent(
            leadership_term_id=action.leadership_term_id,
            log_position=0,
            timestamp=agent.replica.cluster_time,
            term_base_log_position=action.term_base_log_position,
            leader_member_id=agent.context.member_id,
            log_session_id=publication.params.session_id,
            time_unit=agent.context.time_unit,
            app_version=agent.context.app_version,
        )
        end = publication.end_of(len(event.encode()))
        position = publication.append(event.replace(log_position=end).encode())
        assert position == end
        publication.flush()
        self.carry_out(election.on_term_event_appended(position, agent.now_ns))

    # ---- replay: local, and seen by nobody else

    def _start_replay(self, action: actions.StartReplay) -> None:
        agent = self._agent
        assert agent.log.recording is not None
        self._correlation_id += 1
        self.log_replay = LogReplay(
            agent, agent.log.recording, action.log_position, action.stop_position, self._correlation_id
        )

    def stop_replay(self, action: actions.StopReplay | None = None) -> None:
        self.log_replay = None

    # ---- following

    def _start_replication(self, action: actions.StartReplication) -> None:
        agent = self._agent
        recording = agent.active_recording(agent.log_recording().session_id)
        self._correlation_id += 1
        agent.subscription = LogSubscription(
            recording,
            agent.log.params(recording.session_id),
            leader_member_id=action.leader_member_id,
            leadership_term_id=action.leadership_term_id,
            correlation_id=self._correlation_id,
            stop_position=action.stop_position,
        )
        self._request_log(action.leader_member_id)

    def _fetch_snapshot(self, action: actions.FetchSnapshot) -> None:
        self._agent.replications.begin(action.leader_member_id, is_needed=True)

    def _request_log(self, leader_member_id: int) -> None:
        """Ask for the log, unless a snapshot is asked for first."""
        agent = self._agent
        if agent.replications.is_wanted_of(leader_member_id):
            agent.replications.begin(leader_member_id, is_needed=False)
        else:
            agent.messages.request_log()

    def _stop_replication(self, action: actions.StopReplication) -> None:
        self._agent.subscription = None

    def _subscribe_to_log(self, action: actions.SubscribeToLog) -> None:
        agent = self._agent
        recording = agent.active_recording(action.log_session_id)
        assert recording.append_position == action.log_position
        self._correlation_id += 1
        agent.subscription = LogSubscription(
            recording,
            agent.log.params(action.log_session_id),
            leader_member_id=action.leader_member_id,
            leadership_term_id=action.leadership_term_id,
            # A catch-up is asked for by the election's CatchupPosition, which knows no other number.
            correlation_id=action.log_position if action.is_catchup else self._correlation_id,
            is_requested=action.is_catchup,
        )
        self._request_log(action.leader_member_id)

    # ---- both

    def _join_log(self, action: actions.JoinServicesToLog) -> None:
        agent = self._agent
        recording = agent.active_recording(action.log_session_id)
        if action.role is Role.LEADER:
            agent.publication = LogPublication(
                recording, agent.streams, agent.log.params(action.log_session_id)
            )
        agent.replica.enter_term(action.leadership_term_id)

        def on_acked(_: object) -> None:
            if agent.election is not None:
                agent.election.on_log_joined(agent.now_ns)

        agent.services.join_log(
            recording,
            log_position=action.log_position,
            max_log_position=MAX_LOG_POSITION,
            log_session_id=action.log_session_id,
            log_stream_id=streams.LOG,
            is_startup=action.is_startup,
            role=action.role,
            on_acked=on_acked,
        )

    def _complete_election(self, action: actions.CompleteElection) -> None:
        self._agent.complete_election(action)
