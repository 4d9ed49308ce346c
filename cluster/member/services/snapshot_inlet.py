"""The recordings that services in processes of their own write their snapshots into: made and ended here."""

from collections.abc import Callable

from cluster.archive.snapshot_archive import SnapshotArchive
from cluster.errors import ClusterError, StorageError
from cluster.protocol.link import ServiceSnapshot
from cluster.protocol.service_link import SnapshotReserved

NOT_WANTED = SnapshotReserved(0, 0, b"")


class SnapshotInlet:
    """One snapshot at a time: ``reserve``, ``end`` or ``abandon``; ``recording_id`` while one is written."""

    def __init__(
        self, service_id: int, archive: SnapshotArchive, on_error: Callable[[ClusterError], None]
    ) -> None:
        """``on_error`` gets what cannot be removed."""
        self.recording_id: int | None = None
        self._service_id = service_id
        self._archive = archive
        self._on_error = on_error
        self._log_position = 0

    def reserve(self, log_position: int) -> SnapshotReserved:
        """Make a recording for the snapshot at ``log_position``; what the archive refuses is its ``why``."""
        assert self.recording_id is None
        try:
            lent = self._archive.lend(self._service_id, log_position)
        except ClusterError as error:
            return NOT_WANTED.replace(why=str(error).encode())
        self.recording_id, self._log_position = lent.descriptor.recording_id, log_position
        return SnapshotReserved(lent.checksum or 0, lent.file_sync_level, lent.descriptor.encode_body())

    def end(self, written: ServiceSnapshot) -> ServiceSnapshot:
        """The service has done what it could; returns what is to be said of it to the module."""
        assert written.recording_id == self.recording_id
        if written.why:
            return self.abandon(written.why)
        try:
            self._archive.take_back(written.recording_id, written.length)
        except StorageError as error:
            return self.abandon(str(error).encode())
        self.recording_id = None
        return written

    def abandon(self, why: bytes) -> ServiceSnapshot:
        """What is written so far is no snapshot."""
        recording_id, self.recording_id = self.recording_id, None
        assert recording_id is not None
        try:
            self._archive.discard(recording_id)
        except StorageError as error:
            self._on_error(error)
        return ServiceSnapshot(self._service_id, self._log_position, recording_id, 0, 0, -1, why)
