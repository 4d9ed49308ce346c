"""The consensus module of one member (Aeron: ConsensusModuleAgent): the order of a turn, and its phase.

    do_work   stall tracker; after a pause the member looks around first           lease.py
              slow tick: signs of life, sessions' redirects, the phase's part, toggles, retention
              other members' frames                                                consensus_adapter.py
              answers and acks to clients, snapshots for other members             clients/, disk/
              the phase's part: repairs, elects, fetches, leads or follows         phases/
              messages of the services, a little of a snapshot                     services/

What a handler of a phase returns is entered here, in one place, along the table of ``phase.py``. All time is
handed in: ``now_ns`` of a monotonic clock for time-outs, ``clock`` of the wall clock in the log's unit. What
is written into the log is cluster time, which never falls (I-20): ``clocks.py``.
"""

from collections.abc import Callable, Sequence
from random import Random

from cluster.archive.mark_files import MarkFile
from cluster.consensus.actions import CompleteElection
from cluster.consensus.authentication import Security
from cluster.consensus.context import NULL_VALUE, ConsensusModuleContext
from cluster.consensus.election import Election
from cluster.errors import AgentTermination, ClusterError, DataLoss, RemoteProtocolError, StorageError
from cluster.member.consensus_adapter import ConsensusAdapter
from cluster.member.counters import DutyCycleStallTracker, MemberCounters
from cluster.member.disk.log_repair import range_answer
from cluster.member.disk.member_files import MemberFiles
from cluster.member.disk.recovery import leadership_terms, recover
from cluster.member.disk.snapshot_replication import SnapshotAndLog
from cluster.member.disk.snapshots import LoadedSnapshot
from cluster.member.lease import Lease
from cluster.member.log.retention import NeededPosition
from cluster.member.parts import Parts
from cluster.member.phase import (
    BEFORE_RECOVERY,
    PHASES,
    Close,
    Elect,
    Establish,
    Fetch,
    Next,
    Phase,
    PhaseName,
    Recover,
    Resume,
)
from cluster.member.phases.electing import Electing
from cluster.member.phases.fetching import Fetching
from cluster.member.phases.following import Following
from cluster.member.phases.leading import Leading
from cluster.member.phases.repairing import Repairing
from cluster.member.phases.replicating import Replicating
from cluster.member.phases.starting import Closed, Starting
from cluster.member.ports import Clients, FetchRecordings, Links
from cluster.member.reporter import Reporter
from cluster.member.turn import QUIET_NS, Turn
from cluster.member.upkeep import Upkeep
from cluster.protocol.consensus import TerminationAck
from cluster.protocol.enums import ConsensusModuleState, ElectionState
from cluster.protocol.link import (
    ClockReply,
    ClockRequest,
    LogGeometry,
    LogRangeRequest,
    PromiseStatement,
    RecordingFetch,
    ServicesAway,
    SnapshotRequest,
)
from cluster.protocol.link_histories import TermEvents
from cluster.protocol.sbe import Message
from cluster.protocol.service import ServiceAck
from cluster.service.channel import RecoveryState, ServiceChannel
from cluster.transport.message_frames import link_frame


def _nothing(*_: object) -> None:
    pass


