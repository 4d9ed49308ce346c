"""What a start finds on the disk, and what it makes of it (Aeron: RecordingLog.RecoveryPlan).

    recording.log       terms and snapshots: which term wrote what, where to begin
    the log's recording bytes, whose end the archive has found (or recovered)

node-state.dat and promises.dat say whether the member still knows its promises (promise_keeper.py).
"""

from collections.abc import Callable
from dataclasses import dataclass

from cluster.archive.archive import Archive
from cluster.archive.first_frame import keep_first_frame
from cluster.archive.recording import Recording
from cluster.archive.recording_log import RecordingLog
from cluster.archive.recording_log_tool import BACKUP_SUFFIX
from cluster.archive.snapshot_archive import STREAM_IDS, SnapshotArchive
from cluster.consensus.context import NULL_POSITION, ConsensusModuleContext
from cluster.consensus.leadership_terms import LeadershipTerm, LeadershipTerms
from cluster.errors import DataLoss
from cluster.member.disk.snapshots import LoadedSnapshot, find_snapshot
from cluster.protocol import streams
from cluster.protocol.link import LogGeometry, RecordingStatus
from cluster.protocol.recording_log import TERM, RecordingLogEntry

LOG_CHANNEL = "aeron:ipc?alias=log"


@dataclass(frozen=True, slots=True)
class Recovered:
    """Where a member stands when it starts."""

    recording: Recording | None
    log_position: int  # that the loaded state is of: the snapshot's position, else the log's start
    append_position: int
    cut_bytes: int  # of an interrupted truncation, finished now
    snapshot: LoadedSnapshot | None


def leadership_terms(recording_log: RecordingLog) -> LeadershipTerms:
    """The valid term entries, ascending."""
    return LeadershipTerms(
        LeadershipTerm(entry.leadership_term_id, entry.term_base_log_position, entry.log_position)
        for entry in recording_log.entries
        if entry.is_valid and entry.entry_type is TERM
    )


def recover(
    archive: Archive,
    recording_log: RecordingLog,
    context: ConsensusModuleContext,
    snapshots: SnapshotArchive,
    say: Callable[[str], None],
    *,
    is_refilled: bool = False,
) -> Recovered:
    """Make files and entries consistent, and return where to start: the newest snapshot, or the log's start.

    ``is_refilled``: the log was cut where it is damaged, and other members are to send the rest. Then
    recovery starts in what is left of the log, so that it becomes complete; until then the member has no
    vote. Otherwise a snapshot that is newer than the log replaces all of it: everything it covers was
    committed. Raises LogDamaged when the entries and the archive do not fit together, DataLoss when nothing
    is left to begin with, AgentTermination for a snapshot of another version, StorageError.
    """
    plan = recording_log.recovery_plan(context.service_count, archive.find_recording)
    drop_orphans(archive, recording_log, say)
    if plan.log is None:
        snapshot = find_snapshot(recording_log, snapshots, context, from_position=0, say=say)
        if snapshot is None:
            return Recovered(None, 0, 0, 0, None)
        recording = begin_log_at(archive, recording_log, snapshot.entries, _new_geometry(context))
        return Recovered(recording, snapshot.log_position, recording.append_position, 0, snapshot)

    recording = archive.recording(plan.log.recording_id)
    append_position = recording.append_position
    cut_bytes = 0
    end = plan.log.log_position
    if end != NULL_POSITION and end < append_position:
        # A term is closed before what follows it is cut off: the cut was interrupted.
        recording.truncate(end)
        cut_bytes, append_position = append_position - end, end
    start_position = recording.start_position
    snapshot = find_snapshot(recording_log, snapshots, context, from_position=start_position, say=say)
    if snapshot is not None and snapshot.log_position > append_position and is_refilled:
        older = find_snapshot(
            recording_log,
            snapshots,
            context,
            from_position=start_position,
            to_position=append_position,
            say=say,
        )
        if older is not None or start_position == 0:
            snapshot = older
    if snapshot is not None and snapshot.log_position > append_position:
        say(f"the log ends at {append_position}, and restarts at the snapshot at {snapshot.log_position}")
        geometry = LogGeometry(recording.initial_term_id, recording.term_length, recording.mtu)
        first_frame = recording.first_frame()
        recording = begin_log_at(archive, recording_log, snapshot.entries, geometry, first_frame)
        append_position = recording.append_position
    elif append_position < plan.log.term_base_log_position:
        raise DataLoss(
            f"{recording_log.path}: term {plan.log.leadership_term_id} begins at "
            f"{plan.log.term_base_log_position}, but the recording ends at {append_position}"
        )
    elif snapshot is None and start_position > 0:
        raise DataLoss(
            f"{archive.directory}: the log begins at {start_position}, and no whole snapshot is there to "
            "begin with: empty the member's directory, and it is filled again from the others"
        )
    log_position = start_position if snapshot is None else snapshot.log_position
    return Recovered(recording, log_position, append_position, cut_bytes, snapshot)


