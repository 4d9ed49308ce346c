"""Members' directories out of a backup: for a new cluster, all of whose members begin with the same log.

    backup/archive/*        ──▶ member-N/archive/*             copied, then read whole and maybe cut
    backup/cluster/
        recording.log       ──▶ member-N/archive/recording.log ──▶ member-N/cluster/recording.log, last of all

Without a recording.log in its place a directory is no member's: one that is not finished cannot be started.
The members have promised nothing beyond the terms of the log, and stand for later ones. That is safe for a
cluster of which every member was restored. It is not beside a member of the old cluster: the backup cannot
know what a member has voted for since. So the new cluster is of another generation, which follows from the
end of the log: the same on each host, and none that the old members count.
"""

from collections.abc import Callable
from contextlib import closing
from os import PathLike
from typing import NamedTuple

from cluster.archive.archive import Archive
from cluster.archive.directory_lock import DirectoryLock
from cluster.archive.files import Files
from cluster.archive.identity_file import write_identity
from cluster.archive.node_state_file import NodeStateFile
from cluster.archive.recording import Recording
from cluster.archive.recording_log import RecordingLog
from cluster.archive.snapshot_archive import SnapshotArchive
from cluster.backup.copied_log import CopiedLog
from cluster.consensus.context import NULL_VALUE
from cluster.errors import ConfigurationError, NotAClusterDirectory, StorageErrors
from cluster.log.scan import last_message_end
from cluster.member.disk.recovery import drop_orphans
from cluster.member.disk.snapshots import check_newest
from cluster.protocol.catalog import CATALOG_FILE_NAME, parse_segment_file_name
from cluster.protocol.identity import ClusterIdentity, generation_of
from cluster.protocol.mark_file import CLUSTER_MARK_FILE_NAME
from cluster.protocol.recording_log import RECORDING_LOG_FILE_NAME, SNAPSHOT, RecordingLogEntry
from cluster.reader.member_directory import find_archive_directory, find_cluster_directory

COPY_BYTES = 8 * 1024 * 1024
READ_BYTES = 1024 * 1024


class Restored(NamedTuple):
    """Positions of a log to begin with, None without a snapshot; ``generation`` of a new cluster."""

    start_position: int
    end_position: int
    snapshot_position: int | None
    leadership_term_id: int
    generation: int | None


class Founding(NamedTuple):
    """By what a new cluster is made, and of what: ``identity``, but for the generation that is made of it.

    Without member ids in it these are as the first start says. Nobody has voted beyond ``candidate_term_id``
    and the terms of the log, which must end at ``log_end``, term and position, where that is given.
    """

    what: str
    identity: ClusterIdentity = ClusterIdentity(0)
    candidate_term_id: int = NULL_VALUE
    log_end: tuple[int, int] | None = None

    def generation(self, term_id: int, end: int) -> int:
        """Of a cluster whose log ends so."""
        old, ids = self.identity.generation, self.identity.member_ids
        return generation_of(self.what, end, term_id, *((old, *ids) if self.log_end is not None else ()))


class Place(NamedTuple):
    """A directory, or a file, and the files that it is among."""

    files: Files
    path: str


class MemberFolders(NamedTuple):
    """The directories of a member, or a backup, and the files that they are among."""

    files: Files
    cluster: str
    archive: str

    @classmethod
    def find(
        cls, files: Files, directory: str, archive_directory: PathLike[str] | str | None = None
    ) -> "MemberFolders":
        """What ``directory`` is or holds, or is given apart. Raises NotAClusterDirectory."""
        cluster = find_cluster_directory(files, directory)
        return cls(files, cluster, find_archive_directory(files, str(archive_directory or directory)))


def restore_member(
    backup: MemberFolders,
    member: Place,
    *,
    founding: Founding,
    to_position: int | None,
    epoch_ms: Callable[[], int],
) -> Restored:
    """Make a member's directory, its log up to ``to_position``.

    Raises NotAClusterDirectory, DirectoryInUse, ConfigurationError, LogDamaged, StorageError.
    """
    _make_room(member)
    if not backup.files.exists(f"{backup.cluster}/{RECORDING_LOG_FILE_NAME}"):
        raise NotAClusterDirectory(f"{backup.cluster}: holds no backup: no {RECORDING_LOG_FILE_NAME}")
    with DirectoryLock.take(backup.files, backup.cluster, CLUSTER_MARK_FILE_NAME, epoch_ms()):
        _copy_all(backup, member)
    restored = prepare(
        member,
        f"{member.path}/archive",
        to_position=to_position,
        founding=founding,
        epoch_ms=epoch_ms,
    )
    cluster = f"{member.path}/cluster"
    member.files.rename(_unfinished(member), f"{cluster}/{RECORDING_LOG_FILE_NAME}")
    for folder in (cluster, f"{member.path}/archive"):
        member.files.sync_directory(folder)
    return restored


def _unfinished(member: Place) -> str:
    """Where recording.log is until all of a member is there."""
    return f"{member.path}/archive/{RECORDING_LOG_FILE_NAME}"


