"""A backup's directory, as that of a member: our tools and Aeron's read it, and a member can be made of it.

    cluster/   recording.log, cluster-mark.dat of type BACKUP
    archive/   the log, and every snapshot that was retrieved, but for what ``prune`` has dropped

What is here counts when recording.log names it. A snapshot is named when all of its recordings are whole and
the log reaches its position; what a crash left unnamed is removed by the next start.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from cluster.archive.archive import SEGMENT_LENGTH_DEFAULT, Archive
from cluster.archive.catalog_checksum import NAMES
from cluster.archive.files import Files
from cluster.archive.mark_files import ArchiveMarkFile, ClusterMarkFile
from cluster.archive.recording_log import RecordingLog
from cluster.archive.snapshot_archive import drop_snapshots_before
from cluster.backup.copied_log import CopiedLog
from cluster.errors import ConfigurationError, StorageErrors
from cluster.log.checksum import Checksum
from cluster.member.disk.recovery import drop_orphans
from cluster.member.disk.snapshots import read_fetched
from cluster.protocol.backup import BackupSnapshotRecording
from cluster.protocol.enums import ClusterComponentType
from cluster.protocol.mark_file import ClusterMarkFileHeader
from cluster.protocol.recording_log import CONSENSUS_MODULE_SERVICE_ID, SNAPSHOT, RecordingLogEntry
from cluster.reader.member_directory import read_cluster_mark


class BackupDirectory:
    """Open for one process. ``log`` is the copied log."""

    def __init__(
        self,
        directory: str,
        files: Files,
        *,
        cluster_id: int,
        file_sync_level: int,
        epoch_ms: Callable[[], int],
        say: Callable[[str], None],
        segment_length: int = SEGMENT_LENGTH_DEFAULT,
    ) -> None:
        """Made when missing. Raises ConfigurationError, DirectoryInUse, LogDamaged, StorageError."""
        self.directory = directory
        cluster, driver = f"{directory}/cluster", f"{directory}/driver"
        _check_owner(files, cluster, cluster_id)
        with ExitStack() as opened:
            self._mark_file = ClusterMarkFile.create(
                cluster,
                files=files,
                component_type=ClusterComponentType.BACKUP,
                now_ms=epoch_ms(),
                cluster_id=cluster_id,
                aeron_directory=driver,
            )
            opened.callback(self._mark_file.abandon)
            self.archive = Archive.open(
                f"{directory}/archive",
                files=files,
                segment_length=segment_length,
                file_sync_level=file_sync_level,
                checksum=NAMES[Checksum.CRC_32C],
                epoch_ms=epoch_ms,
            )
            opened.callback(self.archive.abandon)
            self._archive_mark_file = self.archive.create_mark_file(aeron_directory=driver)
            opened.callback(self._archive_mark_file.abandon)
            self.recording_log = RecordingLog.open(
                cluster,
                files=files,
                file_sync_level=file_sync_level,
                find_recording=self.archive.find_recording,
            )
            opened.callback(self.recording_log.close)
            drop_orphans(self.archive, self.recording_log, say)
            self.log = CopiedLog(self.archive, self.recording_log)
            self._opened = opened.pop_all()

    @property
    def mark_files(self) -> tuple[ClusterMarkFile, ArchiveMarkFile]:
        return self._mark_file, self._archive_mark_file

    # ---- snapshots

    def lacks(self, snapshots: Sequence[BackupSnapshotRecording]) -> bool:
        """Whether a snapshot that a member offers is newer than the newest here (S-157)."""
        newest = self.recording_log.latest_snapshot()
        return bool(snapshots) and (
            newest is None or max(offered.log_position for offered in snapshots) > newest.log_position
        )

    def check_snapshot(self, name: str, entries: tuple[RecordingLogEntry, ...]) -> None:
        """Raise RemoteProtocolError unless what came from a member is whole, as its module has noted it."""
        read_fetched(name, self.archive, entries)

    def name(self, entries: tuple[RecordingLogEntry, ...]) -> None:
        """Let recording.log name a snapshot whose position the log has reached, the module's entry last.

        With it a log that takes the place of the one before. Of two of one position the first is kept: a
        standby may have taken it itself meanwhile. Raises StorageError.
        """
        newest = self.recording_log.latest_snapshot()
        if newest is not None and newest.log_position == entries[0].log_position:
            for entry in entries:
                self.archive.purge_recording(entry.recording_id)
            return
        if self.log.is_replacement:
            self.log.replace(entries)
            return
        for entry in reversed(entries):
            self.recording_log.append_snapshot(*entry[:6])

    def prune(self, count: int, since: int | None, needed_position: int | None) -> int | None:
        """Drop all but the newest ``count`` snapshots and those of cluster time ``since`` or later, and whole
        segments of the log before the oldest that stays; returns the new begin of the log, if it has one.

        Log from ``needed_position`` on stays, for whom it is read. Raises StorageError.
        """
        newest_first = enumerate(reversed(self._snapshots()))
        kept = [at for i, (at, time) in newest_first if i < count or (since is not None and time >= since)]
        recording = self.log.recording
        if not kept or recording is None or self.log.is_replacement:
            return None
        drop_snapshots_before(self.archive, self.recording_log, kept[-1])
        before = recording.start_position
        begin = recording.purge_to(min(kept[-1], kept[-1] if needed_position is None else needed_position))
        return begin if begin > before else None

    def make_room(self, needed_position: int | None) -> int | None:
        """As ``prune``, of all but the oldest snapshot, where the disk is short; else it does nothing."""
        with StorageErrors(self.directory, "asking for its free space failed"):
            space = self.archive.files.space(self.archive.directory)
        if space.free >= 4 * space.reserve:
            return None
        return self.prune(max(len(self._snapshots()) - 1, 1), None, needed_position)

    def _snapshots(self) -> list[tuple[int, int]]:
        """Position in the log and cluster time of each, the oldest first."""
        return sorted(
            (entry.log_position, entry.timestamp)
            for entry in self.recording_log.entries
            if entry.is_valid
            and entry.entry_type is SNAPSHOT
            and entry.service_id == CONSENSUS_MODULE_SERVICE_ID
        )

    # ---- the process

    def update_activity(self, now_ms: int) -> None:
        """Give the signs of life that tools look for. Raises StorageError."""
        for mark_file in self.mark_files:
            mark_file.update_activity(now_ms)

    def close(self) -> None:
        """In order: the log ends where it is. Raises StorageError."""
        self.recording_log.close()
        self._archive_mark_file.close()
        self.archive.close()
        self._mark_file.close()

    def abandon(self) -> None:
        """As a process that dies does."""
        self._opened.close()


def find_owner(files: Files, cluster: str) -> ClusterMarkFileHeader | None:
    """The mark of a backup, None where there is none yet. Raises ConfigurationError for a member's."""
    owner = read_cluster_mark(files, cluster)
    if owner is not None and owner.component_type is not ClusterComponentType.BACKUP:
        kind = owner.component_type.name.lower().replace("_", " ")
        raise ConfigurationError(
            f"{cluster}: holds the files of a {kind} of member {owner.member_id}, expected those of a "
            "backup, or an empty directory"
        )
    return owner


def _check_owner(files: Files, cluster: str, cluster_id: int) -> None:
    """Raise ConfigurationError for a directory with the files of a member, or of another cluster's backup."""
    owner = find_owner(files, cluster)
    if owner is not None and owner.cluster_id != cluster_id:
        raise ConfigurationError(
            f"{cluster}: holds a backup of cluster {owner.cluster_id}, expected one of cluster {cluster_id}, "
            "or an empty directory"
        )