def create_log_at(
    archive: Archive, geometry: LogGeometry, start_position: int, first_frame: bytes = b""
) -> Recording:
    """A new, empty recording of the log; recording.log does not know it yet. Raises StorageError.

    ``first_frame`` is that of the whole log, kept where its beginning is not.
    """
    recording = archive.create_recording(
        stream_id=streams.LOG,
        session_id=0,
        initial_term_id=geometry.initial_term_id,
        term_length=geometry.term_length,
        mtu=geometry.mtu,
        start_position=start_position,
        channel=LOG_CHANNEL,
    )
    if first_frame and start_position > 0:
        keep_first_frame(archive.files, archive.directory, recording.recording_id, first_frame)
    return recording


def create_log_like(archive: Archive, status: RecordingStatus) -> Recording:
    """A new, empty recording of the log that another member has. Raises StorageError."""
    geometry = LogGeometry(status.initial_term_id, status.term_length, status.mtu)
    return create_log_at(archive, geometry, status.start_position, bytes(status.first_frame))


def begin_log_at(
    archive: Archive,
    recording_log: RecordingLog,
    entries: tuple[RecordingLogEntry, ...],
    geometry: LogGeometry,
    first_frame: bytes = b"",
) -> Recording:
    """Let a snapshot (the module first) stand for all log before it, in one step. Raises StorageError."""
    module = entries[0]
    recording = create_log_at(archive, geometry, module.log_position, first_frame)
    archive.stop_recording(recording.recording_id)
    term = module._replace(recording_id=recording.recording_id, log_position=NULL_POSITION, entry_type=TERM)
    replace_log(archive, recording_log, [term], entries)
    return recording


def replace_log(
    archive: Archive,
    recording_log: RecordingLog,
    terms: list[RecordingLogEntry],
    entries: tuple[RecordingLogEntry, ...],
) -> None:
    """Let recording.log name these terms and this snapshot (the module first) alone. Raises StorageError."""
    old_id = recording_log.find_last_recording_id()
    recording_log.rewrite([*terms, *entries[:0:-1], entries[0]])
    if old_id is not None and archive.has_recording(old_id):
        archive.purge_recording(old_id)


def _new_geometry(context: ConsensusModuleContext) -> LogGeometry:
    return LogGeometry(0, context.log_term_length, context.log_mtu)


def drop_orphans(archive: Archive, recording_log: RecordingLog, say: Callable[[str], None]) -> None:
    """Remove what a crash left of a snapshot or a replaced log: recordings without an entry."""
    known = {entry.recording_id for entry in recording_log.entries}
    has_log = recording_log.find_last_term() is not None
    is_seeded = archive.files.exists(recording_log.path + BACKUP_SUFFIX)  # its operator may want to go back
    for descriptor in archive.recordings():
        if descriptor.recording_id in known:
            continue
        is_snapshot = descriptor.stream_id in STREAM_IDS and "alias=snapshot" in descriptor.stripped_channel
        is_log = descriptor.stream_id == streams.LOG and descriptor.stripped_channel == LOG_CHANNEL
        if (is_snapshot or (is_log and has_log)) and not is_seeded:
            say(f"recording {descriptor.recording_id} of stream {descriptor.stream_id} belongs to nothing")
            archive.purge_recording(descriptor.recording_id)
