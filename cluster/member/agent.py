"""The consensus module of one member (Aeron: ConsensusModuleAgent).

    do_work   stall tracker
              slow tick, every 10 ms: sessions, time-outs, quorum, toggles      slow_tick.py
              other members' frames                                             consensus_adapter.py
              answers and acks to clients                                       egress_publisher.py
              woken up after a pause: the leader's part waits for its term      waking.py
              an election: its cycle                                            election_actions.py
              or leading: timers, service messages, ingress, write-send-sync, commit   leading.py
              or following: sync and report, committed log, ingress             following.py
              messages of the services                                          service_adapter.py

All time is handed in: ``now_ns`` of a monotonic clock for time-outs, ``cluster_time`` for what is written
into the log, which never falls (I-20).
"""

from collections.abc import Callable, Sequence
from random import Random

from cluster.archive.mark_files import MarkFile
from cluster.archive.recording import Recording
from cluster.consensus.actions import Action, CompleteElection
from cluster.consensus.authentication import AllowBackupAndStandby, Authenticator, AuthorisationService
from cluster.consensus.cluster_member import ClusterMember
from cluster.consensus.context import NULL_VALUE, ConsensusModuleContext
from cluster.consensus.election import Election
from cluster.consensus.replica import ReplicatedState
from cluster.errors import AgentTermination, ClusterError, DataLoss, LogDamaged, StorageError
from cluster.member.client_requests import ClientRequests
from cluster.member.consensus_adapter import ConsensusAdapter
from cluster.member.counters import DutyCycleStallTracker, MemberCounters
from cluster.member.egress_publisher import EgressPublisher
from cluster.member.election_actions import ElectionActions
from cluster.member.fetching import FetchedLogSync
from cluster.member.following import Following
from cluster.member.ingress_adapter import IngressAdapter
from cluster.member.leading import Leading
from cluster.member.log_entries import LogEntries
from cluster.member.log_publication import LogPublication
from cluster.member.log_streams import LogStreams
from cluster.member.log_subscription import LogSubscription
from cluster.member.member_files import MemberFiles
from cluster.member.member_log import MemberLog
from cluster.member.member_messages import MemberMessages
from cluster.member.ports import Clients, Links, Peers
from cluster.member.presence import Presence
from cluster.member.promise_keeper import PromiseKeeper
from cluster.member.recovery import leadership_terms, recover
from cluster.member.repair import Repair
from cluster.member.retention import NeededPosition, Retention
from cluster.member.service_adapter import ServiceAdapter
from cluster.member.slow_tick import SlowTick
from cluster.member.snapshot_digests import SnapshotDigests
from cluster.member.snapshot_replication import SnapshotReplications
from cluster.member.snapshots import SnapshotTaker
from cluster.member.termination import Termination
from cluster.member.waking import Waking
from cluster.protocol.enums import (
    ClusterControlToggle,
    ConsensusModuleState,
    ElectionState,
    NodeControlToggle,
    Role,
)
from cluster.protocol.link import LogGeometry
from cluster.service.channel import RecoveryState, ServiceChannel

# What ends the member instead of beginning its election anew (C-45).
FATAL = (StorageError, DataLoss, LogDamaged, AgentTermination)


def _nothing(*_: object) -> None:
    pass


