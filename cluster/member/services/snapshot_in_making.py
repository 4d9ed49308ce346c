"""The module's part of one snapshot: captured at once, written a little in each turn."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from cluster.archive.snapshot_archive import SnapshotArchive, SnapshotPublication
from cluster.consensus.context import NULL_VALUE
from cluster.consensus.module_snapshot import CapturedModule
from cluster.errors import ClusterError
from cluster.protocol import streams
from cluster.protocol.recording_log import CONSENSUS_MODULE_SERVICE_ID
from cluster.protocol.snapshot import SnapshotChecksum, SnapshotRecording

RECORDS_PER_TURN = 64  # some half a millisecond
SYNC_BYTES = 1024 * 1024  # written without a sync: no turn waits for the disk to take more


class SnapshotAction(NamedTuple):
    """A snapshot that the log asks for, all services having come to its position."""

    log_position: int
    leadership_term_id: int  # of the log there
    timestamp: int
    begin_ns: int
    recording_ids: tuple[int, ...]  # of the services in their order; NULL_VALUE: takes none

    @property
    def awaited_ids(self) -> list[int]:
        return [recording_id for recording_id in self.recording_ids if recording_id != NULL_VALUE]


class SnapshotInMaking:
    """``why_not``: there will be none, but services are waited for; ``digest`` once ``is_written``."""

    def __init__(
        self, archive: SnapshotArchive, action: SnapshotAction, captured: CapturedModule | None, why_not: str
    ) -> None:
        self.action = action
        self.why_not = why_not
        self.is_written = captured is None
        self.digest = 0
        self._archive = archive
        self._publication: SnapshotPublication | None = None
        self._synced = 0
        self._sorting: Iterator[None] = iter(())
        self._writing: Iterator[None] = iter(())
        if captured is not None:
            self._sorting, self._writing = captured.sort(), self._write(captured)

    def _write(self, captured: CapturedModule) -> Iterator[None]:
        """Everything but what the services' recordings have to be known for, a record a step."""
        publication = self._publication = self._archive.create(
            streams.CONSENSUS_MODULE_SNAPSHOT, CONSENSUS_MODULE_SERVICE_ID, self.action.log_position
        )
        publication.offer(captured.begin)
        publication.digest = 0
        for record in captured.state():
            publication.offer(record)
            yield
        self.digest = publication.digest
        for record in captured.end():
            publication.offer(record)
            yield

    def do_work(self) -> int:
        """Write on; returns how much was done. Raises ClusterError when there will be none."""
        if self.is_written:
            return 0
        try:
            return self._do_work()
        except ClusterError:
            self.is_written = True
            raise

    def _do_work(self) -> int:
        if next(self._sorting, self) is not self:
            return 1
        count = sum(1 for _ in islice(self._writing, RECORDS_PER_TURN))
        self.is_written = count < RECORDS_PER_TURN
        publication = self._publication
        assert publication is not None
        if publication.position - self._synced >= SYNC_BYTES:
            self._synced = publication.position
            publication.sync()
        return 1

    def complete(self, recordings: Sequence[SnapshotRecording]) -> int:
        """All services have written theirs: end the recording, and return its id. Raises ClusterError."""
        publication = self._publication
        assert publication is not None and self.is_written
        for recording in recordings:
            publication.offer(recording.encode())
        publication.offer(SnapshotChecksum(publication.flush()).encode())
        return self._archive.complete(publication)

    @property
    def recording_id(self) -> int | None:
        """Of the module; None as long as nothing is written."""
        return None if self._publication is None else self._publication.recording_id
