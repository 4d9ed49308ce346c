"""What goes wrong with disks, beside power cuts: ``cluster.testing.disk`` with faults, switched on per disk.

failed sync    the pages count as clean and are not on the device (what Linux does): they read back well
               until the cache drops them
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from random import Random
from typing import Any
from zlib import crc32

from cluster.testing.disk import (
    PAGE,
    READ_NS,
    SYNC_NS,
    WRITE_NS,
    Disk,
    Inode,
    SimulatedFile,
)
from cluster.testing.world import Process
from tests.simulation.world import Effect, World


@dataclass(slots=True)
class DiskFaults:
    """What goes wrong now."""

    is_full: bool = False  # no new block can be had
    free_bytes: int = 1 << 62  # what is said to be free
    writes_fail: bool = False  # EIO
    syncs_fail: bool = False  # EIO, and the pages count as clean
    sync_failures: int = 0  # so many more,
    spares_pushes: bool = False  # or rather: of those that wait for the device's cache to be flushed
    slowness: int = 1  # factor on all times
    misdirected_writes: int = 0  # so many more land a few pages off,
    misdirected_in: str = ""  # of files whose paths begin so


class FaultyInode(Inode):
    """A file, some of whose pages the device has lost or cannot read."""

    __slots__ = ("bad", "lost")

    def __init__(self) -> None:
        super().__init__()
        self.lost: dict[int, bytes] = {}  # as ``old``, of pages that count as clean and are not
        self.bad: list[tuple[int, int]] = []  # ranges that cannot be read

    def keep_old(self, begin: int, end: int) -> None:
        for page in range(begin // PAGE, -(-end // PAGE)) if self.lost else ():
            if page not in self.old and (lost := self.lost.pop(page, None)) is not None:
                self.old[page] = lost
        super().keep_old(begin, end)

    def drop_cache(self) -> None:
        """Clean pages are read from the device again."""
        for page in sorted(self.lost):
            self.put_back(page, self.lost[page])
        self.lost.clear()

    def is_durable(self, begin: int, end: int) -> bool:
        """Whether a power cut now would keep [begin, end) as it reads."""
        if end > self.device_size:
            return False
        if not self.old and not self.lost:
            return True
        for page in range(begin // PAGE, -(-end // PAGE)):
            held = self.old.get(page, self.lost.get(page))
            if held is not None:
                base = page * PAGE
                first, last = max(begin, base), min(end, base + PAGE)
                if self.cache[first:last] != held[first - base : last - base].ljust(last - first, b"\0"):
                    return False
        return True


class FaultyDisk(Disk):
    """A disk that does what its ``faults`` say."""

    def __init__(self, world: World, random: Random) -> None:
        super().__init__(random)
        self.world = world
        self.faults = DiskFaults()

    @property
    def free_bytes(self) -> int:  # type: ignore[override]
        return self.faults.free_bytes

    def new_inode(self) -> FaultyInode:
        return FaultyInode()

    def file(self, process: Process, path: str, inode: Inode, is_writable: bool, number: int) -> FaultyFile:
        return FaultyFile(self, process, path, inode, is_writable, number)

    def _cut_power_of(self, inode: FaultyInode) -> None:
        inode.drop_cache()
        super()._cut_power_of(inode)

    def drop_caches(self) -> None:
        """Those of a failed sync now show what is there."""
        for path in self.paths():
            self.inode(path).drop_cache()

    def settle(self) -> None:
        """The kernel has written all back in its own time, but for what is newest in each file."""
        self._changes.clear()
        for path in self.paths():
            inode = self.inode(path)
            for page in sorted(inode.old)[: -self._random.randint(1, 4)]:
                del inode.old[page]
            inode.device_size = len(inode.cache)

    def sync_directory(self, path: str, process: Process) -> None:
        process.spend(SYNC_NS * (self.faults.slowness - 1))
        if self.faults.syncs_fail:
            process.spend(SYNC_NS)
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        super().sync_directory(path, process)

    def misdirect(self, offset: int, size: int) -> int:
        pages = max(size // PAGE, 1)
        return (offset + self._random.randrange(1, 4) * PAGE) % (pages * PAGE)


class FaultyFile(SimulatedFile):
    """A file of a ``FaultyDisk``; what is written is an effect of its world."""

    _disk: FaultyDisk
    _inode: FaultyInode

    def _error(self, number: int) -> OSError:
        return OSError(number, os.strerror(number), self.path)

    def _begin(self, duration_ns: int) -> None:
        super()._begin(duration_ns * self._disk.faults.slowness)

    def pread(self, length: int, offset: int) -> bytes:
        self._check_readable(offset, length)
        return super().pread(length, offset)

    def pread_into(self, buffer: Any, offset: int) -> int:
        self._check_readable(offset, min(len(memoryview(buffer)), self.size() - offset))
        return super().pread_into(buffer, offset)

    def _check_readable(self, offset: int, length: int) -> None:
        for begin, end in self._inode.bad:
            if begin < offset + length and offset < end:
                self._process.spend(READ_NS)
                raise self._error(errno.EIO)

    def pwrite(self, data: Any, offset: int) -> None:
        self._begin(WRITE_NS)
        assert self._is_writable
        inode, faults = self._inode, self._disk.faults
        view = memoryview(data)
        if faults.writes_fail:
            whole = (offset + len(view) // 2) // PAGE * PAGE - offset  # a page is copied or it is not
            if whole > 0:
                inode.write(view[:whole], offset)
            raise self._error(errno.EIO)
        if faults.is_full and offset + len(view) > inode.allocated:
            fits = max(inode.allocated - offset, 0)
            if fits:
                inode.write(view[:fits], offset)
            raise self._error(errno.ENOSPC)
        if faults.misdirected_writes and self.path.startswith(faults.misdirected_in):
            faults.misdirected_writes -= 1
            offset = self._disk.misdirect(offset, len(inode.cache))
        self._disk.world.effects.add(Effect.WROTE, offset, len(view), crc32(view))
        inode.write(view, offset)

    def allocate(self, length: int) -> None:
        if length > self._inode.allocated and self._disk.faults.is_full:
            self._begin(WRITE_NS)
            raise self._error(errno.ENOSPC)
        super().allocate(length)

    def push(self, offset: int, length: int) -> None:
        self._begin(WRITE_NS)
        if not self._disk.faults.spares_pushes:
            self._fail_if_asked()
        self._disk.push(self._inode, offset, length)

    def datasync(self) -> None:
        self._begin(SYNC_NS)
        self._fail_if_asked()
        self._inode.sync()
        self._disk.flush_device()

    fullsync = datasync

    def _fail_if_asked(self) -> None:
        faults, inode = self._disk.faults, self._inode
        if faults.syncs_fail or faults.sync_failures:
            faults.sync_failures = max(faults.sync_failures - 1, 0)
            inode.lost.update(inode.old)
            inode.old.clear()
            inode.pushed.clear()
            raise self._error(errno.EIO)
