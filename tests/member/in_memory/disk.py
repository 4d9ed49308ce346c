"""A disk in memory behind ``cluster.archive.files.Files``.

What is written can be read at once (the page cache); what is synced survives a power cut; of the rest each
4 KiB page survives or not, as chance has it. A process that is killed loses nothing that it wrote. Names that
are made, changed or removed survive a power cut once their directory is synced.
"""

from __future__ import annotations

import errno
import os
from random import Random

PAGE = 4096


class SimulatedLock:
    def __init__(self, disk: SimulatedDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locked.discard(self._path)


class _Inode:
    """Content as the process sees it, and for each page written since the last sync what the disk holds."""

    __slots__ = ("content", "durable_pages", "durable_size")

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable_pages: dict[int, bytes] = {}
        self.durable_size = 0

    def remember(self, offset: int, length: int) -> None:
        for page in range(offset // PAGE, (offset + length + PAGE - 1) // PAGE):
            if page not in self.durable_pages:
                self.durable_pages[page] = bytes(self.content[page * PAGE : (page + 1) * PAGE])

    def sync(self) -> None:
        self.durable_pages.clear()
        self.durable_size = len(self.content)

    def lose(self, random: Random) -> None:
        for page, durable in sorted(self.durable_pages.items()):
            if random.random() < 0.5:
                begin = page * PAGE
                padded = durable.ljust(min(PAGE, len(self.content) - begin), b"\0")
                self.content[begin : begin + len(padded)] = padded
        if random.random() < 0.5 and self.durable_size < len(self.content):
            del self.content[self.durable_size :]
        self.sync()


class SimulatedFile:
    def __init__(self, disk: SimulatedDisk, path: str, inode: _Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode

    def pread(self, length: int, offset: int) -> bytes:
        return bytes(self._inode.content[offset : offset + length])

    def pread_into(self, buffer, offset: int) -> int:  # type: ignore[no-untyped-def]
        view = memoryview(buffer).cast("B")
        piece = self._inode.content[offset : offset + len(view)]
        view[: len(piece)] = piece
        return len(piece)

    def pwrite(self, data, offset: int) -> None:  # type: ignore[no-untyped-def]
        view = memoryview(data).cast("B")
        inode = self._inode
        end = offset + len(view)
        inode.remember(offset, len(view))
        if len(inode.content) < end:
            inode.content.extend(bytes(end - len(inode.content)))
        inode.content[offset:end] = view

    def size(self) -> int:
        return len(self._inode.content)

    def allocate(self, length: int) -> None:
        if len(self._inode.content) < length:
            self._inode.content.extend(bytes(length - len(self._inode.content)))

    def resize(self, length: int) -> None:
        content = self._inode.content
        if len(content) < length:
            content.extend(bytes(length - len(content)))
        else:
            self._inode.remember(length, len(content) - length)
            del content[length:]

    def start_writeback(self, offset: int, length: int) -> None:
        pass

    def push(self, offset: int, length: int) -> None:
        self._disk.sync_count += 1
        for page in range(offset // PAGE, (offset + length + PAGE - 1) // PAGE):
            self._inode.durable_pages.pop(page, None)

    def datasync(self) -> None:
        self._disk.sync_count += 1
        self._inode.sync()

    def fullsync(self) -> None:
        self.datasync()

    def close(self) -> None:
        pass


class SimulatedDisk:
    """The file system of one member."""

    def __init__(self, random: Random, process_id: int = 1) -> None:
        self._random = random
        self._inodes: dict[str, _Inode] = {}
        self._durable_names: dict[str, _Inode] = {}
        self._directories: set[str] = set()
        self.locked: set[str] = set()
        self.sync_count = 0
        self._process_id = process_id

    # ---- Files

    def open(self, path: str, *, write: bool = False, create: bool = False) -> SimulatedFile:
        if create:
            if path in self._inodes:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            self._inodes[path] = _Inode()
        elif path not in self._inodes:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return SimulatedFile(self, path, self._inodes[path])

    def exists(self, path: str) -> bool:
        return path in self._inodes or path in self._directories

    def is_directory(self, path: str) -> bool:
        return path in self._directories

    def list_directory(self, path: str) -> list[str]:
        prefix = f"{path}/"
        names = {name[len(prefix) :].split("/")[0] for name in self._inodes if name.startswith(prefix)}
        return sorted(names)

    def make_directory(self, path: str) -> None:
        self._directories.add(path)

    def rename(self, path: str, new_path: str) -> None:
        self._inodes[new_path] = self._inodes.pop(path)

    def unlink(self, path: str) -> None:
        if path not in self._inodes:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        del self._inodes[path]

    def sync_directory(self, path: str) -> None:
        self.sync_count += 1
        prefix = f"{path}/"
        for name in [name for name in self._durable_names if name.startswith(prefix)]:
            if name not in self._inodes:
                del self._durable_names[name]
        for name, inode in self._inodes.items():
            if name.startswith(prefix):
                self._durable_names[name] = inode

    def lock(self, path: str) -> SimulatedLock | None:
        if path in self.locked:
            return None
        self.locked.add(path)
        if path not in self._inodes:
            self._inodes[path] = self._durable_names[path] = _Inode()
        return SimulatedLock(self, path)

    def process_id(self) -> int:
        return self._process_id

    # ---- faults

    def kill(self) -> None:
        """The process dies: its locks go, what it wrote stays."""
        self.locked.clear()
        self._process_id += 1

    def power_cut(self) -> None:
        """What was not synced is lost, or not, page by page and name by name."""
        self.kill()
        for name, inode in sorted(self._durable_names.items()):
            if name not in self._inodes and self._random.random() < 0.5:
                self._inodes[name] = inode
        for name in [name for name in sorted(self._inodes) if name not in self._durable_names]:
            if self._random.random() < 0.5:
                del self._inodes[name]
        for _, inode in sorted(self._inodes.items()):
            inode.lose(self._random)
        self._durable_names = dict(self._inodes)

    def wipe(self) -> None:
        """An empty disk."""
        self.kill()
        self._inodes.clear()
        self._durable_names.clear()
        self._directories.clear()
