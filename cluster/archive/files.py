"""The only door to the disk: what the archive asks of a file system, and the real one.

Everything under a member's directory is read and written through ``Files`` and ``File``, or by compiled code
through ``Files.calls``, so that the simulator can put a disk under them that tears writes, loses unsynced
pages, fills up or fails. Paths are strings. Whatever the disk refuses comes out as ``OSError``; the callers
turn it into ``StorageError``, as ``replace`` does, by which each small file comes to be.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import weakref
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from cluster.errors import LogDamaged, StorageError, StorageErrors

if TYPE_CHECKING:
    from cluster.log.calls import Calls

# Contiguous bytes of one dimension: bytes, bytearray, memoryview, uint8 array (numpy's stubs do not say).
Buffer: TypeAlias = Any

# A member's files are its user's to write and its group's to read, whatever the umask would allow beyond.
FILE_MODE = 0o640
DIRECTORY_MODE = 0o750


class DiskSpace(NamedTuple):
    """Of a file system, in bytes."""

    free: int  # what may still be written by this process
    total: int

    @property
    def reserve(self) -> int:
        """What is to stay free where nobody has said how much: a twentieth of it, and at most 1 GiB."""
        return min(self.total // 20, 1 << 30)


class Lock(Protocol):
    """An exclusive lock that the operating system takes back when its process ends, however it ends."""

    def release(self) -> None: ...


class File(Protocol):
    """An open file; every transfer names its offset in bytes, there is no current position."""

    path: str

    def pread(self, length: int, offset: int) -> bytes:
        """Up to ``length`` bytes; fewer only where the file ends."""

    def pread_into(self, buffer: Buffer, offset: int) -> int:
        """Fill the writable ``buffer``; return the bytes read, fewer than it holds only at the end."""

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write all of ``data``, or raise: what part of it arrived is then unknown."""

    def size(self) -> int: ...

    def fileno(self) -> int:
        """What it is to calls of the operating system."""

    @property
    def is_pushed_in_place(self) -> bool:
        """Whether ``push`` hands over a range alone, and not the whole file."""

    def allocate(self, length: int) -> None:
        """Reserve blocks up to ``length``, so that a later write below it cannot run out of space."""

    def resize(self, length: int) -> None:
        """Set the file's length; new bytes are zero and take no space."""

    def start_writeback(self, offset: int, length: int) -> None:
        """Ask for the range to be written out soon; promises nothing, waits for nothing."""

    def uncache(self, offset: int, length: int) -> None:
        """Have the range no longer in memory, as far as it lies on the device."""

    def push(self, offset: int, length: int) -> None:
        """Hand the range, synced before, to the device: the next sync of any file makes it durable."""

    def datasync(self) -> None:
        """Return when all that was written, and what is needed to find it again, survives a power cut."""

    def fullsync(self) -> None:
        """As ``datasync``, with all metadata."""

    def close(self) -> None: ...


def read_at_rest(file: File, length: int) -> bytes:
    """As ``pread``. Raises LogDamaged for a sector that cannot be read, as if it were overwritten."""
    try:
        return file.pread(length, 0)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise LogDamaged(file.path, None, "it cannot be read: input/output error") from error


