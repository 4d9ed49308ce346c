"""The member's snapshots: when they are taken, and which one a start loads.

    SNAPSHOT in the log, committed        module state SNAPSHOT: nothing moves behind this position
      services ── ServiceAck(recording id) ── all at the position
      the module's own recording          sessions, timers, pending messages of the services
      log synced, then recording.log      services from the highest id to 0, then the module: it counts now
    module state ACTIVE

A snapshot that cannot be taken costs nothing but itself: there are no entries, and the log goes on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.archive.recording_log import RecordingLog
from cluster.archive.snapshot_archive import SnapshotArchive, digest
from cluster.consensus.context import NULL_POSITION, NULL_VALUE, ConsensusModuleContext
from cluster.consensus.module_snapshot import MAX_I64, ModuleSnapshot
from cluster.errors import AgentTermination, ClusterError, LogDamaged, RemoteProtocolError, StorageError
from cluster.protocol import streams
from cluster.protocol.enums import ClusterControlToggle, ConsensusModuleState
from cluster.protocol.recording_log import CONSENSUS_MODULE_SERVICE_ID, SNAPSHOT, RecordingLogEntry
from cluster.protocol.service import ServiceAck
from cluster.protocol.snapshot import SnapshotChecksum, SnapshotRecording
from cluster.service.channel import RecoveryState

if TYPE_CHECKING:
    from cluster.member.agent import ConsensusModuleAgent


@dataclass(frozen=True, slots=True)
class LoadedSnapshot:
    """A whole snapshot, checked: the module's content, and the entries of module and services."""

    module: ModuleSnapshot
    entries: tuple[RecordingLogEntry, ...]  # the module's, then of services 0, 1, …

    @property
    def log_position(self) -> int:
        return self.entries[0].log_position

    @property
    def timestamp(self) -> int:
        return self.entries[0].timestamp

    def recovery_state(self) -> RecoveryState:
        """What the services are told to start from."""
        return RecoveryState(
            self.entries[0].leadership_term_id,
            self.log_position,
            self.timestamp,
            tuple(entry.recording_id for entry in self.entries[1:]),
        )


