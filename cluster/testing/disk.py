"""A disk in memory that does what real ones do to programs that trust them: ``Files`` for a member.

A file is what its process reads back (the page cache), and beside it what the device holds of the pages
written since the last sync:

    pwrite      changes the cache; the device's old page is kept until a sync
    datasync    forgets the old pages: what is cached is durable
    push        hands pages to the device's own cache; durable with the next sync of any file
    SIGKILL     keeps the cache
    power cut   each page written since the last sync is whole, gone, or torn at a sector; names made or
                changed since the folder was synced may be as before

Times are spent by the process that waits.
"""

from __future__ import annotations

import errno
import os
from random import Random
from typing import Any
from weakref import WeakValueDictionary

from cluster.archive.files import DiskSpace
from cluster.testing.python_calls import FileCalls
from cluster.testing.world import Process

PAGE = 4096
SECTOR = 512

WRITE_NS = 6_000
READ_NS = 4_000
SYNC_NS = 90_000
TOTAL_BYTES = 1 << 40  # so the reserve is 1 GiB


class Inode:
    """A file: ``cache`` is what reads return, ``old`` what the device has in place of dirty pages."""

    __slots__ = ("allocated", "cache", "device_size", "old", "pushed")

    def __init__(self) -> None:
        self.cache = bytearray()
        self.device_size = 0
        self.allocated = 0  # blocks reserved up to here
        self.old: dict[int, bytes] = {}  # page: content on the device, of pages that are dirty
        self.pushed: set[int] = set()

    def keep_old(self, begin: int, end: int) -> None:
        """Before [begin, end) changes: remember what the device has there."""
        old, cache, pushed = self.old, self.cache, self.pushed
        for page in range(begin // PAGE, -(-end // PAGE)):
            if page not in old:
                old[page] = bytes(cache[page * PAGE : page * PAGE + PAGE])
            elif pushed:
                pushed.discard(page)

    def write(self, data: Any, offset: int) -> None:
        view = memoryview(data)
        end = offset + view.nbytes
        self.keep_old(offset, end)
        if end > len(self.cache):
            self.cache.extend(bytes(end - len(self.cache)))
        self.cache[offset:end] = view
        self.allocated = max(self.allocated, end)

    def resize(self, length: int) -> None:
        if length < len(self.cache):
            self.keep_old(length, len(self.cache))
            del self.cache[length:]
        else:
            self.cache.extend(bytes(length - len(self.cache)))

    def sync(self) -> None:
        self.old.clear()
        self.pushed.clear()
        self.device_size = len(self.cache)

    def put_back(self, page: int, content: bytes) -> None:
        """Let the cache say what the device has of a page."""
        begin = page * PAGE
        end = min(begin + PAGE, len(self.cache))
        if begin < end:
            self.cache[begin:end] = content[: end - begin].ljust(end - begin, b"\0")


class Disk:
    """One machine's disk; outlives the processes that use it."""

    free_bytes = 1 << 62

    def __init__(self, random: Random) -> None:
        self.boots = 1  # of its machine
        self.folders: set[str] = set()
        self.locks: dict[str, Process] = {}
        self._random = random
        self._names: dict[str, Inode] = {}
        self._changes: dict[str, list[dict[str, Inode | None]]] = {}  # by folder, since its last sync
        self._pushed: list[Inode] = []

    # -- names --

    def inode(self, path: str) -> Inode | None:
        return self._names.get(path)

    def paths(self) -> list[str]:
        return sorted(self._names)

    def change_names(self, change: dict[str, Inode | None]) -> None:
        """Names that change in one step: a folder's journal keeps or loses them together."""
        folder = os.path.dirname(next(iter(change)))
        self._changes.setdefault(folder, []).append({path: self._names.get(path) for path in change})
        self._put_names(change)

    def _put_names(self, names: dict[str, Inode | None]) -> None:
        for path, inode in names.items():
            if inode is None:
                self._names.pop(path, None)
            else:
                self._names[path] = inode

    def new_inode(self) -> Inode:
        return Inode()

    def sync_folder(self, folder: str) -> None:
        self._changes.pop(folder, None)

    # -- what happens to a machine --

    def on_process_died(self, process: Process) -> None:
        """The kernel takes its locks back; pages stay."""
        self.locks = {path: owner for path, owner in self.locks.items() if owner is not process}

    def power_cut(self) -> None:
        """All that is not on the device is gone, or half of it is."""
        self.boots += 1
        self.locks.clear()
        for folder in sorted(self._changes):
            steps = self._changes[folder]
            kept = self._random.randint(0, len(steps))  # a journal keeps its order
            for before in reversed(steps[kept:]):
                self._put_names(before)
        self._changes.clear()
        self._pushed.clear()
        for path in sorted(self._names):
            self._cut_power_of(self._names[path])

    def _cut_power_of(self, inode: Inode) -> None:
        random = self._random
        size = len(inode.cache)
        if size > inode.device_size and random.random() < 0.5:
            size = random.choice([inode.device_size, random.randint(inode.device_size, size)])
        for page in sorted(inode.old):
            fate = random.random()
            if fate < 0.4:
                inode.put_back(page, inode.old[page])
            elif fate < 0.7:
                self._tear(inode, page, inode.old[page])
        if size < len(inode.cache):
            del inode.cache[size:]
        inode.sync()

    def _tear(self, inode: Inode, page: int, old: bytes) -> None:
        """Some sectors of the page were written, others not."""
        old = old.ljust(PAGE, b"\0")
        for sector in range(0, PAGE, SECTOR):
            begin = page * PAGE + sector
            end = min(begin + SECTOR, len(inode.cache))
            if begin < end and self._random.random() < 0.5:
                inode.cache[begin:end] = old[sector : sector + end - begin]

    def wipe(self) -> None:
        """A new, empty disk."""
        self.folders.clear()
        self.locks.clear()
        self._names.clear()
        self._changes.clear()
        self._pushed.clear()

    # -- called by files --

    def file(
        self, process: Process, path: str, inode: Inode, is_writable: bool, number: int
    ) -> SimulatedFile:
        """The file at a path, opened by a process."""
        return SimulatedFile(self, process, path, inode, is_writable, number)

    def sync_directory(self, path: str, process: Process) -> None:
        process.spend(SYNC_NS)
        self.sync_folder(path)
        self.flush_device()

    def flush_device(self) -> None:
        for inode in self._pushed:
            for page in inode.pushed:
                inode.old.pop(page, None)
            inode.pushed.clear()
        self._pushed.clear()

    def push(self, inode: Inode, offset: int, length: int) -> None:
        dirty = [page for page in range(offset // PAGE, -(-(offset + length) // PAGE)) if page in inode.old]
        if dirty:
            inode.pushed.update(dirty)
            self._pushed.append(inode)

    def write_back(self, inode: Inode, offset: int, length: int) -> None:
        """Some of the dirty pages of the range reach the device at once."""
        for page in range(offset // PAGE, -(-(offset + length) // PAGE)):
            if page in inode.old and page not in inode.pushed and self._random.random() < 0.3:
                del inode.old[page]


class SimulatedFile:
    """``File`` of one process."""

    __slots__ = ("__weakref__", "_disk", "_inode", "_is_writable", "_number", "_process", "path")

    is_pushed_in_place = True

    def __init__(
        self, disk: Disk, process: Process, path: str, inode: Inode, is_writable: bool, number: int
    ) -> None:
        self.path = path
        self._number = number
        self._disk = disk
        self._process = process
        self._inode = inode
        self._is_writable = is_writable

    def _begin(self, duration_ns: int) -> None:
        self._process.effect()
        self._process.spend(duration_ns)

    def pread(self, length: int, offset: int) -> bytes:
        self._process.spend(READ_NS)
        with memoryview(self._inode.cache) as cache, cache[offset : offset + length] as data:
            return bytes(data)  # of one copy: a second one of a whole file costs a millisecond

    def pread_into(self, buffer: Any, offset: int) -> int:
        self._process.spend(READ_NS)
        view = memoryview(buffer)
        with memoryview(self._inode.cache) as cache:
            data = cache[offset : offset + len(view)]
            view[: len(data)] = data
            count = len(data)
            data.release()
        return count

    def pwrite(self, data: Any, offset: int) -> None:
        self._begin(WRITE_NS)
        assert self._is_writable
        self._inode.write(data, offset)

    def size(self) -> int:
        return len(self._inode.cache)

    def fileno(self) -> int:
        return self._number

    def allocate(self, length: int) -> None:
        self._begin(WRITE_NS)
        inode = self._inode
        inode.allocated = max(inode.allocated, length)
        if length > len(inode.cache):
            inode.resize(length)

    def resize(self, length: int) -> None:
        self._begin(WRITE_NS)
        self._inode.resize(length)

    def start_writeback(self, offset: int, length: int) -> None:
        self._begin(WRITE_NS)
        self._disk.write_back(self._inode, offset, length)

    def uncache(self, offset: int, length: int) -> None:
        pass

    def push(self, offset: int, length: int) -> None:
        self._begin(WRITE_NS)
        self._disk.push(self._inode, offset, length)

    def datasync(self) -> None:
        self._begin(SYNC_NS)
        self._inode.sync()
        self._disk.flush_device()

    fullsync = datasync

    def close(self) -> None:
        pass


class _Lock:
    def __init__(self, disk: Disk, path: str, process: Process) -> None:
        self._disk = disk
        self._path = path
        self._process = process

    def release(self) -> None:
        if self._disk.locks.get(self._path) is self._process:
            del self._disk.locks[self._path]


class SimulatedFiles:
    """``Files`` of one process on a disk."""

    def __init__(self, disk: Disk, process: Process, process_id: int) -> None:
        self.disk = disk
        self._process = process
        self._process_id = process_id
        self._number = 1_000_000
        self._by_number: WeakValueDictionary[int, SimulatedFile] = WeakValueDictionary()
        self.calls = FileCalls(self._by_number)

    def open(self, path: str, *, write: bool = False, create: bool = False) -> SimulatedFile:
        inode = self.disk.inode(path)
        if create:
            self._process.effect()
            if inode is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            if os.path.dirname(path) not in self.disk.folders:
                raise _not_found(path)
            inode = self.disk.new_inode()
            self.disk.change_names({path: inode})
        elif inode is None:
            raise _not_found(path)
        self._number += 1
        file = self.disk.file(self._process, path, inode, write or create, self._number)
        self._by_number[self._number] = file
        return file

    def exists(self, path: str) -> bool:
        return self.disk.inode(path) is not None or path in self.disk.folders

    def is_directory(self, path: str) -> bool:
        return path in self.disk.folders

    def list_directory(self, path: str) -> list[str]:
        if path not in self.disk.folders:
            raise _not_found(path)
        names = [*self.disk.paths(), *sorted(self.disk.folders)]
        return [os.path.basename(name) for name in names if os.path.dirname(name) == path]

    def make_directory(self, path: str) -> None:
        while path and path not in self.disk.folders and path != "/":
            self.disk.folders.add(path)
            path = os.path.dirname(path)

    def rename(self, path: str, new_path: str) -> None:
        self._process.effect()
        inode = self.disk.inode(path)
        if inode is None:
            raise _not_found(path)
        self.disk.change_names({path: None, new_path: inode})

    def unlink(self, path: str) -> None:
        self._process.effect()
        if self.disk.inode(path) is None:
            raise _not_found(path)
        self.disk.change_names({path: None})

    def sync_directory(self, path: str) -> None:
        self._process.effect()
        self.disk.sync_directory(path, self._process)

    def lock(self, path: str) -> _Lock | None:
        owner = self.disk.locks.get(path)
        if owner is not None and owner.is_alive:
            return None
        if self.disk.inode(path) is None:
            self.open(path, create=True)
        self.disk.locks[path] = self._process
        return _Lock(self.disk, path, self._process)

    def space(self, path: str) -> DiskSpace:
        return DiskSpace(self.disk.free_bytes, TOTAL_BYTES)

    def process_id(self) -> int:
        return self._process_id


def _not_found(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