def prepare(
    member: Place,
    log_folder: str,
    *,
    to_position: int | None,
    founding: Founding | None,
    epoch_ms: Callable[[], int],
) -> Restored:
    """Check and cut what is there, recording.log in ``log_folder``, and let it be a member's.

    With a ``founding`` it knows to have voted in no term beyond those of the log, and is of a new generation.
    Raises NotAClusterDirectory, ConfigurationError, LogDamaged, StorageError.
    """
    files = member.files
    with closing(Archive.open(f"{member.path}/archive", files=files, epoch_ms=epoch_ms)) as archive:
        recording_log = RecordingLog.open(log_folder, files=files, find_recording=archive.find_recording)
        try:
            drop_orphans(archive, recording_log, lambda text: None)
            last = recording_log.find_last_term()
            if last is None:
                raise NotAClusterDirectory(f"{member.path}: the backup has no log yet")
            recording = archive.recording(last.recording_id)
            if to_position is not None:
                _cut(archive, recording_log, recording, to_position)
            snapshot = _check(archive, recording_log, recording)
            term_id, end = last.leadership_term_id, recording.append_position
            generation = None
            if founding is not None:
                if founding.log_end not in (None, (term_id, end)):
                    raise ConfigurationError(
                        f"{member.path}: the log ends at {end} of term {term_id}, expected term and position "
                        f"{founding.log_end}"
                    )
                generation = founding.generation(term_id, end)
                candidate_term_id = max(term_id, founding.candidate_term_id)
                _promise(files, f"{member.path}/cluster", candidate_term_id, end, epoch_ms())
                identity = founding.identity.replace(generation=generation)
                write_identity(files, f"{member.path}/cluster", archive.directory, identity)
        finally:
            recording_log.close()
    position = None if snapshot is None else snapshot.log_position
    return Restored(recording.start_position, end, position, term_id, generation)


# ---- what is kept


def _cut(archive: Archive, recording_log: RecordingLog, recording: Recording, to_position: int) -> None:
    """Let the log end with its last entry that ends at or before a position; forget what is after that."""
    begin, end = recording.start_position, recording.append_position
    if not begin < to_position <= end:
        raise ConfigurationError(
            f"--to-position {to_position}: expected a position above {begin}, up to {end}"
        )
    recording.truncate(_last_entry_end(recording, to_position))
    for entry in list(recording_log.entries):
        if entry.entry_type is SNAPSHOT and entry.log_position > recording.append_position:
            recording_log.remove(entry)
            if archive.has_recording(entry.recording_id):
                archive.purge_recording(entry.recording_id)
    CopiedLog(archive, recording_log)  # without the terms that begin after the end


def _last_entry_end(recording: Recording, to_position: int) -> int:
    position = max(to_position - to_position % recording.term_length, recording.start_position)
    end = position
    while position < to_position:
        run = recording.read(position, min(to_position - position, READ_BYTES))
        if position + len(run) > to_position:
            break
        if entries := last_message_end(run, 0, len(run)):
            end = position + entries
        position += len(run)
    return end


def _check(archive: Archive, recording_log: RecordingLog, recording: Recording) -> RecordingLogEntry | None:
    """The newest snapshot, once it and all of the log are known to be whole. Raises LogDamaged."""
    if (damage := archive.find_damage(recording.recording_id)) is not None:
        raise damage.error
    snapshots = SnapshotArchive(archive, term_length=recording.term_length, mtu=recording.mtu)
    if (newest := check_newest(recording_log, snapshots)) is not None:
        return newest[0]
    if recording.start_position > 0:
        raise ConfigurationError(
            f"the log begins at {recording.start_position}, and no snapshot is before its end at "
            f"{recording.append_position}: choose a later --to-position"
        )
    return None


def _promise(files: Files, cluster: str, candidate_term_id: int, log_position: int, now_ms: int) -> None:
    """Let the member know its votes: none beyond this term, that of a log cut or not."""
    node_state = NodeStateFile.open(cluster, files=files)
    node_state.propose(candidate_term_id, log_position, now_ms)
    node_state.close()


# ---- files


def _make_room(member: Place) -> None:
    """Remove what an attempt that failed has left. Raises ConfigurationError for anything else there."""
    files = member.files
    if not files.exists(member.path):
        return
    left = [path for folder in ("cluster", "archive") for path in _files_in(files, f"{member.path}/{folder}")]
    is_unfinished = files.exists(_unfinished(member))
    if (left and not is_unfinished) or set(files.list_directory(member.path)) - {"cluster", "archive"}:
        raise ConfigurationError(f"{member.path}: is there already, expected a directory to be made")
    for path in left:
        if path != _unfinished(member):
            files.unlink(path)
    for folder in sorted({path.rpartition("/")[0] for path in left}):
        files.sync_directory(folder)
    if is_unfinished:
        files.unlink(_unfinished(member))


def _files_in(files: Files, folder: str) -> list[str]:
    names = files.list_directory(folder) if files.exists(folder) else []
    return [path for path in (f"{folder}/{name}" for name in names) if not files.is_directory(path)]


def _copy_all(backup: MemberFolders, member: Place) -> None:
    for folder in ("cluster", "archive"):
        member.files.make_directory(f"{member.path}/{folder}")
    _copy(
        Place(backup.files, f"{backup.cluster}/{RECORDING_LOG_FILE_NAME}"),
        Place(member.files, _unfinished(member)),
    )
    member.files.sync_directory(f"{member.path}/archive")  # before anything else is there
    for name in backup.files.list_directory(backup.archive):
        if _is_of_archive(name):
            target = f"{member.path}/archive/{name}"
            _copy(Place(backup.files, f"{backup.archive}/{name}"), Place(member.files, target))


def _is_of_archive(name: str) -> bool:
    """The catalog, segments, and what is beside them: first frames, proofs of syncs."""
    return (
        name == CATALOG_FILE_NAME
        or parse_segment_file_name(name) is not None
        or name.endswith((".first", ".proof"))
    )


def _copy(source: Place, target: Place) -> None:
    with (
        StorageErrors(target.path, "copying failed", within=True),
        closing(source.files.open(source.path)) as read,
        closing(target.files.open(target.path, create=True)) as written,
    ):
        for offset in range(0, read.size(), COPY_BYTES):
            written.pwrite(read.pread(COPY_BYTES, offset), offset)
        written.fullsync()