class SnapshotTaker:
    """Takes the snapshots that the log asks for; ``position`` is that of the one being taken."""

    def __init__(self, agent: "ConsensusModuleAgent") -> None:
        self._agent = agent
        self._replica = agent.replica
        self.archive = SnapshotArchive(
            agent.archive, term_length=agent.context.log_term_length, mtu=agent.context.log_mtu
        )
        self.position = NULL_POSITION
        self._timestamp = 0
        self._begin_ns = 0
        self._module_digest = 0  # of the state in the snapshot taken last

    # ---- the action in the log

    def on_appended(self, log_position: int) -> None:
        """The leader wrote the action; nothing is taken before it is committed."""
        self.position = log_position
        self._timestamp = self._replica.cluster_time
        self._begin_ns = self._agent.now_ns

    def on_committed(self, commit_position: int) -> None:
        """On the leader: let the services take theirs, once, when the action is committed."""
        if self.position != NULL_POSITION and commit_position >= self.position:
            self._await_services()

    def on_read(self, log_position: int, timestamp: int) -> None:
        """Anywhere else: the action was read from the committed log, and the module's state is SNAPSHOT."""
        self.position, self._timestamp = log_position, timestamp
        self._begin_ns = self._agent.now_ns
        self._await_services()

    def restore_uncommitted(self) -> None:
        """Leadership is lost, and with it an action that was not committed."""
        self.position = NULL_POSITION

    def _await_services(self) -> None:
        position, self.position = self.position, NULL_POSITION
        timestamp = self._timestamp
        self._agent.services.await_acks(position, lambda acks: self._on_acked(position, timestamp, acks))

    # ---- all services have theirs

    def _on_acked(self, log_position: int, timestamp: int, acks: list[ServiceAck]) -> None:
        agent = self._agent
        taken = [ack.relevant_id for ack in acks if ack.relevant_id != NULL_VALUE]
        if any(
            entries[0].log_position == log_position
            for entries in agent.log.recording_log.snapshot_sets(agent.context.service_count)
        ):
            agent.tell(f"the snapshot at {log_position} is there already, from before this replay")
        elif len(taken) < len(acks):
            agent.tell(f"no snapshot at {log_position}: a service took none")
        else:
            module_id = self._take(log_position, taken)
            if module_id is not None:
                self._record(log_position, timestamp, [*taken, module_id])
                agent.digests.on_taken(log_position, self._module_digest, agent.leader_member_id)
                taken = []
        for recording_id in taken:
            self._discard(recording_id)
        self._finish(log_position)

    def _take(self, log_position: int, service_recording_ids: list[int]) -> int | None:
        """Record the module's own state; None, and told, when that failed."""
        agent, archive = self._agent, self.archive
        publication = None
        try:
            recordings = [
                SnapshotRecording(
                    service_id, archive.open(recording_id).length, archive.checksum(recording_id)
                )
                for service_id, recording_id in enumerate(service_recording_ids)
            ]
            publication = archive.create(
                streams.CONSENSUS_MODULE_SNAPSHOT, CONSENSUS_MODULE_SERVICE_ID, log_position
            )
            for record in self._replica.snapshot_records(log_position, recordings):
                publication.offer(record)
            self._module_digest = 0
            for record in self._replica.records():
                self._module_digest = digest(record, self._module_digest)
            publication.offer(SnapshotChecksum(publication.flush()).encode())
            return archive.complete(publication)
        except ClusterError as error:
            agent.on_error(ClusterError(f"no snapshot at {log_position}: {error}"))
            if publication is not None:
                self._discard(publication.recording_id)
            return None

    def _record(self, log_position: int, timestamp: int, recording_ids: list[int]) -> None:
        """Write the entries down; the log up to the snapshot is safe before they are.

        Raises StorageError: then the member cannot go on.
        """
        agent = self._agent
        if agent.log.recording is not None and agent.log.recording.is_active:
            agent.log.recording.sync()
        term = agent.log.recording_log.find_term(self._replica.leadership_term_id)
        assert term is not None
        # The module's recording is the last; as service -1 it follows service 0.
        for service_id in range(len(recording_ids) - 2, CONSENSUS_MODULE_SERVICE_ID - 1, -1):
            agent.log.recording_log.append_snapshot(
                recording_ids[service_id],
                term.leadership_term_id,
                term.term_base_log_position,
                log_position,
                timestamp,
                service_id,
            )
        counters = agent.counters
        counters.snapshot_count.get_and_add(1)
        duration_ns = agent.now_ns - self._begin_ns
        if duration_ns > counters.max_snapshot_duration_ns.get():
            counters.max_snapshot_duration_ns.set(duration_ns)
        if duration_ns > agent.context.total_snapshot_threshold_ns:
            counters.snapshot_duration_exceeded.get_and_add(1)
        agent.tell(f"snapshot at {log_position}: recordings {recording_ids}")

    def _finish(self, log_position: int) -> None:
        agent = self._agent
        # Nobody could keep alive meanwhile (C-296).
        self._replica.sessions.table.touch_all(self._replica.cluster_time)
        agent.set_module_state(ConsensusModuleState.ACTIVE)
        toggle = agent.counters.control_toggle
        if agent.leading is not None and toggle.get() == ClusterControlToggle.SNAPSHOT:
            toggle.set(ClusterControlToggle.NEUTRAL)
        agent.termination.on_snapshot_done(log_position)

    def load(self, snapshot: LoadedSnapshot) -> RecoveryState:
        """Take over what the module knew at a snapshot, at the start; the services are to do the same."""
        agent = self._agent
        agent.tell(f"starts from the snapshot at {snapshot.log_position}")
        recovery_state = snapshot.recovery_state()
        self._replica.load(
            snapshot.module,
            leadership_term_id=recovery_state.leadership_term_id,
            log_position=snapshot.log_position,
            timestamp=snapshot.timestamp,
        )
        agent.counters.leadership_term_id.set(recovery_state.leadership_term_id)
        return recovery_state

    def validate_entries(self) -> None:
        """Make entries invalid whose recording the archive does not know (Aeron: RecordingLogValidator)."""
        agent = self._agent
        for entry in list(agent.log.recording_log.entries):
            is_lost = not agent.archive.has_recording(entry.recording_id)
            if entry.entry_type is SNAPSHOT and entry.is_valid and is_lost:
                agent.tell(
                    f"the snapshot at {entry.log_position} of service {entry.service_id} is invalid: the "
                    f"archive has no recording {entry.recording_id}"
                )
                agent.log.recording_log.invalidate(entry)

    def _discard(self, recording_id: int) -> None:
        try:
            self.archive.discard(recording_id)
        except StorageError as error:
            self._agent.on_error(error)


