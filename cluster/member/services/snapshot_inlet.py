"""The snapshot of a service in a process of its own: it comes message by message, and is recorded here."""

from collections.abc import Callable

from cluster.archive.snapshot_archive import SnapshotArchive, SnapshotPublication
from cluster.errors import ClusterError, StorageError
from cluster.protocol import streams
from cluster.protocol.service_link import SnapshotTaken

NO_RECORDING = -1


class SnapshotInlet:
    """One snapshot at a time: ``begin``, ``record`` …, ``end``.

    What the archive refuses is the service's to know, at the snapshot's end.
    """

    def __init__(
        self, service_id: int, archive: SnapshotArchive, on_error: Callable[[ClusterError], None]
    ) -> None:
        """``on_error`` is told of what cannot be removed."""
        self._service_id = service_id
        self._archive = archive
        self._on_error = on_error
        self._publication: SnapshotPublication | None = None
        self._failure = ""

    def begin(self, log_position: int, *, is_wanted: bool) -> None:
        """A snapshot at ``log_position``; one that nobody waits for is not recorded."""
        self.abandon()
        self._failure = ""
        if is_wanted:
            try:
                stream_id = streams.SERVICE_SNAPSHOT
                self._publication = self._archive.create(stream_id, self._service_id, log_position)
            except ClusterError as error:
                self._fail(error)

    def record(self, message: bytes) -> None:
        """The next message of the snapshot."""
        if self._publication is not None:
            try:
                self._publication.offer(message)
            except ClusterError as error:
                self._fail(error)

    def end(self, *, is_whole: bool) -> SnapshotTaken:
        """No more messages come; says where the snapshot is."""
        if self._publication is not None and is_whole:
            try:
                recording_id = self._archive.complete(self._publication)
                self._publication = None
                return SnapshotTaken(recording_id)
            except ClusterError as error:
                self._fail(error)
        self.abandon()
        return SnapshotTaken(NO_RECORDING, self._failure.encode())

    def abandon(self) -> None:
        """What came so far is no snapshot."""
        publication, self._publication = self._publication, None
        if publication is not None:
            self.discard(publication.recording_id)

    def discard(self, recording_id: int) -> None:
        """Nobody wants this recording."""
        try:
            self._archive.discard(recording_id)
        except StorageError as error:
            self._on_error(error)

    def _fail(self, error: ClusterError) -> None:
        self._failure = str(error)
        self.abandon()
