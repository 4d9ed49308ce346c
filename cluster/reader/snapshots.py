"""The snapshots that members keep in their archives, one recording each, found by their recording logs."""

from collections.abc import Iterator
from dataclasses import dataclass

from cluster.archive.catalog_file import CatalogFile
from cluster.archive.files import Files
from cluster.archive.recording_log import RecordingLog
from cluster.archive.snapshot_archive import SnapshotImage
from cluster.errors import LogDamaged
from cluster.protocol import decode
from cluster.protocol.recording_log import SNAPSHOT
from cluster.protocol.snapshot import SnapshotMarker
from cluster.reader.member_directory import find_cluster_directory, find_member, members_in, read_cluster_mark
from cluster.reader.recordings import find_recording, open_recording, recorded_messages


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
    leadership_term_id: int
    log_position: int
    timestamp: int

    @property
    def member(self) -> str:
        """The member, for people."""
        return self.directory if self.member_id is None else f"member {self.member_id} ({self.directory})"

    def open(self, files: Files) -> SnapshotImage:
        """Read it. Raises NotAClusterDirectory when its recording is gone, LogDamaged, StorageError."""
        return SnapshotImage(open_recording(files, self.archive, self.recording_id))

    def app_version(self, files: Files) -> int:
        """The version of the application that took it. Raises as ``open``, and LogDamaged for no snapshot."""
        record = self.open(files).next_message()
        marker = None if record is None else decode(record)
        if not isinstance(marker, SnapshotMarker):
            raise LogDamaged(None, None, f"recording {self.recording_id} of {self.archive} is no snapshot")
        return marker.app_version


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
    return [
        StoredSnapshot(
            dir,
            archive,
            None if mark is None else mark.member_id,
            entry.service_id,
            entry.recording_id,
            entry.leadership_term_id,
            entry.log_position,
            entry.timestamp,
        )
        for entry in recording_log.entries
        if entry.entry_type is SNAPSHOT and entry.is_valid and entry.recording_id in kept
    ]


def newest_module_records(files: Files, dir: str) -> tuple[int, Iterator[bytes]] | None:
    """The newest snapshot that a member's consensus module has: its log position, and its records.

    None without one. Nothing is written. Raises NotAClusterDirectory, LogDamaged, StorageError.
    """
    cluster = find_cluster_directory(files, dir)
    entry = RecordingLog.open(cluster, files=files, readable_part=True).latest_snapshot()
    if entry is None:
        return None
    archive = find_member(files, dir, None).archive
    descriptor = find_recording(files, archive, entry.recording_id)
    records = recorded_messages(files, archive, descriptor)
    return entry.log_position, (record for _, record in records)
