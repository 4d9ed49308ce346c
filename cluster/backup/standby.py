"""A standby: a backup that runs the clustered services on the log that it copies (Aeron: ClusterStandby).

    copied log ── LogProcessing ── ReplicatedState         sessions, timers, pending messages of services
         └─────── ServiceAdapter ── ServiceChannel ── services, as followers: nothing leaves them
    SNAPSHOT in the log, of any flags ── SnapshotTaker ── recording.log, as a member's own

The services begin at the newest snapshot that is here, or at the start of the log. They read what the backup
shows as committed, and no further. A standby has no vote, no clients and no links: what services offer is
dropped, or kept as every follower keeps it. Where the log is replaced by a later one, they begin again.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from cluster.archive.recording import Recording
from cluster.archive.snapshot_archive import SnapshotArchive
from cluster.backup.counters import StandbyCounters
from cluster.backup.directory import BackupDirectory
from cluster.consensus.context import NULL_VALUE, ConsensusModuleContext
from cluster.consensus.replica import ReplicatedState
from cluster.errors import AgentTermination
from cluster.member.clients.supervision import drain_egress
from cluster.member.disk.snapshots import LoadedSnapshot, find_snapshot
from cluster.member.log.processing import LogProcessing
from cluster.member.reporter import Reporter
from cluster.member.services.service_adapter import MAX_LOG_POSITION, ServiceAdapter
from cluster.member.services.snapshot_taker import SnapshotTaker
from cluster.member.turn import Turn
from cluster.protocol import streams
from cluster.protocol.enums import CloseReason, ConsensusModuleState, Role
from cluster.protocol.link import PartDigest
from cluster.protocol.service import ServiceAck
from cluster.service.channel import RecoveryState, ServiceChannel

BYTES_PER_TURN = 4 * 1024 * 1024


class StandbyService(Protocol):
    """A service of one life, on the other end of its channel."""

    def turn(self, now_ns: int, cluster_time: int) -> int: ...

    def close(self) -> None: ...


# Makes the services of one life, by their ids.
HostServices = Callable[["StandbyLife"], Sequence[StandbyService]]
# Called with the position of a snapshot that was taken.
OnSnapshotTaken = Callable[[int], None]


class Standby:
    """``life`` is that of the services, None before there is a log to begin with."""

    def __init__(
        self,
        context: ConsensusModuleContext,
        directory: BackupDirectory,
        counters: StandbyCounters,
        host: HostServices,
        *,
        on_event: Callable[[str], None],
        on_error: Callable[[Exception], None],
        on_snapshot: OnSnapshotTaken = lambda position: None,
    ) -> None:
        """``context`` is as the members', but for ``is_standby``."""
        assert context.is_standby
        self.life: StandbyLife | None = None
        self.directory = directory
        self.counters = counters
        self.host = host
        self.on_snapshot = on_snapshot
        self.reporter = Reporter(counters.errors, on_event, on_error)
        self._context = context

    def do_work(self, now_ns: int, *, is_retrieving: bool) -> int:
        """Take one turn. Raises LogDamaged, StorageError, and AgentTermination of services."""
        log = self.directory.log
        if self.life is not None and (log.is_replacement or log.recording is not self.life.recording):
            self.reporter.event("the services begin again: the log is another one")
            self.close()
        if self.life is None and log.recording is not None and not log.is_replacement:
            self._begin(log.recording, is_retrieving=is_retrieving)
        return 0 if self.life is None else self.life.do_work(now_ns, log.synced_position)

    def _begin(self, recording: Recording, *, is_retrieving: bool) -> None:
        directory, context = self.directory, self._context
        archive = SnapshotArchive(directory.archive, term_length=recording.term_length, mtu=recording.mtu)
        snapshot = find_snapshot(
            directory.recording_log,
            archive,
            context,
            from_position=recording.start_position,
            to_position=recording.synced_position,
            say=self.reporter.event,
        )
        if snapshot is None and (is_retrieving or recording.start_position > 0):
            return
        context = replace(context, log_term_length=recording.term_length, log_mtu=recording.mtu)
        self.life = StandbyLife(self, context, recording, archive, snapshot)

    def close(self) -> None:
        """End the services, in order."""
        if self.life is not None:
            life, self.life = self.life, None
            life.close()