class Files(Protocol):
    """A file system."""

    @property
    def calls(self) -> Calls:
        """What compiled code writes its files by."""

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        """Open a file; ``create`` raises FileExistsError. Raises StorageError for what is no regular file."""

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def list_directory(self, path: str) -> list[str]:
        """The names in a directory, sorted, so that nothing depends on the file system's order."""

    def make_directory(self, path: str) -> None:
        """Make the directory and its parents; no error when it is there."""

    def rename(self, path: str, new_path: str) -> None:
        """Give a file a new name, replacing what had it."""

    def unlink(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None:
        """Make names made, changed and removed in the directory survive a power cut."""

    def lock(self, path: str) -> Lock | None:
        """Lock the file (made when missing) for this process; None when another holds it."""

    def space(self, path: str) -> DiskSpace:
        """Of the file system with a directory. Raises OSError."""

    def process_id(self) -> int:
        """Of the process that has the locks."""


def replace(files: Files, path: str, data: Buffer, *, length: int = 0) -> None:
    """Put a file of ``data``, and zeros up to ``length`` bytes, in the place of what ``path`` names.

    Written aside, synced, renamed, and the folder synced: whoever looks finds the old file or the new one,
    whole, after a power cut too, and the new one once this has returned. The folder must be there. Raises
    StorageError.
    """
    aside = f"{path}.tmp"
    with StorageErrors(path, "writing failed"):
        if files.exists(aside):  # of a process that died on the way
            files.unlink(aside)
        with closing(files.open(aside, create=True)) as file:
            file.resize(length)
            file.pwrite(data, 0)
            file.fullsync()
        files.rename(aside, path)
        files.sync_directory(os.path.dirname(path) or ".")


# Kept by the classes: when an interpreter ends, ``os`` may be gone from a module before its last objects are.
_CLOSE = staticmethod(os.close)


class OsFile:
    """``File`` over a descriptor of the operating system."""

    __slots__ = ("_fd", "_overwrites_in_place", "path")
    _close = _CLOSE

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._overwrites_in_place: bool | None = None

    def pread(self, length: int, offset: int) -> bytes:
        data = os.pread(self._fd, length, offset)
        if len(data) == length or not data:
            return data
        pieces = [data]
        while (missing := length - sum(map(len, pieces))) > 0:
            data = os.pread(self._fd, missing, offset + length - missing)
            if not data:
                break
            pieces.append(data)
        return b"".join(pieces)

    def pread_into(self, buffer: Buffer, offset: int) -> int:
        view = memoryview(buffer)
        done = 0
        while done < len(view):
            count = os.preadv(self._fd, [view[done:]], offset + done)
            if count == 0:
                break
            done += count
        return done

    def pwrite(self, data: Buffer, offset: int) -> None:
        written = os.pwrite(self._fd, data, offset)
        if written < len(data):  # a signal or a full disk cut it short; the next call shows which
            view = memoryview(data)
            while written < len(view):
                written += os.pwrite(self._fd, view[written:], offset + written)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def allocate(self, length: int) -> None:
        os.posix_fallocate(self._fd, 0, length)

    def resize(self, length: int) -> None:
        os.ftruncate(self._fd, length)

    def start_writeback(self, offset: int, length: int) -> None:
        _sync_file_range(self._fd, offset, length, _WRITE)

    def uncache(self, offset: int, length: int) -> None:
        os.posix_fadvise(self._fd, offset, length, os.POSIX_FADV_DONTNEED)

    def fileno(self) -> int:
        return self._fd

    @property
    def is_pushed_in_place(self) -> bool:
        if self._overwrites_in_place is None:
            self._overwrites_in_place = _SYNC_FILE_RANGE is not None and _overwrites_in_place(self._fd)
        return self._overwrites_in_place

    def push(self, offset: int, length: int) -> None:
        if self.is_pushed_in_place:
            _sync_file_range(self._fd, offset, length, _WAIT_BEFORE | _WRITE | _WAIT_AFTER)
        else:
            os.fdatasync(self._fd)

    def datasync(self) -> None:
        os.fdatasync(self._fd)

    def fullsync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            self._close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        """What nobody closed takes its descriptor along, as Python's own files do."""
        self.close()


class OsLock:
    """Locked by this process alone: one that it forks has no part in it, and does not keep it."""

    _close = _CLOSE

    def __init__(self, fd: int) -> None:
        self._fd = fd
        _LOCKS.add(self)

    def release(self) -> None:
        if self._fd >= 0:
            self._close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.release()


_LOCKS: weakref.WeakSet[OsLock] = weakref.WeakSet()


def _leave_locks_to_the_parent() -> None:
    for lock in _LOCKS:
        lock.release()


os.register_at_fork(after_in_child=_leave_locks_to_the_parent)


_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a fifo",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: str, flags: int) -> int:
    """A descriptor of a regular file. Raises OSError, and StorageError for anything else that is there."""
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        fd = os.open(path, flags, FILE_MODE)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            _check_regular(path, os.lstat(path).st_mode)
        raise
    try:
        _check_regular(path, os.fstat(fd).st_mode)
    except StorageError:
        os.close(fd)
        raise
    return fd


def _check_regular(path: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise StorageError(path, None, f"is {_KINDS[stat.S_IFMT(mode)]}, expected a file")


def make_directories(path: str | os.PathLike[str]) -> None:
    """Make a directory, and those above it, as far as they are missing. Raises OSError."""
    path = os.fspath(path)
    if os.path.isdir(path):
        return
    make_directories(os.path.dirname(path) or ".")
    try:
        os.mkdir(path, DIRECTORY_MODE)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


class OsFiles:
    """``Files`` of this machine (Linux)."""

    @property
    def calls(self) -> Calls:
        from cluster.log.calls import SYSTEM_CALLS  # which needs numba

        return SYSTEM_CALLS

    def open(self, path: str, *, write: bool = False, create: bool = False) -> OsFile:
        flags = os.O_RDWR if write or create else os.O_RDONLY
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        return OsFile(path, open_regular(path, flags))

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def list_directory(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        make_directories(path)

    def rename(self, path: str, new_path: str) -> None:
        os.replace(path, new_path)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> OsLock | None:
        fd = open_regular(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return OsLock(fd)

    def is_locked(self, path: str) -> bool:
        """Whether a process holds the lock; it is taken to find out. Raises FileNotFoundError."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def space(self, path: str) -> DiskSpace:
        found = os.statvfs(path)
        return DiskSpace(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    def process_id(self) -> int:
        return os.getpid()


def _libc_function(name: str, *argument_types: type) -> ctypes._NamedFuncPointer | None:
    try:
        function = getattr(ctypes.CDLL(None, use_errno=True), name)
    except (OSError, AttributeError):  # a C library without it; each caller knows what to do then
        return None
    function.argtypes = list(argument_types)
    return function


_WAIT_BEFORE, _WRITE, _WAIT_AFTER = 1, 2, 4
_SYNC_FILE_RANGE = _libc_function(
    "sync_file_range", ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint
)
_FSTATFS = _libc_function("fstatfs", ctypes.c_int, ctypes.c_void_p)
_IN_PLACE = {0xEF53, 0x58465342, 0x01021994}  # ext4, XFS, tmpfs: an overwrite needs no new metadata


def _sync_file_range(fd: int, offset: int, length: int, flags: int) -> None:
    if _SYNC_FILE_RANGE is not None and _SYNC_FILE_RANGE(fd, offset, length, flags) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno))


def _overwrites_in_place(fd: int) -> bool:
    """Whether the file system writes an old block again where it lies, as copy-on-write ones do not."""
    if _FSTATFS is None:
        return False
    buffer = (ctypes.c_long * 64)()  # struct statfs begins with f_type
    return _FSTATFS(fd, buffer) == 0 and buffer[0] in _IN_PLACE
