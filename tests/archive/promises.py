"""What a caller of an archive was told, and whether it is true after a crash."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cluster.archive.recording import Recording
from cluster.log.checksum import restore_session_ids
from tests.archive.faulty_files import FaultyDisk, open_archive
from tests.archive.logs import SESSION_ID, LogWriter, a_log

LOG = a_log(420)


@dataclass
class Promises:
    """What the caller was told, as it goes."""

    synced: int = 0
    appended: int = 0
    cut_to: int | None = None  # a truncation that may or may not have happened
    log: LogWriter = field(default_factory=lambda: LOG)
    after_cut: LogWriter | None = None

    def bytes_to(self, end: int) -> np.ndarray:
        """The log as it should read up to ``end``."""
        if self.after_cut is None or end <= self.after_cut.start:
            return self.log.frames(0, end)
        head = self.log.frames(0, self.after_cut.start)
        return np.concatenate([head, self.after_cut.frames(end=min(end, self.after_cut.position))])


def append(recording: Recording, told: Promises, run: np.ndarray) -> None:
    told.appended = recording.append_position + len(run)
    recording.append(recording.append_position, run)
    told.synced = recording.sync()


def check(
    disk: FaultyDisk, told: Promises, level: int, checksum: str | None, *, has_all_pages: bool = False
) -> None:
    """Open again: whole frames of the log that was written, up to the promise at least."""
    archive = open_archive(disk, level, checksum, has_all_pages=has_all_pages)
    if not archive.recordings():
        assert told.appended == 0
        archive.close()
        return
    recording = archive.recording(0)
    end = recording.append_position
    assert end >= told.synced, "what was synced is lost"
    read = recording.read(0, 1 << 22) if end else np.zeros(0, np.uint8)
    if checksum is not None:
        restore_session_ids(read, 0, len(read), SESSION_ID)
    if told.cut_to is not None and end > told.cut_to:
        assert np.array_equal(read, told.log.frames(0, end))
    else:
        assert np.array_equal(read, told.bytes_to(end)), "the recording holds what nobody appended"
    extended = archive.extend(0, SESSION_ID + 1)
    other = LogWriter(told.log.params, start=end)
    other.term(11)
    extended.append(end, other.frames())
    extended.sync()
    archive.abandon()
    disk.restart()
    archive = open_archive(disk, level, checksum, has_all_pages=has_all_pages)
    assert archive.recordings()[0].stop_position == other.position, "stale frames joined on"
    archive.close()