class ConsensusModuleAgent:
    """One member. ``on_start`` once, then ``do_work`` in every turn, ``close`` at the end.

    Raises AgentTermination, StorageError, DataLoss or LogDamaged from ``do_work`` when the member cannot go
    on; everything else it reports with ``on_error`` and lives. ``is_closed`` after an orderly termination,
    reported once by ``on_terminated``. ``on_event`` gets, rarely, what happens, as lines for people,
    ``on_warning`` what should not happen.
    ``distrusts_log``: damage was met in it before.
    """

    def __init__(
        self,
        context: ConsensusModuleContext,
        *,
        files: MemberFiles,
        links: Links,
        clients: Clients,
        service_channels: Sequence[ServiceChannel],
        counters: MemberCounters,
        random: Random,
        security: Security,
        mark_file: MarkFile | None = None,
        fetch_recordings: FetchRecordings,
        needed_positions: Sequence[NeededPosition] = (),
        on_event: Callable[[str], None] = _nothing,
        on_warning: Callable[[str], None] | None = None,
        on_error: Callable[[Exception], None] = _nothing,
        on_terminated: Callable[[], None] = _nothing,
        distrusts_log: bool = False,
    ) -> None:
        assert len(service_channels) == context.service_count
        self.context = context
        self.files = files
        self.counters = counters
        self._random = random
        self.phase: Phase = Starting()
        self.turn = Turn()
        self.reporter = Reporter(counters.errors, on_event, on_error, on_warning)
        self.parts = Parts(
            context,
            files=files,
            links=links,
            clients=clients,
            channels=tuple(service_channels),
            counters=counters,
            random=random,
            security=security,
            needed_positions=tuple(needed_positions),
            fetch_recordings=fetch_recordings,
            turn=self.turn,
            reporter=self.reporter,
            distrusts_log=distrusts_log,
            find_election=lambda: self.phase.election,
        )
        self.log = self.parts.log
        self.replica = self.parts.replica
        self.status = self.parts.status
        self.lease = Lease(context.lease_ns, self.status, self.reporter)
        self._consensus_adapter = ConsensusAdapter(
            self, self.parts.log_requests, self.parts.unrelated, self.reporter
        )
        self._upkeep = Upkeep(self.parts, self.turn, self.reporter, mark_file)
        self._on_terminated = on_terminated
        self._tracker = DutyCycleStallTracker(counters, context.cycle_threshold_ns)
        self._is_node_startup = True
        self._unit_ns = context.time_unit.nanoseconds

    # ---- the start

    def on_start(self, now_ns: int, clock: int) -> None:
        """Recover from the disk and let the services start; the first election follows their acks.

        A damaged log is repaired first, if others can, in the turns to come, or a newer snapshot of a standby
        is fetched. Raises LogDamaged, DataLoss,
        StorageError, as ``do_work`` may then.
        """
        self.turn.begin(now_ns, clock * self._unit_ns)
        self.turn.slow_tick_ns = now_ns
        self._tracker.update(now_ns)
        self.parts.liveness.start(now_ns)
        self.parts.promise_keeper.begin()
        self.parts.repair.begin(now_ns)
        self.parts.histories.do_work()
        if self.parts.repair.log_repair is not None:
            self.phase = Repairing(self.parts.repair, self.turn)
        elif self.parts.standby_snapshots.begin():
            self.phase = Replicating(self.parts.standby_snapshots, self.turn)
        else:
            self._recover()

    def _recover(self) -> None:
        recovered = recover(
            self.files.archive,
            self.files.recording_log,
            self.context,
            self.parts.snapshots.archive,
            self.reporter.event,
            is_refilled=self.parts.repair.is_needed,
        )
        if recovered.cut_bytes:
            self.reporter.event(f"an interrupted truncation was finished: {recovered.cut_bytes} bytes cut")
        self.parts.promise_keeper.on_recovered(recovered.append_position)
        self.log.start(recovered.recording, recovered.log_position)
        self.parts.processing.start(recovered.log_position)
        recovery_state = RecoveryState(log_position=recovered.log_position)
        if recovered.snapshot is not None:
            recovery_state = self._load(recovered.snapshot)
        self.parts.services.start(recovery_state, self._on_services_started)

    def _load(self, snapshot: LoadedSnapshot) -> RecoveryState:
        """Take over what the module knew at a snapshot; the services are to do the same."""
        self.reporter.event(f"starts from the snapshot at {snapshot.log_position}")
        recovery_state = snapshot.load_into(self.replica)
        self.counters.leadership_term_id.set(recovery_state.leadership_term_id)
        return recovery_state

    def _on_services_started(self, acks: list[ServiceAck]) -> None:
        if any(ack.relevant_id == NULL_VALUE for ack in acks):
            raise AgentTermination("a service failed to start")
        self._change_phase(self._electing(Elect("start")))
        self._is_node_startup = False
        self.status.set_module(ConsensusModuleState.ACTIVE)

    # ---- the turn

    def do_work(self, now_ns: int, clock: int) -> int:
        """Take one turn; returns how much was done, 0 lets the runner wait."""
        turn = self.turn
        turn.begin(now_ns, clock * self._unit_ns)
        if self.phase.name is PhaseName.LEADING:
            self.parts.clocks.advance()
        else:
            self.replica.advance_time(self.replica.sessions.table.last_timestamp)
        gap_ns = self._tracker.measure_and_update(now_ns)
        if self.is_closed:
            return 0
        if gap_ns >= self.context.lease_ns:
            self.parts.clocks.forget()
        self.enter(self.lease.on_turn(gap_ns, now_ns, self.phase))
        if turn.is_slow_tick_due:
            self._slow_tick()
        heard = self.parts.links.poll(self._consensus_adapter)
        turn.work_count += heard
        if self.phase.name not in BEFORE_RECOVERY:
            turn.work_count += self.publish_egress() + self.parts.snapshot_server.do_work()
            self.enter(self.lease.on_polled(heard, self.phase))
        if not (self.lease.is_looking_around and self.status.is_leading):
            self.enter(self.phase.do_work())
        turn.work_count += self.parts.services.poll(self.log.commit_position)
        turn.work_count += self.parts.snapshots.do_work()
        if self.parts.termination.is_over and not self.is_closed:
            self.enter(Close())
        return turn.work_count

    @property
    def awaits_events(self) -> bool:
        """Whether only a socket or time gives it more to do; False where that is not known."""
        return self.phase.awaits_events and self._has_nothing_else

    @property
    def next_due_ns(self) -> int:
        """When time gives it something to do, sockets aside: a dial, or the next slow tick."""
        return min(self.parts.links.next_dial_ns, self.turn.slow_tick_ns)

    @property
    def quiet_until_ns(self) -> int:
        """Slow ticks before it would find nothing to do, unless an operator sets a toggle."""
        parts = self.parts
        is_awaited = (
            parts.replica.sessions.has_pending_work
            or parts.replica.sessions.clients_kept_until_ns is not None
            or parts.backups.has_pending_work
            or parts.requests.has_undecided
            or parts.standby_snapshots.is_replicating
            or parts.missed_snapshots.is_fetching
        )
        return 0 if is_awaited else self.turn.quiet_until_ns

    @property
    def may_be_lent(self) -> bool:
        """Whether compiled turns may stand for its own (``busy/lend.py``)."""
        return self.phase.may_be_lent and self._has_nothing_else

    @property
    def _has_nothing_else(self) -> bool:
        """Beside its phase."""
        parts, turn = self.parts, self.turn
        return (
            self.replica.module.is_active
            and turn.slow_tick_ns > turn.now_ns + 1
            and not self.lease.is_looking_around
            and not (parts.snapshots.is_holding or parts.snapshots.is_making)
            and not parts.snapshot_server.is_serving
            and parts.links.awaits_events
            and not parts.clients.has_ready
        )

    @property
    def last_turn_ns(self) -> int:
        """When the last turn began that was measured, Python's or compiled."""
        return self.turn.now_ns if self._tracker.last_ns is None else self._tracker.last_ns

    def on_busy_turns(self, now_ns: int, slow_tick_ns: int, last_ns: int, longest_gap_ns: int) -> None:
        """Compiled code has taken turns, the last one at ``last_ns``; it saw the time ``now_ns`` after it."""
        self.turn.now_ns = now_ns
        self.turn.slow_tick_ns = slow_tick_ns
        self._tracker.measure(longest_gap_ns)
        self._tracker.update(last_ns)

    def publish_egress(self) -> int:
        """Send what services have answered; a runner that calls it after the services spares them a turn."""
        return self.parts.egress.poll()

    def _slow_tick(self) -> None:
        """What is looked after in a slow tick, in Aeron's order (ConsensusModuleAgent.slowTickWork)."""
        turn = self.turn
        before = turn.work_count
        self._upkeep.show_life()
        self.parts.clocks.ask()
        self.parts.histories.do_work()
        self.on_unrelated()
        if self._is_recording_stopped:
            turn.work_count += 1
            self.enter(Elect("log recording stopped"))
        self._upkeep.look_after_clients()
        self.parts.promise_keeper.learn_first_term()
        self.on_unrelated()
        if not self.lease.is_looking_around:
            self.enter(self.phase.slow_tick())
            if self.phase.election is None:
                self.parts.clocks.look()
            if self.phase.election is None and self.replica.module.is_active:
                turn.work_count += self.parts.standby_snapshots.do_work()
                turn.work_count += self.parts.missed_snapshots.do_work()
                turn.work_count += self.parts.node_control.do_work()
                asked_ns = self.parts.snapshot_server.last_request_ns
                turn.work_count += self.parts.retention.do_work(turn.now_ns, asked_ns)
        is_more = turn.work_count > before
        turn.slow_tick_ns = turn.now_ns + (1 if is_more else self.context.slow_tick_interval_ns)
        turn.quiet_until_ns = turn.now_ns + QUIET_NS

    @property
    def _is_recording_stopped(self) -> bool:
        """Usually by a tool. An election stops and starts the recording itself."""
        recording = self.log.recording
        return (
            self.status.leader_member_id != NULL_VALUE
            and self.replica.module.reads_log
            and recording is not None
            and not recording.is_active
        )

    # ---- the phase

    def enter(self, step: Next | None) -> None:
        """Do what a handler of the phase has returned; one cycle of an election that begins runs at once."""
        while step is not None:
            step = self._enter(step)

    def _enter(self, step: Next) -> Next | None:
        match step:
            case Recover():
                self._change_phase(Starting())
                self._recover()
            case Elect():
                self._change_phase(self._electing(step))
                return self.phase.do_work()
            case Fetch():
                self._change_phase(self._fetching(step))
            case Resume() if isinstance(self.phase, Fetching):
                self._change_phase(self.phase.electing)
            case Establish():
                self._establish(step.result)
            case Close():
                self._close()
        return None

    def _change_phase(self, phase: Phase) -> None:
        """The only place where the phase changes."""
        old = self.phase.name
        assert phase.name is PhaseName.CLOSED or phase.name in PHASES[old], f"{old.name} -> {phase.name.name}"
        self.phase = phase

    def _electing(self, step: Elect) -> Electing:
        self.reporter.event(f"enters an election: {step.reason}")
        time_of_last_leader_message_ns = self.turn.now_ns
        if isinstance(self.phase, Following):
            time_of_last_leader_message_ns = self.phase.follower.time_of_last_leader_message_ns
        self.status.set_leader(NULL_VALUE)
        self.counters.election_count.get_and_add(1)
        self.counters.election_state.set(ElectionState.INIT)
        log = self.log
        election = Election(
            self.context,
            self.parts.members,
            leadership_terms(log.recording_log),
            self.parts.promise_keeper.promises,
            self._random,
            module=self.replica.module,
            candidate_term_id=self.files.node_state.candidate_term_id,
            log_position=log.commit_position,
            append_position=log.append_position,
            log_recording_id=NULL_VALUE if log.recording is None else log.recording.recording_id,
            is_node_startup=self._is_node_startup,
            acknowledged_end=self.parts.repair.acknowledged_end,
            graceful_closed_leader_id=step.graceful_closed_leader_id,
            time_of_last_leader_message_ns=time_of_last_leader_message_ns,
            gone_member_ids=self.parts.liveness.gone_member_ids,
            unrelated_ids=self.parts.unrelated,
            committed_position=self.files.life.committed_position,
            successor_id=step.successor_id,
        )
        return Electing(election, self.parts)

    def _fetching(self, step: Fetch) -> Fetching:
        assert isinstance(self.phase, Electing)
        ports = self.parts.replication_ports
        replication = SnapshotAndLog(step.member_id, ports, is_needed=step.is_needed)
        return Fetching(self.phase, replication, self.parts)

    def _establish(self, result: CompleteElection) -> None:
        """Lead or follow from now on."""
        election = self.phase.election
        assert election is not None
        leader_id, replica = result.leader_member_id, self.replica
        self.parts.promise_keeper.on_elected()
        self.parts.repair.finish(leader_id, self.log)
        replica.enter_term(result.leadership_term_id)
        self.counters.leadership_term_id.set(result.leadership_term_id)
        if leader_id == self.context.member_id:
            assert election.leadership is not None
            self._change_phase(Leading(result, election.leadership, election.candidate_term_id, self.parts))
            sessions = replica.sessions
            sessions.prepare_for_new_term(self.turn.now_ns, is_startup=result.is_leader_startup)
            sessions.table.take_touched()
            self.parts.toggles.on_leading()
        else:
            candidate_term_id = self.files.node_state.candidate_term_id
            self._change_phase(Following(result, candidate_term_id, self.parts))
        self.status.set_leader(leader_id)
        self.parts.toggles.on_established()
        self.counters.election_state.set(ElectionState.CLOSED)

    # ---- the end

    @property
    def is_closed(self) -> bool:
        """The member ended as it was asked to."""
        return self.phase.name is PhaseName.CLOSED

    def _close(self) -> None:
        """The cluster ends, and its log with it."""
        if self.status.module is not ConsensusModuleState.CLOSED:
            self.parts.termination.end()
        self._leave_for_good()
        self._on_terminated()

    def close(self) -> None:
        """End now: services end, the recording stops at what is written, the directory can start again."""
        if not self.is_closed:
            self.phase.close()
            self.parts.services.terminate(self.log.commit_position, None)
            self.status.set_module(ConsensusModuleState.CLOSED)
            self._leave_for_good()
        self.log.stop(self.turn.now_ms)

    def _leave_for_good(self) -> None:
        self.status.set_leader(NULL_VALUE)
        self._change_phase(Closed())

    # ---- other members

    def on_message(self, member_id: int, message: Message) -> None:
        """One decoded message that came over the link of ``member_id``."""
        if (fault := self.parts.admission.fault_of(member_id, message)) is not None:
            self.reporter.error(RemoteProtocolError(f"member {member_id}: {fault}: {message}"))
            return
        match message:
            case TermEvents():
                self.parts.histories.on_events(member_id, message)
            case PromiseStatement():
                self.parts.promise_keeper.on_statement(member_id, message)
                self.on_unrelated()
            case LogGeometry():
                self.parts.log_requests.geometry_of[member_id] = message
            case ClockRequest():
                away, beside = self.parts.services.first_away, []
                if away is not None or self.parts.room.is_full:
                    beside.append(link_frame(ServicesAway(NULL_VALUE if away is None else away)))
                self.parts.clocks.on_request(member_id, message, *beside)
            case ClockReply():
                self.parts.clocks.on_reply(member_id, message)
                self.parts.members[member_id].serves_clients = True
            case ServicesAway():
                self.parts.members[member_id].serves_clients = False
            case LogRangeRequest():
                self.parts.links.send(member_id, range_answer(self.files, message))
            case RecordingFetch():  # what is wrong with our own recordings ends this life
                self.parts.snapshot_server.on_fetch(member_id, message)
            case SnapshotRequest():
                self._on_snapshot_request(member_id, message)
            case TerminationAck():
                self.parts.termination.on_termination_ack(message)
            case _:
                self.parts.missed_snapshots.on_message(member_id, message)
                self.enter(self.phase.on_message(member_id, message))

    def _on_snapshot_request(self, member_id: int, request: SnapshotRequest) -> None:
        try:
            self.parts.snapshot_server.on_request(member_id, request)
        except (StorageError, DataLoss, AgentTermination):
            raise
        except ClusterError as error:
            self.reporter.error(error)
            self.enter(self.phase.on_failure(error))

    def on_link_up(self, member_id: int) -> None:
        self.counters.links_up[member_id].set(True)  # at once: the other side may say it already
        self.parts.liveness.on_seen(member_id)
        self.parts.histories.on_link_up(member_id)
        self.parts.promise_keeper.on_link_up(member_id)
        self.parts.clocks.on_link_up(member_id)
        self.enter(self.phase.on_link_up(member_id))
        self.parts.log_requests.on_link_up(member_id)

    def on_link_down(self, member_id: int) -> None:
        """A hint: what came over the link proves nothing any more, and its streams are cut."""
        self.parts.histories.on_link_down(member_id)
        self.parts.unrelated.remove(member_id)
        self.parts.promise_keeper.on_link_down(member_id)
        self._forget(member_id)

    def on_unrelated(self) -> None:
        """Of members that turn out to be unrelated what was said proves nothing, and what will be."""
        for member_id in self.parts.unrelated.take_new():
            self.parts.members[member_id].reset()
            self._forget(member_id)
            self.enter(self.phase.on_member_gone(member_id))

    def _forget(self, member_id: int) -> None:
        self.parts.log_sender.streams.stop(member_id)
        self.parts.members[member_id].clear_report()
        self.parts.clocks.forget(member_id)
        self.parts.log_requests.on_link_down(member_id)
        self.parts.snapshot_server.stop(member_id)
        self.enter(self.phase.on_link_down(member_id))

    def on_member_gone(self, member_id: int) -> None:
        """No process listens for the member; if one did before, it is dead."""
        if not self.parts.liveness.on_refused(member_id):
            return
        self.reporter.event(f"member {member_id} is gone")
        self.enter(self.phase.on_member_gone(member_id))