# ---- which one to load


def find_snapshot(
    recording_log: RecordingLog,
    archive: SnapshotArchive,
    context: ConsensusModuleContext,
    *,
    from_position: int,
    to_position: int = MAX_I64,
    tell: Callable[[str], None],
) -> LoadedSnapshot | None:
    """The newest snapshot that is whole, not before ``from_position``, where the log begins.

    None behind ``to_position`` is looked at. One that is damaged is made invalid in recording.log, so that it
    is not believed again. Raises AgentTermination for one of another app version or time unit (C-317),
    StorageError.
    """
    for entries in recording_log.snapshot_sets(context.service_count):
        log_position = entries[0].log_position
        if log_position > to_position:
            continue
        if log_position < from_position:
            tell(f"the snapshot at {log_position} is of no use: the log begins at {from_position}")
            continue
        try:
            module = read_snapshot(archive, entries)
        except (LogDamaged, RemoteProtocolError) as error:
            tell(f"the snapshot at {log_position} is damaged, it is not loaded: {error}")
            for entry in entries:
                recording_log.invalidate(entry)
            continue
        place = module.place
        assert place is not None
        if place.app_version >> 16 != context.app_version >> 16 or place.time_unit is not context.time_unit:
            raise AgentTermination(
                f"the snapshot at {log_position} is of app version {place.app_version:#x} and counts time in "
                f"{place.time_unit.name}, this member has {context.app_version:#x} and "
                f"{context.time_unit.name}"
            )
        return LoadedSnapshot(module, entries)
    return None


def read_snapshot(archive: SnapshotArchive, entries: tuple[RecordingLogEntry, ...]) -> ModuleSnapshot:
    """The content of the module's recording, once all recordings of the set are known to be whole.

    Raises LogDamaged, RemoteProtocolError.
    """
    module = ModuleSnapshot()
    image = archive.open(entries[0].recording_id)
    archive.checksum(entries[0].recording_id)  # every frame is in its place
    begin = image.position
    for record in image:
        module.on_record(record)
        if module.checksum is not None:
            if archive.checksum(entries[0].recording_id, begin) != module.checksum:
                raise LogDamaged(None, None, f"checksum mismatch in recording {entries[0].recording_id}")
            break
        begin = image.position
    if not module.is_whole:
        raise LogDamaged(None, None, f"recording {entries[0].recording_id} has no end marker")
    place = module.place
    assert place is not None
    # A recording log that was seeded from a snapshot has it at position 0 of a new log.
    if entries[0].log_position not in (place.log_position, 0):
        raise LogDamaged(None, None, f"recording {entries[0].recording_id} is of {place.log_position}")
    for service_id, entry in enumerate(entries[1:]):
        expected = module.recordings.get(service_id)
        length, checksum = archive.open(entry.recording_id).length, archive.checksum(entry.recording_id)
        if expected is not None and (expected.length, expected.checksum) != (length, checksum):
            raise LogDamaged(
                None, None, f"recording {entry.recording_id} of service {service_id} is not what was taken"
            )
    return module
