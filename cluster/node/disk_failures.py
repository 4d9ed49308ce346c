"""How a member lives on when its disk or a mistake fails it: it lets go of all, and begins again.

    disk refuses a write or sync ──▶ links, clients, files closed: others elect, nothing is acknowledged
        ▲                                  │ a pause, twice as long each time; a full disk must have room
        └──── fails again ◀── begins again: recovers what was synced, into new files; fetches the rest

The process lives; the agents of its next life are new ones, the services with them, and are fed from the
disk like those of a process that was started again. So no entry can come twice to one state.
"""

import os
import traceback
from collections.abc import Callable

from cluster.archive.files import Files
from cluster.errors import (
    NO_SPACE,
    ClusterError,
    LogDamaged,
    MemberRestart,
    PortInUse,
    StorageError,
    StorageErrors,
    UnexpectedError,
)

FIRST_PAUSE_NS = 500_000_000
PAUSE_MAX_NS = 8_000_000_000
CALM_NS = 60_000_000_000  # a life as long as that has proven that the disk is well
SAME_DAMAGE_MAX = 3

# What ends a life, and not the process.
SURVIVED = (StorageError, LogDamaged, MemberRestart, UnexpectedError)


def unexpected(error: Exception, what: str) -> UnexpectedError:
    """Of an exception that is meant for nothing: where it was raised, and ``what`` is known beside that."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{last.name} ({os.path.basename(last.filename)}:{last.lineno})"
    failure = UnexpectedError(f"{type(error).__name__}: {error}, in {place}; {what}")
    failure.__cause__ = error
    return failure


class DiskFailures:
    """The failures of one process, and when it begins again. Times are of its monotonic clock."""

    def __init__(self) -> None:
        self.error: ClusterError | None = None  # that ended the life before
        self.due_ns = 0
        self._pause_ns = 0
        self._damage = ""
        self._same_damage_count = 0

    def is_survived(self, error: ClusterError, *, is_alone: bool) -> bool:
        """Whether the member can begin again after this; the same damage again and again is not repaired."""
        if isinstance(error, StorageError | MemberRestart | UnexpectedError):
            return True
        if not isinstance(error, LogDamaged) or is_alone:
            return False
        self._same_damage_count = self._same_damage_count + 1 if str(error) == self._damage else 1
        self._damage = str(error)
        return self._same_damage_count <= SAME_DAMAGE_MAX

    def begin_again(
        self,
        begin: Callable[[], None],
        is_survived: Callable[[ClusterError], bool],
        clock_ns: Callable[[], int],
    ) -> ClusterError | None:
        """Begin the next life; why it did not begin, where it is to be tried again. Raises other errors."""
        try:
            begin()
            return None
        except ClusterError as error:
            if not isinstance(error, PortInUse) and not is_survived(error):
                raise
            failure = error
        except Exception as error:
            failure = unexpected(error, "while it started again")
        self.on_failure(failure, 0, clock_ns())
        return failure

    def on_failure(self, error: ClusterError, life_ns: int, now_ns: int) -> int:
        """A life ended after ``life_ns``, or did not begin; returns the pause, none when nothing failed."""
        if isinstance(error, MemberRestart):
            self.error, self.due_ns = None, now_ns
            return 0
        if life_ns >= CALM_NS:
            self._pause_ns = 0
        self._pause_ns = min(max(2 * self._pause_ns, FIRST_PAUSE_NS), PAUSE_MAX_NS)
        self.error = error
        self.due_ns = now_ns + self._pause_ns
        return self._pause_ns

    @property
    def is_full(self) -> bool:
        """The disk had no room: nothing else is known against it."""
        return isinstance(self.error, StorageError) and self.error.errno in NO_SPACE

    @property
    def distrusts_disk(self) -> bool:
        """What was written to in the life before is not written to again, copies of it go on; and all of the
        log is to be looked at, however old.
        """
        return isinstance(self.error, StorageError | LogDamaged) and not self.is_full

    def check_room(self, files: Files, directory: str, length: int) -> None:
        """With a disk that was full: raise StorageError unless ``length`` bytes can be had."""
        if not self.is_full:
            return
        path = f"{directory}/room.tmp"
        with StorageErrors(path, "the disk is still full"):
            if files.exists(path):
                files.unlink(path)
            file = files.open(path, create=True)
            try:
                file.allocate(length)
            finally:
                file.close()
                files.unlink(path)
