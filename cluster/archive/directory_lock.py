"""One process a directory: our own lock, and the liveness rule of real mark files.

The lock is the kernel's, on a file beside the mark file, so it is free the moment its process is gone,
however it went. A real Aeron component does not take it; that one lives as long as its mark file is fresh.
The lock file keeps the pids of its last owner and of the owner of the mark file that it found: a fresh mark
file of one of those was left by a process of ours that is gone, and is no reason to wait.
"""

from contextlib import closing

from cluster.archive.files import Files, Lock, OsFiles
from cluster.errors import DirectoryInUse, LogDamaged, StorageErrors
from cluster.protocol.mark_file import (
    ACTIVATING,
    ARCHIVE_MARK_FILE_NAME,
    LIVENESS_TIMEOUT_MS,
    MARK_FILE_HEADER_LENGTH,
    MarkFileHeader,
    decode_archive_mark_file,
    decode_cluster_mark_file,
)

_PIDS_LENGTH_MAX = 32


def read_mark_header(files: Files, path: str) -> MarkFileHeader:
    """The header of a mark file, of an archive if its name says so. Raises LogDamaged with its path."""
    with closing(files.open(path)) as file:
        data = file.pread(MARK_FILE_HEADER_LENGTH, 0)
    try:
        if path.endswith(ARCHIVE_MARK_FILE_NAME):
            return decode_archive_mark_file(data)
        return decode_cluster_mark_file(data)
    except LogDamaged as damage:
        raise damage.at(path) from None


def is_active(header: MarkFileHeader, now_ms: int) -> bool:
    """Whether the owner of a mark file lives by its own account: fresh, being activated, or in the future."""
    return header.activity_timestamp == ACTIVATING or now_ms - header.activity_timestamp < LIVENESS_TIMEOUT_MS


def lock_path(directory: str, mark_file_name: str) -> str:
    """The file that is locked for what the mark file marks."""
    return f"{directory}/{mark_file_name.removesuffix('.dat')}.lock"


class DirectoryLock:
    """Locked from ``take`` to ``release``, or as a context manager."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock

    @classmethod
    def take(cls, files: Files, directory: str, mark_file_name: str, now_ms: int) -> "DirectoryLock":
        """Lock what the mark file marks: a directory, or a service's part of one.

        Raises DirectoryInUse when another process holds the lock, or when the mark file was refreshed
        less than 10 s ago by a process that never took it; LogDamaged for a mark file that is none, where no
        process of ours was before; StorageError. ``now_ms`` is epoch time.
        """
        path = lock_path(directory, mark_file_name)
        with StorageErrors(path, "locking failed", within=True):
            lock = files.lock(path)
            if lock is None:
                raise _in_use(files, directory, path)
            try:
                _take_over(files, directory, mark_file_name, now_ms)
            except BaseException:
                lock.release()
                raise
        return cls(lock)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.release()


def _take_over(files: Files, directory: str, mark_file_name: str, now_ms: int) -> None:
    """With the lock: note who has it. Raises DirectoryInUse, LogDamaged, OSError."""
    path, mark_path = lock_path(directory, mark_file_name), f"{directory}/{mark_file_name}"
    owners = [files.process_id()]
    header = _mark_header(files, mark_path, path) if files.exists(mark_path) else None
    if header is not None:
        owners.append(header.pid)  # it stays in the mark file if this start fails before writing it
        if is_active(header, now_ms) and header.pid not in _last_owners(files, path):
            raise DirectoryInUse(
                f"{directory}: {mark_file_name} is active, in use by process {header.pid} of Aeron "
                f"(or free {LIVENESS_TIMEOUT_MS // 1000} s after that process is gone)"
            )
    with closing(files.open(path, write=True)) as file:
        file.pwrite(" ".join(map(str, owners)).encode().ljust(_PIDS_LENGTH_MAX), 0)
        file.datasync()  # before a mark file of this process: after a power cut they must fit


def check_is_free(files: OsFiles, directory: str, mark_file_name: str) -> None:
    """Raise DirectoryInUse when a process holds the lock of what the mark file marks; nothing is written."""
    path = lock_path(directory, mark_file_name)
    try:
        is_locked = files.is_locked(path)
    except FileNotFoundError:  # nobody was ever here
        return
    if is_locked:
        raise _in_use(files, directory, path)


def _in_use(files: Files, directory: str, path: str) -> DirectoryInUse:
    owner = next(iter(_last_owners(files, path)), "unknown")
    return DirectoryInUse(f"{directory}: in use by process {owner}")


def _mark_header(files: Files, mark_path: str, lock_path: str) -> MarkFileHeader | None:
    """The header; None when it is damaged, and a process of ours had it before.

    Nothing in it is missed then: the lock shows who lives. A real component takes no lock, and may be of a
    version that we do not know: that raises LogDamaged.
    """
    try:
        return read_mark_header(files, mark_path)
    except LogDamaged as damage:
        if _last_owners(files, lock_path):
            return None
        raise LogDamaged(
            damage.path, damage.offset, f"{damage.what}; no member runs here? then delete the file"
        ) from None


def _last_owners(files: Files, path: str) -> list[int]:
    """The pids in the lock file, its last owner's first."""
    with closing(files.open(path)) as file:
        words = file.pread(_PIDS_LENGTH_MAX, 0).split()
    return [int(word) for word in words if word.isdigit()]