class StandbyLife:
    """The services on one recording of the log, from one snapshot or from its beginning."""

    def __init__(
        self,
        standby: Standby,
        context: ConsensusModuleContext,
        recording: Recording,
        archive: SnapshotArchive,
        snapshot: LoadedSnapshot | None,
    ) -> None:
        self.context = context
        self.recording = recording
        self.recording_log = standby.directory.recording_log
        self.archive = archive
        self._standby = standby
        self.channels = tuple(ServiceChannel() for _ in range(context.service_count))
        nobody: Any = None  # no session here has a connection, and nothing is appended
        self.replica = ReplicatedState(context, nobody)
        self._turn = Turn()
        self._services = ServiceAdapter(context, self.replica, self.channels, self, self._keep_answers)
        self._snapshots = SnapshotTaker(
            context,
            archive,
            self,
            self.replica,
            self._services,
            standby.counters,
            self._turn,
            standby.reporter,
            self._be_active,
            self._on_taken,
        )
        self._processing = LogProcessing(
            self,
            self.replica,
            standby.counters.leadership_term_id,
            lambda before: None,
            self._snapshots.on_read,
        )
        recovery = self._load(snapshot)
        self._processing.start(recovery.log_position)
        self._services.start(recovery, self._on_started)
        self._hosted = standby.host(self)

    def _load(self, snapshot: LoadedSnapshot | None) -> RecoveryState:
        if snapshot is None:
            self._standby.reporter.event(f"the services begin at {self.recording.start_position}")
            return RecoveryState()
        self._standby.reporter.event(f"the services begin with the snapshot at {snapshot.log_position}")
        recovery = snapshot.load_into(self.replica)
        self._standby.counters.leadership_term_id.set(recovery.leadership_term_id)
        return recovery

    def _on_started(self, acks: list[ServiceAck]) -> None:
        if any(ack.relevant_id == NULL_VALUE for ack in acks):
            raise AgentTermination("a service failed to start")
        self._services.join_log(
            self.recording,
            log_position=self.position,
            max_log_position=MAX_LOG_POSITION,
            log_session_id=self.recording.session_id,
            log_stream_id=streams.LOG,
            is_startup=False,
            role=Role.FOLLOWER,
            on_acked=self._be_active,
        )

    def _be_active(self, _: object) -> None:
        """The log is read from now on: a snapshot in it is acknowledged after the join, and was captured."""
        self.replica.module.change(ConsensusModuleState.ACTIVE)

    @property
    def position(self) -> int:
        """How far the log is processed: the services may read up to here, and do not pass a snapshot's."""
        return self._processing.position

    # ---- the turn

    def do_work(self, now_ns: int, committed: int) -> int:
        """Process what is committed, and let the services follow. Returns how much was done."""
        self._turn.begin(now_ns, 0)
        work_count = self._processing.process(committed, BYTES_PER_TURN)
        work_count += sum(service.turn(now_ns, self.replica.cluster_time) for service in self._hosted)
        work_count += self._keep_answers()
        work_count += self._services.poll(self.position)
        return work_count + self._snapshots.do_work()

    def commit(self, position: int) -> None:
        """The log is processed up to here."""
        self.replica.answers.prune()

    def _keep_answers(self) -> int:
        """Nobody is answered; answers to supervised sessions are kept, as every member does."""
        return sum(1 for _ in drain_egress(self.channels, self.replica.answers))

    # ---- what services ask of the sessions (``ServiceRequests``)

    def on_service_close_session(self, session_id: int) -> None:
        """Remembered, as on a follower (C-235)."""
        self.replica.sessions.mark_closing(session_id, CloseReason.SERVICE_ACTION)

    def on_service_failed(self, session_id: int, detail: str) -> None:
        """Its client hears it from the leader, whose service fails in the same way."""

    # ---- snapshots

    def _on_taken(self, log_position: int, digests: tuple[PartDigest, ...] | None) -> None:
        if digests is not None:
            self._standby.on_snapshot(log_position)

    def close(self) -> None:
        """End the services, in order."""
        for service in self._hosted:
            service.close()
