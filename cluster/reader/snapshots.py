"""The snapshots that members keep in their archives, one recording each, found by their recording logs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from cluster.archive.catalog_file import CatalogFile
from cluster.archive.files import Files, OsFiles
from cluster.archive.recording_log import RecordingLog
from cluster.archive.snapshot_archive import SnapshotImage
from cluster.archive.stored_recording import StoredRecording
from cluster.errors import ClusterError, LogDamaged, NotAClusterDirectory, RemoteProtocolError, StorageError
from cluster.protocol import decode
from cluster.protocol.backup import BackupSnapshotRecording
from cluster.protocol.enums import SnapshotMark
from cluster.protocol.recording_log import CONSENSUS_MODULE_SERVICE_ID, SNAPSHOT, RecordingLogEntry
from cluster.protocol.snapshot import SnapshotChecksum, SnapshotMarker, SnapshotRecording
from cluster.reader.member_directory import (
    MemberDirectory,
    find_cluster_directory,
    find_member,
    members_in,
    read_cluster_mark,
)
from cluster.reader.recordings import open_recording

UNREADABLE = (LogDamaged, NotAClusterDirectory, StorageError)  # what another copy may make good


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """The snapshot of one service, or of the consensus module (``service_id`` -1), as one member has it.

    ``directory`` is the member's; ``member_id`` is None where no mark file names it. ``log_position`` is the
    position after the entry that asked for it, ``timestamp`` the cluster time of that entry.
    """

    directory: str
    archive: str
    member_id: int | None
    service_id: int
    recording_id: int
    module_recording_id: int | None  # of the consensus module at the same position; None when it is gone
    leadership_term_id: int
    log_position: int
    timestamp: int

    @property
    def member(self) -> str:
        """The member, for people."""
        return self.directory if self.member_id is None else f"member {self.member_id} ({self.directory})"

    def open(self) -> SnapshotImage:
        """Read it once it is known whole. Raises NotAClusterDirectory (gone), LogDamaged, StorageError."""
        if self.service_id == CONSENSUS_MODULE_SERVICE_ID:
            return module_image(OsFiles(), self.archive, self.recording_id)
        recording = self._recording(self.recording_id)
        if self.module_recording_id is not None:
            module = self._recording(self.module_recording_id)
            try:
                _check_service(recording, self.service_id, module, self.archive)
            finally:
                module.close_readers()
        return SnapshotImage(recording)

    def _recording(self, recording_id: int) -> StoredRecording:
        return open_recording(OsFiles(), self.archive, recording_id)

    def app_version(self) -> int:
        """Of the application that took it, by its first record alone. Raises as ``open``."""
        record = SnapshotImage(self._recording(self.recording_id)).next_message()
        marker = None if record is None else decode(record)
        if not isinstance(marker, SnapshotMarker):
            raise LogDamaged(None, None, f"recording {self.recording_id} of {self.archive} is no snapshot")
        return marker.app_version


def _check_module(module: StoredRecording, archive: str) -> None:
    """The module's last record has the checksum of all before it; Aeron's snapshots have their end there."""
    image = SnapshotImage(module)
    begin, last = image.position, b""
    while not image.is_end_of_stream:
        position = image.position
        if (record := image.next_message()) is not None:
            begin, last = position, record
    try:
        message = decode(last) if last else None
    except RemoteProtocolError as error:
        raise _damaged(module, archive, str(error)) from error
    if isinstance(message, SnapshotChecksum):
        _check_frames(module, begin, message.checksum, archive)
    elif not last or (message is not None and getattr(message, "mark", None) is not SnapshotMark.END):
        raise _damaged(module, archive, "its end is missing")


def _check_service(
    recording: StoredRecording, service_id: int, module: StoredRecording, archive: str
) -> None:
    """The module's snapshot has length and checksum of each service's; Aeron's has none."""
    _check_module(module, archive)
    for message in map(decode, SnapshotImage(module)):
        if isinstance(message, SnapshotRecording) and message.service_id == service_id:
            _check_frames(recording, message.length, message.checksum, archive)


def _check_frames(recording: StoredRecording, length: int, checksum: int, archive: str) -> None:
    if length > recording.append_position or recording.checksum_of_frames(length) != checksum:
        raise _damaged(recording, archive, "its checksum differs")


def _damaged(recording: StoredRecording, archive: str, why: str) -> LogDamaged:
    what = f"recording {recording.recording_id} of {archive} is not the snapshot that was taken"
    return LogDamaged(None, None, f"{what}: {why}")


def stored_snapshots(files: Files, dir: str, archive_dir: str | None = None) -> list[StoredSnapshot]:
    """The snapshots of a member or, where ``dir`` is the folder of a cluster, of all its members.

    Those that are valid, and that the archive still has, by log position, service and member. ``archive_dir``
    is one member's archive where it does not lie beside its cluster directory. Nothing is written.
    Raises NotAClusterDirectory, LogDamaged, StorageError.
    """
    members = [dir] if archive_dir is not None else members_in(files, dir) or [dir]
    found = [snapshot for member in members for snapshot in _of_member(files, member, archive_dir)]
    return sorted(found, key=lambda snapshot: (snapshot.log_position, snapshot.service_id))


