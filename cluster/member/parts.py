"""What a member is made of: each part with what it reaches, from the log up; no part reaches the agent.

log        MemberLog, LogSender and LogRequests, LogProcessing, Retention
disk       MemberHistories, Repair, IdentityKeeper, PromiseKeeper, SnapshotServer, StandbySnapshots,
           MissedSnapshots
clients    SessionOutlet, ClientRequests, BackupSessions, Supervision, EgressPublisher, IngressAdapter
services   ServiceAdapter, SnapshotTaker, SnapshotDigests, Termination
phases     made by the agent when they are entered; what they reach of this is in their ports
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from random import Random

from cluster.archive.snapshot_archive import SnapshotArchive
from cluster.consensus.authentication import Security
from cluster.consensus.backup_sessions import BackupSessions
from cluster.consensus.cluster_member import MemberTable
from cluster.consensus.context import ConsensusModuleContext
from cluster.consensus.election import Election
from cluster.consensus.replica import ReplicatedState
from cluster.consensus.session_events import KnownLeader
from cluster.member.admission import Admission
from cluster.member.clients.backup_source import BackupSource
from cluster.member.clients.client_requests import ClientRequests
from cluster.member.clients.egress_publisher import EgressPublisher
from cluster.member.clients.ingress_adapter import IngressAdapter
from cluster.member.clients.session_outlet import SessionOutlet
from cluster.member.clients.supervision import Supervision
from cluster.member.clocks import MemberClocks
from cluster.member.control import NodeControl, Toggles
from cluster.member.counters import MemberCounters
from cluster.member.disk.histories import MemberHistories
from cluster.member.disk.identity_keeper import IdentityKeeper
from cluster.member.disk.member_files import MemberFiles
from cluster.member.disk.missed_snapshots import MissedSnapshots
from cluster.member.disk.promise_keeper import PromiseKeeper
from cluster.member.disk.repair import Repair
from cluster.member.disk.snapshot_replication import ReplicationPorts
from cluster.member.disk.snapshot_server import SnapshotServer
from cluster.member.disk.standby_snapshots import StandbySnapshots
from cluster.member.frames import consensus_frame
from cluster.member.liveness import Liveness
from cluster.member.log.member_log import MemberLog
from cluster.member.log.processing import LogProcessing
from cluster.member.log.requests import LogRequests
from cluster.member.log.retention import NeededPosition, Retention
from cluster.member.log.room import LogRoom
from cluster.member.log.sender import LogSender
from cluster.member.log.streams import LogStreams
from cluster.member.log.sync_pacing import FetchedLogSync
from cluster.member.phases.leader_control import LeaderControl
from cluster.member.phases.leadership_transfer import LeadershipTransfer
from cluster.member.ports import Clients, FetchRecordings, Links, Peers
from cluster.member.reporter import Reporter
from cluster.member.services.service_adapter import ServiceAdapter
from cluster.member.services.snapshot_digests import SnapshotDigests
from cluster.member.services.snapshot_policy import SnapshotPolicy
from cluster.member.services.snapshot_taker import SnapshotTaker
from cluster.member.services.termination import Termination
from cluster.member.status import MemberStatus
from cluster.member.turn import Turn
from cluster.member.unrelated import Unrelated
from cluster.protocol.enums import ConsensusModuleState
from cluster.protocol.link import PartDigest
from cluster.protocol.session import ChallengeResponse
from cluster.service.channel import ServiceChannel
from cluster.transport.server import Heard


class Parts:
    """The parts of one member. ``find_election``: the election that runs or rests, if any."""

    def __init__(
        self,
        context: ConsensusModuleContext,
        *,
        files: MemberFiles,
        links: Links,
        clients: Clients,
        channels: tuple[ServiceChannel, ...],
        counters: MemberCounters,
        random: Random,
        security: Security,
        needed_positions: tuple[NeededPosition, ...],
        fetch_recordings: FetchRecordings,
        turn: Turn,
        reporter: Reporter,
        distrusts_log: bool,
        find_election: Callable[[], Election | None],
    ) -> None:
        self.context = context
        self.files = files
        self.links = links
        self.clients = clients
        self.counters = counters
        self.node_state = files.node_state
        self.election_state = counters.election_state
        self.timed_out_clients = counters.timed_out_clients
        self.request_ids: Iterator[int] = count(1)
        self.fetched_log_sync = FetchedLogSync()
        self.without_snapshot: set[int] = set()
        self.turn = turn
        self.reporter = reporter
        self._find_election = find_election
        self.members = MemberTable(context.member_ids)
        self.liveness = Liveness(context.leader_heartbeat_timeout_ns)
        other_ids = [member_id for member_id in context.member_ids if member_id != context.member_id]
        self.peers = Peers(other_ids, self.liveness.gone_member_ids, links)
        self.unrelated = Unrelated(reporter)
        self._build_log(security, needed_positions)
        self._build_disk(random, fetch_recordings, distrusts_log=distrusts_log)
        self._build_clients(security, channels)
        self._build_services(channels)
        self.admission = Admission(
            context.app_version,
            self.log,
            self.replica,
            self.status,
            self.promise_keeper,
            self.termination,
            self.present_leader,
        )
        self.control = LeaderControl(
            self.toggles,
            self.log,
            self.replica,
            self.status,
            self.snapshots,
            self.termination,
            SnapshotPolicy(context, self.log, self.replica, self.room, self.toggles, self.services, reporter),
            self.transfer,
            reporter,
        )

    def _build_log(self, security: Security, needed_positions: tuple[NeededPosition, ...]) -> None:
        context, files, links, reporter = self.context, self.files, self.links, self.reporter
        self.log = MemberLog(context, files.archive, files.recording_log, self.counters)
        self._outlet = SessionOutlet(
            self.clients,
            self.log,
            lambda: (self.replica.leadership_term_id, self.replica.cluster_time),
            security,
            context,
        )
        self.replica = ReplicatedState(context, self._outlet, security)
        self.clocks = MemberClocks(context, self.replica, self.peers, self.turn, self.counters, reporter)
        self.status = MemberStatus(context.member_id, self.replica, self.counters, reporter)
        self.log_sender = LogSender(self.log, LogStreams(links, self.members), links, reporter)
        self.log_requests = LogRequests(self.log, links, reporter)
        archive = files.archive
        space = partial(archive.files.space, archive.directory)
        self.room = LogRoom(context, self.log, space, self.counters.log_room, reporter)
        self.retention = Retention(
            context,
            archive,
            self.log,
            self.log_sender.streams,
            self.room,
            needed_positions,
            lambda: self.replica.sessions.consumers.slowest(self.replica.cluster_time),
            reporter.event,
        )

    def _build_disk(self, random: Random, fetch: FetchRecordings, *, distrusts_log: bool) -> None:
        context, files, reporter = self.context, self.files, self.reporter
        self.histories = MemberHistories(
            context, files, self.log, self.peers, self.unrelated, reporter, self._find_election
        )
        self.repair = Repair(context, files, self.peers, reporter.event, distrusts_log=distrusts_log)
        self.promise_keeper = PromiseKeeper(
            context,
            files,
            self.peers,
            self.repair,
            IdentityKeeper(context, files, reporter.event),
            self.unrelated,
            self.log,
            self.replica,
            random,
            self.counters.awaited_members,
            reporter,
            self._find_election,
        )
        self.snapshot_server = SnapshotServer(
            context, files.archive, self.log, self.repair, self.links, self.turn
        )
        self.standby_snapshots = StandbySnapshots(
            context, self.log, files.archive, self.counters, fetch, reporter
        )

    def _build_clients(self, security: Security, channels: tuple[ServiceChannel, ...]) -> None:
        context, files, replica = self.context, self.files, self.replica
        self.toggles = Toggles(self.counters)
        self.node_control = NodeControl(
            self.toggles, files.recording_log, files.archive, self.standby_snapshots, self.reporter
        )
        self.supervision = Supervision(context, replica, self.clients, self.peers)
        self.egress = EgressPublisher(self.clients, replica, self.status, channels, self.supervision)
        self.requests = ClientRequests(
            context,
            self._outlet,
            replica,
            self.status,
            self.egress,
            self.toggles,
            security.authorisation,
            self.room,
            self.turn,
        )
        source = BackupSource(
            context,
            self.log,
            self.status,
            self.counters.commit_position,
            self.standby_snapshots.on_announced,
        )
        self.backups = BackupSessions(context, replica.sessions, source)
        self.ingress = IngressAdapter(
            context,
            self.clients,
            replica,
            self.requests,
            self.backups,
            self.turn,
            self._forward_challenge_response,
        )

    def _forward_challenge_response(self, response: ChallengeResponse) -> None:
        if self.status.is_following:
            self.links.send(self.status.leader_member_id, consensus_frame(response))

    def _build_services(self, channels: tuple[ServiceChannel, ...]) -> None:
        context, reporter = self.context, self.reporter
        self.digests = SnapshotDigests(context.member_id, self.links, reporter.error)
        self.services = ServiceAdapter(context, self.replica, channels, self.requests, self.egress.poll)
        self.termination = Termination(
            context,
            self.members,
            self.peers,
            self.log,
            self.replica,
            self.status,
            self.services,
            self.turn,
            reporter,
        )
        self.transfer = LeadershipTransfer(
            context,
            self.members,
            self.peers,
            self.log,
            self.replica,
            self.status,
            self.toggles,
            self.services,
            reporter,
        )
        archive = SnapshotArchive(
            self.files.archive, term_length=context.log_term_length, mtu=context.log_mtu
        )
        self.snapshots = SnapshotTaker(
            context,
            archive,
            self.log,
            self.replica,
            self.services,
            self.counters,
            self.turn,
            reporter,
            self._on_snapshot_captured,
            self._on_snapshot_done,
        )
        self.replication_ports = ReplicationPorts(
            context, self.files.archive, self.log, self.links, self.turn, reporter
        )
        self.missed_snapshots = MissedSnapshots(self.room, self.status, self.replication_ports)
        self.processing = LogProcessing(
            self.log,
            self.replica,
            self.counters.leadership_term_id,
            self.status.on_module_changed,
            self.snapshots.on_read,
        )

    # ---- what the phases reach

    def poll_clients(self) -> int:
        return self.clients.poll(self.ingress)

    def greet_clients(self, heard: Heard) -> int:
        return self.clients.greet(self.ingress, heard)

    # ---- what concerns several of them

    def present_leader(self) -> KnownLeader:
        """Who is led or followed, in an election too."""
        election = self._find_election()
        if election is not None:
            return KnownLeader(election.leadership_term_id, election.leader_member_id)
        return KnownLeader(self.replica.leadership_term_id, self.status.leader_member_id)

    def leave(self, log_position: int) -> None:
        """Undo what an earlier leadership left: the log stops, and what is not committed was never done."""
        assert log_position == self.log.commit_position == self.processing.position
        self.log_sender.streams.clear()
        self.termination.reset()
        self.transfer.reset()
        self.toggles.on_election()
        self.services.close_log(log_position)
        self.log.leave()
        self.supervision.reset()
        self.replica.restore_uncommitted(log_position, self.turn.now_ns)
        self.snapshots.restore_uncommitted()
        self.status.show_module()

    def _on_snapshot_captured(self, log_position: int) -> None:
        """The log goes on, with a snapshot or without; not after the leader's last one."""
        if not (self.status.is_leading and self.termination.position == log_position):
            self.status.set_module(ConsensusModuleState.ACTIVE)

    def _on_snapshot_done(self, log_position: int, digests: tuple[PartDigest, ...] | None) -> None:
        """The snapshot is whole, or there is none."""
        if digests is not None:
            self.digests.on_taken(log_position, digests, self.status.leader_member_id)
        if self.status.module is ConsensusModuleState.SNAPSHOT and not self.snapshots.is_holding:
            self.status.set_module(ConsensusModuleState.ACTIVE)
        self.toggles.on_snapshot_done(log_position)
        self.termination.on_snapshot_done(log_position, self.turn.now_ns)
