"""life.dat: under which boot of its machine a member lives, and whether its last life ended in order.

At sync level 0 nothing waits for the disk. What a process wrote is there when the process dies, and may be
gone when the machine does. So a life at level 0 that did not end in order is followed by one whose machine
must be known to have run on; else the member may have lost votes, and log that it had acknowledged.

The note itself is synced at every level. A directory without one is new, or older than it.
"""

from contextlib import closing

from cluster.archive.files import Files
from cluster.archive.message_file import read_stored_message, store_message
from cluster.errors import LogDamaged, StorageErrors
from cluster.protocol.life_note import LifeNote

LIFE_FILE_NAME = "life.dat"


class LifeNoteFile:
    """``lost``: why the disk may lack what the last life wrote, or "". Raises StorageError.

    ``has_all_pages``: the last life did not end in order, and all that it wrote is there.
    """

    def __init__(self, files: Files, directory: str, *, boot_id: str, file_sync_level: int) -> None:
        self.lost = ""
        self.has_all_pages = False
        self.committed_position = 0
        self._files = files
        self._path = f"{directory}/{LIFE_FILE_NAME}"
        self._boot_id = boot_id
        self._file_sync_level = file_sync_level
        try:
            before = read_stored_message(files, self._path, LifeNote)
        except LogDamaged as damage:
            self.lost = str(damage)
            return
        if before is None:
            return
        self.has_all_pages = not before.has_ended and boot_id == (before.boot_id or None)
        if before.file_sync_level == 0 and not before.has_ended and not self.has_all_pages:
            what = "its machine has restarted" if boot_id else "maybe its machine has restarted"
            self.lost = f"the last life at file_sync_level 0 did not end in order, and {what}"
        else:
            self.committed_position = before.committed_position

    def begin(self) -> None:
        """A life begins. Raises StorageError."""
        self._write(has_ended=False)

    def commit(self, position: int) -> None:
        """So far the log is committed: it is noted when a term's first entry is. Raises StorageError."""
        if position > self.committed_position:
            self.committed_position = position
            self._write(has_ended=False)

    def end(self, position: int, directories: tuple[str, ...]) -> None:
        """The life has ended in order, everything in its ``directories`` is closed. Raises StorageError."""
        if self._file_sync_level == 0:
            for directory in directories:
                self._sync_all(directory)
        self.committed_position = max(position, self.committed_position)
        self._write(has_ended=True)

    def _sync_all(self, directory: str) -> None:
        path = directory
        with StorageErrors(path, "syncing failed"):
            for name in self._files.list_directory(directory):
                path = f"{directory}/{name}"
                if not self._files.is_directory(path):
                    with closing(self._files.open(path)) as file:
                        file.fullsync()
            self._files.sync_directory(directory)

    def _write(self, *, has_ended: bool) -> None:
        note = LifeNote(self.committed_position, self._file_sync_level, has_ended, self._boot_id)
        store_message(self._files, self._path, note)