class ConsensusModuleAgent:
    """One member. ``on_start`` once, then ``do_work`` in every turn, ``close`` at the end.

    Raises AgentTermination, StorageError, DataLoss or LogDamaged from ``do_work`` when the member cannot go
    on; everything else it reports with ``on_error`` and lives. ``is_closed`` after an orderly termination,
    told once by ``on_terminated``. ``on_event`` is told, rarely, what happens, as lines for people.
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
        authenticator: Authenticator | None = None,
        authorisation: AuthorisationService | None = None,
        mark_file: MarkFile | None = None,
        needed_positions: Sequence[NeededPosition] = (),
        on_event: Callable[[str], None] = _nothing,
        on_error: Callable[[Exception], None] = _nothing,
        on_terminated: Callable[[], None] = _nothing,
        distrusts_log: bool = False,
    ) -> None:
        assert len(service_channels) == context.service_count
        self.context = context
        self.files = files
        self.archive = files.archive
        self.node_state = files.node_state
        self.links = links
        self.clients = clients
        self.counters = counters
        self.mark_file = mark_file
        self.authorisation: AuthorisationService = authorisation or AllowBackupAndStandby()
        self.tell = on_event
        self.on_terminated = on_terminated
        self._on_error = on_error
        self.random = random

        self.now_ns = 0
        self.role = Role.FOLLOWER
        self.members = {member_id: ClusterMember(member_id) for member_id in context.member_ids}
        self.other_ids = [member_id for member_id in context.member_ids if member_id != context.member_id]
        self.presence = Presence(context.leader_heartbeat_timeout_ns)
        self.gone_member_ids = self.presence.gone_member_ids
        self._geometry_of: dict[int, LogGeometry] = {}

        self.election: Election | None = None
        self.publication: LogPublication | None = None
        self.subscription: LogSubscription | None = None
        self.streams = LogStreams(links)
        self.requests = ClientRequests(self)
        self.replica = ReplicatedState(context, self.requests, authenticator)
        self.log = MemberLog(context, files, counters, self.replica, LogEntries(self))
        self.services = ServiceAdapter(self, tuple(service_channels))
        self.egress = EgressPublisher(clients, self.replica.sessions.table, tuple(service_channels))
        self.ingress_adapter = IngressAdapter(self)
        self.election_actions = ElectionActions(self)
        self.messages = MemberMessages(self)
        self.leading: Leading | None = None
        self.following: Following | None = None
        self.snapshots = SnapshotTaker(self)
        self.digests = SnapshotDigests(context.member_id, links, self.on_error)
        self.replications = SnapshotReplications(self)
        self.retention = Retention(
            context, files.archive, self.log, self.streams, tuple(needed_positions), on_event
        )
        self.fetching = FetchedLogSync()
        self.termination = Termination(self)
        self.slow_tick = SlowTick(self)
        self.waking = Waking(self)
        self.repair = Repair(
            context,
            files,
            Peers(self.other_ids, self.gone_member_ids, links),
            on_event,
            distrusts_log=distrusts_log,
        )
        self.promise_keeper = PromiseKeeper(self)
        self._consensus_adapter = ConsensusAdapter(self)
        self._tracker = DutyCycleStallTracker(counters, context.cycle_threshold_ns)
        self._slow_tick_ns = 0
        self._is_node_startup = True

    # ---- the duty cycle

    def on_start(self, now_ns: int, cluster_time: int) -> None:
        """Recover from the disk and let the services start; the first election follows their acks.

        A damaged log is mended first, if others can, in the turns to come. Raises LogDamaged, DataLoss,
        StorageError, as ``do_work`` may then.
        """
        self.now_ns = now_ns
        self.replica.advance_time(cluster_time)
        self._tracker.update(now_ns)
        self._slow_tick_ns = now_ns
        self.presence.start(now_ns)
        self.promise_keeper.begin()
        self.repair.begin(now_ns)
        if self.repair.mending is None:
            self._recover()

    def _recover(self) -> None:
        recovered = recover(
            self.archive,
            self.log.recording_log,
            self.context,
            self.snapshots.archive,
            self.tell,
            is_refilled=self.repair.is_needed,
        )
        if recovered.cut_bytes:
            self.tell(f"an interrupted truncation was finished: {recovered.cut_bytes} bytes cut")
        self.promise_keeper.on_recovered(recovered.append_position)
        self.log.start(recovered.recording, recovered.log_position)
        recovery_state = RecoveryState(log_position=recovered.log_position)
        if recovered.snapshot is not None:
            recovery_state = self.snapshots.load(recovered.snapshot)
        self.services.start(recovery_state, self._on_services_started)

    def _on_services_started(self, acks: Sequence[object]) -> None:
        for ack in acks:
            if getattr(ack, "relevant_id", 0) == NULL_VALUE:
                raise AgentTermination("a service failed to start")
        self._begin_election("start")
        self._is_node_startup = False
        self.set_module_state(ConsensusModuleState.ACTIVE)

    def do_work(self, now_ns: int, cluster_time: int) -> int:
        """Take one turn; returns how much was done, 0 lets the runner wait."""
        self.now_ns = now_ns
        self.replica.advance_time(cluster_time)
        gap_ns = self._tracker.measure_and_update(now_ns)
        if self.is_closed:
            return 0
        if gap_ns >= self.context.lease_ns and self.repair.mending is None:
            self.waking.on_gap(gap_ns)
        work_count = 0
        if now_ns >= self._slow_tick_ns:
            done = self.slow_tick.do_work()
            self._slow_tick_ns = now_ns + (1 if done else self.context.slow_tick_interval_ns)
            work_count += done
        heard = self.links.poll(self._consensus_adapter)
        if self.repair.mending is not None:
            if self.repair.mend(now_ns):
                self._recover()
            return work_count + heard
        work_count += heard + self.publish_egress() + self.replications.server.do_work()
        if self.waking.is_looking_around:
            self.waking.on_polled(heard)
        if self.election is not None:
            work_count += self._election_work()
        elif self.leading is not None:
            if not self.waking.is_looking_around:
                work_count += self.leading.do_work()
        elif self.following is not None:
            work_count += self.following.do_work()
        return work_count + self.services.poll()

    def check_quorum(self) -> int:
        """A leader that no majority has reported to for the heartbeat timeout is none any more (C-17).

        Not while services take a snapshot that is committed, nor at the end; but one whose action was
        never heard of would wait for it for ever.
        """
        leading, module = self.leading, self.replica.module
        may_leave = module.reads_log or module.has_uncommitted
        if leading is None or not may_leave or leading.leader.has_active_quorum(self.now_ns):
            return 0
        self.enter_election("inactive follower quorum")
        return 1

    def publish_egress(self) -> int:
        """Send what services have answered; a runner that calls it behind the services spares them a turn."""
        return self.egress.poll(self.replica.leadership_term_id, is_leader=self.leading is not None)

    def hasten_slow_tick(self) -> None:
        """Something waits for the slow tick: let the next turn take it."""
        self._slow_tick_ns = min(self._slow_tick_ns, self.now_ns + 1)

    def next_deadline_ns(self) -> int:
        """When the next turn is due although no socket has anything."""
        return self._slow_tick_ns

    @property
    def is_closed(self) -> bool:
        """The member ended as it was asked to."""
        return self.replica.module.state is ConsensusModuleState.CLOSED

    def close(self) -> None:
        """End now: services are told, the recording stops at what is written, the directory starts again."""
        if self.replica.module.state is not ConsensusModuleState.CLOSED:
            if self.leading is not None:
                self.leading.close_log()
            self.services.terminate(self.log.commit_position, None)
            self.set_module_state(ConsensusModuleState.CLOSED)
        self.log.stop(self.now_ms)

    @property
    def now_ms(self) -> int:
        """Cluster time in milliseconds, for what the protocol keeps in them."""
        return self.replica.cluster_time * 1000 // self.context.time_unit.per_second

    # ---- elections

    def enter_election(self, reason: str, graceful_closed_leader_id: int = NULL_VALUE) -> None:
        """End what is established; one election cycle runs at once."""
        if self.election is not None:
            return
        self._begin_election(reason, graceful_closed_leader_id)
        self._election_work()

    def _begin_election(self, reason: str, graceful_closed_leader_id: int = NULL_VALUE) -> None:
        self.tell(f"enters an election: {reason}")
        time_of_last_leader_message_ns = self.now_ns
        if self.following is not None:
            time_of_last_leader_message_ns = self.following.follower.time_of_last_leader_message_ns
        self.leading = self.following = None
        self.counters.election_count.get_and_add(1)
        self.counters.election_state.set(ElectionState.INIT)
        self.election = Election(
            self.context,
            self.members,
            leadership_terms(self.log.recording_log),
            self.promise_keeper.promises,
            self.random,
            candidate_term_id=self.node_state.candidate_term_id,
            log_position=self.log.commit_position,
            append_position=self.log.append_position,
            log_recording_id=NULL_VALUE if self.log.recording is None else self.log.recording.recording_id,
            is_node_startup=self._is_node_startup,
            acknowledged_end=self.repair.acknowledged_end,
            graceful_closed_leader_id=graceful_closed_leader_id,
            time_of_last_leader_message_ns=time_of_last_leader_message_ns,
            gone_member_ids=self.gone_member_ids,
        )
        self.election.is_module_in_snapshot = self.replica.module.state is ConsensusModuleState.SNAPSHOT

    def carry_out(self, actions: list[Action]) -> None:
        """Do what the election wants; what fails begins it anew, unless it ends the member."""
        try:
            self.election_actions.carry_out(actions)
        except FATAL:
            raise
        except ClusterError as error:
            self.on_election_error(error)

    def _election_work(self) -> int:
        election = self.election
        assert election is not None
        work_count = 0
        try:
            if self.replications.current is not None:
                return self.replications.current.do_work()  # the election rests
            recording = self.log.recording
            if recording is not None and recording.is_active:
                work_count += self.fetching.sync(recording, self.now_ns)
                election.on_append_position(recording.synced_position, self.now_ns)
            if election.state is ElectionState.FOLLOWER_CATCHUP:
                # Ahead of the question whether it is level: under a steady load each turn brings a commit.
                work_count += self.process_log(
                    min(election.effective_commit_position, election.append_position),
                    self.context.replay_limit_per_poll,
                )
            work_count += self.election_actions.carry_out(
                election.do_work(self.now_ns, self.replica.cluster_time)
            )
            if self.election is election:
                if self.election_actions.log_replay is not None:
                    work_count += self.election_actions.log_replay.do_work()
                if self.subscription is not None and not self.subscription.is_requested:
                    self.messages.request_log()
            work_count += self.streams.do_work()
        except FATAL:
            raise
        except ClusterError as error:
            self.on_election_error(error)
            work_count += 1
        return work_count

    def on_election_error(self, error: ClusterError) -> None:
        """What the election was about failed: it begins anew."""
        self.on_error(error)
        self.replications.abort()
        if self.election is not None:
            self.election_actions.carry_out(
                self.election.on_error(str(error), self.log.commit_position, self.now_ns)
            )

    def prepare_for_new_leadership(self, log_position: int) -> int:
        """Undo what is not committed; returns where the recording has stopped, synced."""
        assert log_position == self.log.commit_position == self.log.adapter.position
        self.leading = self.following = None
        self.publication = None
        self.subscription = None
        self.streams.clear()
        self.election_actions.stop_replay()
        self.termination.reset()
        self.counters.control_toggle.set(ClusterControlToggle.INACTIVE)
        self.services.close_log(log_position)
        self.log.stop(self.now_ms)
        self.replica.restore_uncommitted(log_position, self.now_ns)
        self.snapshots.restore_uncommitted()
        self.show_module_state()
        return self.log.append_position

    def complete_election(self, action: CompleteElection) -> None:
        """Lead or follow from now on."""
        election = self.election
        assert election is not None
        self.election = None
        self.promise_keeper.on_elected()
        self.repair.finish(action.leader_member_id, self.log)
        self.replica.enter_term(action.leadership_term_id)
        self.counters.leadership_term_id.set(action.leadership_term_id)
        if action.leader_member_id == self.context.member_id:
            self.leading = Leading(self, action, election)
            sessions = self.replica.sessions
            sessions.prepare_for_new_term(self.replica.cluster_time, is_startup=action.is_leader_startup)
            sessions.table.take_touched()
            self.counters.control_toggle.set(ClusterControlToggle.NEUTRAL)
        else:
            self.following = Following(self, action)
        if self.counters.node_control_toggle.get() == NodeControlToggle.INACTIVE:
            self.counters.node_control_toggle.set(NodeControlToggle.NEUTRAL)
        self.counters.election_state.set(ElectionState.CLOSED)

    # ---- state that is shown

    def set_role(self, role: Role) -> None:
        if role is not self.role:
            self.tell(f"role {self.role.name} -> {role.name}")
            self.role = role
            self.counters.node_role.set(role)

    def set_module_state(self, state: ConsensusModuleState) -> None:
        before = self.replica.module.state
        self.replica.module.change(state)
        self.on_module_state_changed(before)

    def on_module_state_changed(self, before: ConsensusModuleState) -> None:
        """The module's state is another than ``before``, or was confirmed."""
        state = self.replica.module.state
        if state is not before:
            self.tell(f"module {before.name} -> {state.name}")
        self.show_module_state()

    def show_module_state(self) -> None:
        state = self.replica.module.state
        self.counters.module_state.set(state)
        if self.election is not None:
            self.election.is_module_in_snapshot = state is ConsensusModuleState.SNAPSHOT

    def on_error(self, error: Exception) -> None:
        """Something went wrong that does not end the member."""
        self.counters.errors.get_and_add(1)
        self._on_error(error)

    @property
    def leader_member_id(self) -> int:
        """As known, -1 while an election runs."""
        if self.leading is not None:
            return self.context.member_id
        return NULL_VALUE if self.following is None else self.following.follower.leader_member_id

    @property
    def active_publication(self) -> LogPublication | None:
        """Where ingress goes; None while this member does not lead, or takes none."""
        if self.leading is None or not self.replica.module.is_active:
            return None
        publication = self.publication
        return None if publication is None or publication.is_full else publication

    # ---- the log

    def process_log(self, limit: int, length: int = 1) -> int:
        """``MemberLog.process``, and an election hears how far."""
        moved = self.log.process(limit, length)
        if moved and self.election is not None:
            self.election.on_log_position(self.log.commit_position, self.now_ns)
        return moved

    def log_recording(self) -> Recording:
        """The log's recording; made when there is none, for the election that asks for it."""
        if self.log.recording is not None:
            return self.log.recording
        election = self.election
        if election is None:
            return self.log.create(NULL_VALUE, None)
        geometry = self._geometry_of.get(election.leader_member_id)
        recording = self.log.create(election.log_session_id, geometry)
        election.on_log_created(recording.recording_id)
        return recording

    def active_recording(self, log_session_id: int) -> Recording:
        """The log's recording, being written under this session."""
        self.log_recording()
        return self.log.extend(log_session_id, self.now_ms)

    def on_log_geometry(self, member_id: int, geometry: LogGeometry) -> None:
        self._geometry_of[member_id] = geometry

    # ---- links

    def on_link_up(self, member_id: int) -> None:
        self.presence.on_seen(member_id)
        self.promise_keeper.on_link_up(member_id)
        if self.election is not None:
            self.carry_out(self.election.on_link_up(member_id, self.now_ns))
        subscription = self.subscription
        if subscription is not None and subscription.leader_member_id == member_id:
            self.messages.request_log()

    def on_link_down(self, member_id: int) -> None:
        """A hint: what came over the link proves nothing any more, and its streams are cut."""
        self.streams.stop(member_id)
        self.members[member_id].clear_report()
        self.promise_keeper.on_link_down(member_id)
        if self.repair.mending is not None:
            self.repair.mending.on_link_down(member_id)
        subscription = self.subscription
        if subscription is not None and subscription.leader_member_id == member_id:
            subscription.has_image = subscription.is_requested = False
        if (error := self.replications.on_link_down(member_id)) is not None:
            self.on_election_error(error)
        if self.election is not None:
            self.carry_out(self.election.on_link_down(member_id, self.now_ns))
        elif self.leading is not None:
            self.leading.leader.on_link_down(member_id)

    def on_member_gone(self, member_id: int) -> None:
        """No process listens for the member; if one did before, it is dead."""
        if not self.presence.on_refused(member_id):
            return
        self.tell(f"member {member_id} is gone")
        if self.election is not None:
            self.carry_out(self.election.on_member_gone(member_id, self.now_ns))
        elif (
            self.following is not None
            and self.following.follower.leader_member_id == member_id
            and not self.termination.is_near
        ):
            self.enter_election(f"leader {member_id} is gone")
