"""A disk in memory that fails or loses power at the operation that a test names.

    cache    what reads give; survives the process, not a power cut
    device   what a sync put there; of pages written since, a power cut leaves each as before, as after, or
             torn at a sector

``push`` puts pages into the device's own cache, which any later sync makes durable, and so does a sync of the
folder for names. A failed sync leaves the pages unwritten and counted as clean, as Linux does.
"""

from __future__ import annotations

import errno
import os
from random import Random
from typing import Any

from cluster.archive.archive import Archive
from cluster.testing.python_calls import FileCalls
from tests.archive.logs import SEGMENT_LENGTH, Clock

PAGE = 4096
SECTOR = 512
DIRECTORY = "/member/archive"


class PowerCut(BaseException):
    """The machine stops in the middle of an operation; nothing that runs can go on."""


class Inode:
    def __init__(self) -> None:
        self.cache = bytearray()
        self.before: dict[int, bytes] = {}  # page: what the device has, where it differs
        self.lost: dict[int, bytes] = {}  # the same of pages that a failed sync left as clean
        self.pushed: set[int] = set()
        self.size_before = 0

    def touch(self, begin: int, end: int) -> None:
        for page in range(begin // PAGE, -(-end // PAGE)):
            on_device = self.lost.pop(page, None)
            if on_device is None:
                on_device = bytes(self.cache[page * PAGE : (page + 1) * PAGE])
            self.before.setdefault(page, on_device)
            self.pushed.discard(page)

    def durable(self) -> None:
        self.before.clear()
        self.pushed.clear()
        self.size_before = len(self.cache)

    def forget(self) -> None:
        """A sync has failed: what was to be written counts as clean, and no later sync writes it."""
        self.lost.update(self.before)
        self.before.clear()
        self.pushed.clear()

    def lose_power(self, random: Random) -> None:
        for page, old in self.lost.items():
            begin, end = page * PAGE, min((page + 1) * PAGE, len(self.cache))
            self.cache[begin:end] = old.ljust(PAGE, b"\0")[: max(end - begin, 0)]
        self.lost.clear()
        for page, old in self.before.items():
            begin, end = page * PAGE, min((page + 1) * PAGE, len(self.cache))
            old = old.ljust(PAGE, b"\0")
            fate = random.choice(("before", "after", "torn"))
            for sector in range(0, end - begin, SECTOR):
                if fate == "before" or (fate == "torn" and random.random() < 0.5):
                    piece = min(SECTOR, end - begin - sector)
                    self.cache[begin + sector : begin + sector + piece] = old[sector : sector + piece]
        if random.random() < 0.5:
            del self.cache[max(self.size_before, 0) :]
        self.durable()


class FaultyFile:
    is_pushed_in_place = True

    def __init__(self, disk: FaultyDisk, path: str, inode: Inode, number: int) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self._number = number
        disk.open_files[number] = self

    def fileno(self) -> int:
        return self._number

    def pread(self, length: int, offset: int) -> bytes:
        return bytes(self._inode.cache[offset : offset + length])

    def pread_into(self, buffer: Any, offset: int) -> int:
        view = memoryview(buffer)
        data = self._inode.cache[offset : offset + len(view)]
        view[: len(data)] = data
        return len(data)

    def pwrite(self, data: Any, offset: int) -> None:
        view = memoryview(data)
        inode = self._inode
        wanted = len(view)
        fault = self._disk.begin("pwrite", self.path)
        if fault is not None:  # some pages of it arrived: a signal cuts a write between two
            view = view[: max((offset + wanted // 2) // PAGE * PAGE - offset, 0)]
        end = offset + len(view)
        inode.touch(offset, end)
        if end > len(inode.cache):
            inode.cache.extend(bytes(end - len(inode.cache)))
        inode.cache[offset:end] = view
        self._disk.end(fault)

    def size(self) -> int:
        return len(self._inode.cache)

    def allocate(self, length: int) -> None:
        fault = self._disk.begin("allocate", self.path)
        self._disk.end(fault)
        if self._disk.is_full:
            raise io_error(errno.ENOSPC)
        if length > len(self._inode.cache):
            self._inode.cache.extend(bytes(length - len(self._inode.cache)))

    def resize(self, length: int) -> None:
        self._disk.end(self._disk.begin("resize", self.path))
        inode = self._inode
        if length < len(inode.cache):
            inode.touch(length, len(inode.cache))
            del inode.cache[length:]
        inode.cache.extend(bytes(length - len(inode.cache)))

    def start_writeback(self, offset: int, length: int) -> None:
        self._disk.begun.append((self.path, offset, length))

    def uncache(self, offset: int, length: int) -> None:
        self._disk.uncached.append((self.path, offset, length))

    def push(self, offset: int, length: int) -> None:
        self._disk.end(self._disk.begin("push", self.path))
        pages = {page for page in range(offset // PAGE, -(-(offset + length) // PAGE))}
        self._inode.pushed |= pages & self._inode.before.keys()
        self._disk.pushed.append(self._inode)

    def datasync(self) -> None:
        fault = self._disk.begin("sync", self.path)
        if isinstance(fault, OSError):
            self._inode.forget()
        self._disk.end(fault)
        self._inode.durable()
        for inode in self._disk.pushed:
            for page in inode.pushed:
                inode.before.pop(page, None)
            inode.pushed.clear()
        self._disk.pushed.clear()

    fullsync = datasync

    def close(self) -> None:
        self._disk.open_files.pop(self._number, None)


class FaultyLock:
    def __init__(self, disk: FaultyDisk, path: str) -> None:
        self._disk, self._path = disk, path

    def release(self) -> None:
        self._disk.locks.discard(self._path)


class FaultyDisk:
    """``Files`` on one disk. ``fail_at`` counts operations that change something, from 1."""

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)
        self.names: dict[str, Inode] = {}
        self.names_before: dict[str, dict[str, Inode]] = {}  # by folder, as of its last sync
        self.locks: set[str] = set()
        self.open_files: dict[int, FaultyFile] = {}
        self.calls = FileCalls(self.open_files)
        self.pushed: list[Inode] = []
        self.begun: list[tuple[str, int, int]] = []  # path, offset, length
        self.uncached: list[tuple[str, int, int]] = []
        self._number = 1_000_000
        self.operations = 0
        self.is_full = False  # no block can be had any more
        self.fail_at: int | None = None
        self.fault: BaseException | None = None
        self.history: list[str] = []

    def __getstate__(self) -> dict[str, Any]:
        """What a copy has: no file of it is open."""
        return {name: value for name, value in vars(self).items() if name not in ("calls", "open_files")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.open_files = {}
        self.calls = FileCalls(self.open_files)

    def begin(self, what: str, path: str) -> BaseException | None:
        self.operations += 1
        self.history.append(f"{what} {path}")
        return self.fault if self.operations == self.fail_at else None

    def end(self, fault: BaseException | None) -> None:
        if fault is not None:
            raise fault

    def fail(self, at: int, fault: BaseException) -> None:
        """Let the ``at``-th operation from now on fail so."""
        self.operations = 0
        self.fail_at, self.fault = at, fault
        self.history.clear()

    def lose_power(self) -> None:
        """What the device had not got is gone, or half of it; the machine starts again."""
        for folder, before in list(self.names_before.items()):
            if self.random.random() < 0.5:
                for path in [path for path in self.names if os.path.dirname(path) == folder]:
                    del self.names[path]
                self.names.update(before)
        for path in sorted(self.names):
            self.names[path].lose_power(self.random)
        self.names_before.clear()
        self.pushed.clear()
        self.restart()

    def restart(self) -> None:
        """The process is another one."""
        self.locks.clear()
        self.open_files.clear()
        self.fail_at = None

    def _change_names(self, what: str, path: str) -> str:
        self.end(self.begin(what, path))
        folder = os.path.dirname(path)
        if folder not in self.names_before:
            inside = {name: i for name, i in self.names.items() if os.path.dirname(name) == folder}
            self.names_before[folder] = inside
        return path

    def open(self, path: str, *, write: bool = False, create: bool = False) -> FaultyFile:
        if create:
            assert path not in self.names
            self.names[self._change_names("create", path)] = Inode()
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._number += 1
        return FaultyFile(self, path, self.names[path], self._number)

    def exists(self, path: str) -> bool:
        return path in self.names or self.is_directory(path)

    def is_directory(self, path: str) -> bool:
        return any(name.startswith(f"{path}/") for name in self.names)

    def list_directory(self, path: str) -> list[str]:
        return sorted(name[len(path) + 1 :] for name in self.names if os.path.dirname(name) == path)

    def make_directory(self, path: str) -> None:
        pass

    def rename(self, path: str, new_path: str) -> None:
        self._change_names("rename", path)
        self.names[new_path] = self.names.pop(path)

    def unlink(self, path: str) -> None:
        del self.names[self._change_names("unlink", path)]

    def sync_directory(self, path: str) -> None:
        self.end(self.begin("sync", path))
        self.names_before.pop(path, None)

    def lock(self, path: str) -> FaultyLock | None:
        if path in self.locks:
            return None
        self.names.setdefault(path, Inode())
        self.locks.add(path)
        return FaultyLock(self, path)

    def process_id(self) -> int:
        return 4242


def io_error(number: int = errno.EIO) -> OSError:
    return OSError(number, os.strerror(number))


def open_archive(
    disk: FaultyDisk, level: int = 1, checksum: str | None = None, *, has_all_pages: bool = False
) -> Archive:
    return Archive.open(
        DIRECTORY,
        files=disk,
        file_sync_level=level,
        segment_length=SEGMENT_LENGTH,
        checksum=checksum,
        has_all_pages=has_all_pages,
        epoch_ms=Clock(),
    )
