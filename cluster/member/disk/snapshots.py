"""Which snapshot a start loads: the newest one of which everything is there and whole."""

from collections.abc import Callable
from dataclasses import dataclass

from cluster.archive.archive import Archive
from cluster.archive.recording_log import RecordingLog
from cluster.archive.snapshot_archive import SnapshotArchive
from cluster.consensus.context import ConsensusModuleContext
from cluster.consensus.module_snapshot import MAX_I64, ModuleSnapshot
from cluster.consensus.replica import ReplicatedState
from cluster.errors import AgentTermination, LogDamaged, RemoteProtocolError
from cluster.protocol.recording_log import SNAPSHOT, RecordingLogEntry
from cluster.service.channel import RecoveryState


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

    def load_into(self, replica: ReplicatedState) -> RecoveryState:
        """Load the module's snapshot into ``replica``; returns what the services start from."""
        recovery = recovery_state(self.entries)
        replica.load(
            self.module,
            leadership_term_id=recovery.leadership_term_id,
            log_position=recovery.log_position,
            timestamp=recovery.timestamp,
        )
        return recovery


def recovery_state(entries: tuple[RecordingLogEntry, ...]) -> RecoveryState:
    """What services start from: ``entries`` are the module's, then those of services 0, 1, …"""
    module, *services = entries
    return RecoveryState(
        module.leadership_term_id,
        module.log_position,
        module.timestamp,
        tuple(entry.recording_id for entry in services),
    )


def find_snapshot(
    recording_log: RecordingLog,
    archive: SnapshotArchive,
    context: ConsensusModuleContext,
    *,
    from_position: int,
    to_position: int = MAX_I64,
    say: Callable[[str], None],
) -> LoadedSnapshot | None:
    """The newest snapshot that is whole, not before ``from_position``, where the log begins.

    None after ``to_position`` is looked at. One that is damaged is made invalid in recording.log, so that it
    is not believed again. Raises AgentTermination for one of another app version or time unit (C-317),
    StorageError.
    """
    for entries in recording_log.snapshot_sets(context.service_count):
        log_position = entries[0].log_position
        if log_position > to_position:
            continue
        if log_position < from_position:
            say(f"the snapshot at {log_position} is of no use: the log begins at {from_position}")
            continue
        try:
            module = read_snapshot(archive, entries)
        except (LogDamaged, RemoteProtocolError) as error:
            say(f"the snapshot at {log_position} is damaged, it is not loaded: {error}")
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


def check_newest(
    recording_log: RecordingLog, archive: SnapshotArchive
) -> tuple[RecordingLogEntry, ...] | None:
    """The newest, of however many services; None without one. Raises LogDamaged for one that is not whole."""
    newest = recording_log.latest_snapshot()
    if newest is None:
        return None
    services = [
        entry.service_id
        for entry in recording_log.entries
        if entry.entry_type is SNAPSHOT and entry.log_position == newest.log_position
    ]
    for entries in recording_log.snapshot_sets(max(services) + 1):
        read_snapshot(archive, entries)
        return entries
    return None


def read_fetched(name: str, archive: Archive, entries: tuple[RecordingLogEntry, ...]) -> ModuleSnapshot:
    """As ``read_snapshot``, of what has come from ``name``. Raises RemoteProtocolError for damage."""
    module = archive.recording(entries[0].recording_id)
    snapshots = SnapshotArchive(archive, term_length=module.term_length, mtu=module.mtu)
    try:
        return read_snapshot(snapshots, entries)
    except (LogDamaged, RemoteProtocolError) as error:
        place = f"its snapshot at {entries[0].log_position}"
        raise RemoteProtocolError(f"{name}: {place} is damaged: {error}") from None


def read_snapshot(archive: SnapshotArchive, entries: tuple[RecordingLogEntry, ...]) -> ModuleSnapshot:
    """The content of the module's recording of a whole set. Raises LogDamaged, RemoteProtocolError."""
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