def _of_member(files: Files, dir: str, archive_dir: str | None) -> list[StoredSnapshot]:
    archive = find_member(files, dir, archive_dir).archive
    cluster = find_cluster_directory(files, dir)
    mark = read_cluster_mark(files, cluster)
    catalog = CatalogFile.open(files, archive, readable_part=True)
    catalog.close()
    kept = {entry.descriptor.recording_id for entry in catalog.entries if entry.is_valid}
    recording_log = RecordingLog.open(cluster, files=files, write=False)
    recording_log.close()
    found = [
        entry
        for entry in recording_log.entries
        if entry.entry_type is SNAPSHOT and entry.is_valid and entry.recording_id in kept
    ]
    return described_in(dir, archive, None if mark is None else mark.member_id, found)


def described_in(
    directory: str,
    archive: str,
    member_id: int | None,
    entries: Sequence[RecordingLogEntry | BackupSnapshotRecording],
) -> list[StoredSnapshot]:
    """The snapshots that a member's entries, or its answer to a backup, name."""
    modules = {
        (entry.leadership_term_id, entry.log_position): entry.recording_id
        for entry in entries
        if entry.service_id == CONSENSUS_MODULE_SERVICE_ID
    }
    return [
        StoredSnapshot(
            directory,
            archive,
            member_id,
            entry.service_id,
            entry.recording_id,
            modules.get((entry.leadership_term_id, entry.log_position)),
            entry.leadership_term_id,
            entry.log_position,
            entry.timestamp,
        )
        for entry in entries
    ]


class DirectorySnapshots:
    """The snapshots of one service, or of all, in directories of members, or of a cluster."""

    silent = ()  # members that do not answer: directories do

    def __init__(
        self,
        dirs: Sequence[str],
        service_id: int | None = None,
        *,
        archive_dirs: Sequence[str] | None = None,
    ) -> None:
        """Directories that cannot be read are passed over. Raises the error of the last when none can."""
        archives = [None] * len(dirs) if archive_dirs is None else archive_dirs
        found: list[StoredSnapshot] = []
        errors: list[ClusterError] = []
        for dir, archive_dir in zip(dirs, archives, strict=True):
            try:
                found += stored_snapshots(OsFiles(), dir, archive_dir)
            except UNREADABLE as error:
                errors.append(error)
        if len(errors) == len(dirs):
            raise errors[-1]
        self._found = [one for one in found if service_id is None or one.service_id == service_id]

    def newest(self, at_or_before: int | None) -> int | None:
        """Where the newest snapshot is at or before a position, or at all; None without one."""
        positions = (one.log_position for one in self._found)
        return max((one for one in positions if at_or_before is None or one <= at_or_before), default=None)

    def copies(self, log_position: int) -> Iterator[StoredSnapshot]:
        """The snapshot at a position, as each directory has it that has it."""
        return (one for one in self._found if one.log_position == log_position)

    def listed(self, beyond: int = -1) -> list[StoredSnapshot]:
        """Those with log positions after ``beyond``, by position and service, in the order of directories."""
        found = (one for one in self._found if one.log_position > beyond)
        return sorted(found, key=lambda one: (one.log_position, one.service_id))

    @contextmanager
    def opened(self, snapshot: StoredSnapshot) -> Iterator[SnapshotImage]:
        """As ``StoredSnapshot.open``; NotAClusterDirectory where it is deleted meanwhile."""
        try:
            yield snapshot.open()
        except ClusterError:
            if snapshot in stored_snapshots(OsFiles(), snapshot.directory, snapshot.archive):
                raise
            raise NotAClusterDirectory(
                f"{snapshot.member}: its snapshot at {snapshot.log_position} was deleted"
            ) from None

    def close(self) -> None:
        """There is nothing open."""


def module_image(files: Files, archive: str, recording_id: int) -> SnapshotImage:
    """A snapshot of a consensus module that is known whole. Raises as ``StoredSnapshot.open``."""
    recording = open_recording(files, archive, recording_id)
    _check_module(recording, archive)
    return SnapshotImage(recording)


def newest_module_records(files: Files, member: MemberDirectory) -> tuple[int, Iterator[bytes]] | None:
    """Position and records of the module's newest whole snapshot; None without any.

    Raises as ``StoredSnapshot.open`` where none is whole.
    """
    if member.cluster is None:
        return None
    log = RecordingLog.open(member.cluster, files=files, write=False, readable_part=True)
    log.close()
    why = None
    for entry in reversed(log.entries):
        is_module = entry.entry_type is SNAPSHOT and entry.service_id == CONSENSUS_MODULE_SERVICE_ID
        if not (is_module and entry.is_valid):
            continue
        try:
            return entry.log_position, iter(module_image(files, member.archive, entry.recording_id))
        except (LogDamaged, NotAClusterDirectory) as error:
            why = why or error
    if why is not None:
        raise why
    return None
