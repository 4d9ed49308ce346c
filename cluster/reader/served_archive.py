"""The recordings of a member that runs, as they are replayed to Aeron's clients: its files, and no more.

Of the log, what is committed: a recording that is written is replayed up to there, and said to end there.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import numpy as np

from cluster.archive.catalog_file import CatalogFile
from cluster.archive.files import OsFiles
from cluster.archive.stored_recording import StoredRecording
from cluster.errors import ClusterError, NotAClusterDirectory
from cluster.protocol.catalog import RecordingDescriptor
from cluster.reader.directory import DirectoryLog
from cluster.reader.extent import Extent
from cluster.reader.recordings import open_recording
from cluster.transport.committed_log import BlockOptions


class ServedArchive:
    """Used by one thread. Methods raise ClusterError where the files do not have it."""

    def __init__(
        self, cluster_dir: str, archive_dir: str, aeron_dir: str, led_session_id: Callable[[], int | None]
    ) -> None:
        """``aeron_dir`` has the member's counters; ``led_session_id`` says which log it leads, None: none."""
        self._files = OsFiles()
        self._led_session_id = led_session_id
        self._archive_dir = archive_dir
        self._open_log = partial(
            DirectoryLog, None, cluster_dir=cluster_dir, archive_dir=archive_dir, aeron_dir=aeron_dir
        )
        self._log: DirectoryLog | None = None

    def recordings(self) -> list[RecordingDescriptor]:
        """All of the catalog, by id."""
        catalog = CatalogFile.open(self._files, self._archive_dir, readable_part=True)
        catalog.close()
        return catalog.descriptors()

    def committed(self, recording_id: int) -> int | None:
        """How far the log is committed, which this recording holds; None for one that is not written."""
        extent = self._extent_of(recording_id)
        return None if extent is None else extent.committed

    def recorded(self, recording_id: int) -> int | None:
        """How far it is recorded, and synced."""
        extent = self._extent_of(recording_id)
        return None if extent is None else extent.written

    @property
    def led_session_id(self) -> int | None:
        """The session of the log that this member leads; none is cut that it leads."""
        return self._led_session_id()

    def _extent_of(self, recording_id: int) -> Extent | None:
        log = self._log_now()
        if log is None or log.recording.recording_id != recording_id:
            return None
        try:
            return log.extent()
        except ClusterError:  # another log lies there now
            self.close()
            raise

    def is_bounded_by(self, counter_id: int) -> bool:
        """Whether a counter of the member's is its commit position."""
        log = self._log_now()
        running = None if log is None else log.state.live()
        return running is not None and running.commit is not None and running.commit.counter_id == counter_id

    def blocks(
        self, recording: RecordingDescriptor, position: int, end: int, max_bytes: int
    ) -> Iterator[np.ndarray]:
        """Whole frames of ``[position, end)``, where a message begins and a message ends."""
        log = self._log_now()
        if log is not None and log.recording.recording_id == recording.recording_id:
            found = log.blocks(position, end, BlockOptions(max_bytes))
        else:
            stored = open_recording(self._files, self._archive_dir, recording.recording_id)
            found = stored.blocks(position, end, max_bytes)
        for _, block in found:
            yield block

    def recorded_blocks(
        self, recording: RecordingDescriptor, position: int, end: int, max_bytes: int
    ) -> Iterator[np.ndarray]:
        """Whole frames of ``[position, end)`` of the log, committed or not."""
        log = self._log_now()
        stored = StoredRecording(
            self._files, self._archive_dir, recording, None if log is None else log.checksum
        )
        stored.append_position = end
        for _, block in stored.blocks(position, end, max_bytes):
            yield block

    def _log_now(self) -> DirectoryLog | None:
        """The log, once there is one."""
        if self._log is None:
            with suppress(NotAClusterDirectory):
                self._log = self._open_log()
        return self._log

    def close(self) -> None:
        log, self._log = self._log, None
        if log is not None:
            log.close()
