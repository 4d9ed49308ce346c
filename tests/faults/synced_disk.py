"""A member on a disk that can lose power: what it has synced is kept a second time, beside its directory.

    python -m tests.faults.synced_disk --config node.toml     runs the member, its image in DIR.synced
    restore(DIR)                                              the power is back: DIR is what was synced

A write reaches the image with the sync of its file, a name with the sync of its directory, and nothing else
does: no page that the kernel happened to write, no file whose directory was not synced. That is the harshest
that a disk may be. SIGKILL finds the image between two syncs, or half way through the last one, as the power
cut would.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from weakref import WeakValueDictionary

from cluster.archive.file_calls import START_WRITING
from cluster.archive.files import Buffer, OsFile, OsFiles, open_regular
from cluster.log.calls import SYNC, SYNC_DATA, SYNC_RANGE, WRITE, SystemCalls
from cluster.node import node as member_node
from cluster.node.config_text import load
from cluster.testing.python_calls import put_call

SUFFIX = ".synced"


OPEN: WeakValueDictionary[int, SyncedFile] = WeakValueDictionary()  # by descriptor


class SyncedFiles(OsFiles):
    """The real files, with the image kept along."""

    def __init__(self) -> None:
        self._calls = SyncedCalls()
        path = sys.argv[sys.argv.index("--config") + 1]
        self.directory = load(path).path
        self.image = self.directory.with_name(self.directory.name + SUFFIX)
        self.pushed: list[tuple[int, bytes, int]] = []
        shutil.rmtree(self.image, ignore_errors=True)
        self.image.mkdir()
        for folder, _, names in os.walk(self.directory):  # what an earlier life left is on the disk
            for name in names:
                path = Path(folder, name)
                if path.is_file():
                    shutil.copyfile(path, self.content(path.stat().st_ino))
            self._keep_names(folder)

    @property
    def calls(self) -> SyncedCalls:
        return self._calls

    def content(self, inode: int) -> Path:
        """What is synced of a file, by its number: it keeps its content whatever it is called."""
        return self.image / f"{inode}.content"

    def open(self, path: str, *, write: bool = False, create: bool = False) -> OsFile:
        fd = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_EXCL if create else os.O_RDWR if write else 0)
        file = OPEN[fd] = SyncedFile(self, path, fd)
        if create:  # the number may have been another file's
            self.content(file.inode).unlink(missing_ok=True)
        return file

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        self._keep_names(path)

    def _keep_names(self, path: str) -> None:
        names = {entry.name: entry.inode() for entry in os.scandir(path) if entry.is_file()}
        listing = self.image / (os.path.relpath(path, self.directory).replace("/", ":") + ".names")
        listing.with_suffix(".new").write_text(json.dumps(names))
        listing.with_suffix(".new").replace(listing)

    def apply(self, inode: int, data: bytes, offset: int) -> None:
        fd = os.open(self.content(inode), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.pwrite(fd, data, offset)
        finally:
            os.close(fd)


class SyncedFile(OsFile):
    """A file that remembers what it has not synced."""

    __slots__ = ("__weakref__", "_files", "_unsynced", "inode")

    def __init__(self, files: SyncedFiles, path: str, fd: int) -> None:
        super().__init__(path, fd)
        self._files = files
        self._unsynced: list[tuple[bytes, int]] = []
        self.inode = os.fstat(fd).st_ino

    def pwrite(self, data: Buffer, offset: int) -> None:
        super().pwrite(data, offset)
        self._unsynced.append((bytes(data), offset))

    def push(self, offset: int, length: int) -> None:
        """With the device, and durable by whichever sync comes next."""
        super().push(offset, length)
        self._files.pushed += [(self.inode, data, at) for data, at in self._unsynced]
        self._unsynced.clear()

    def datasync(self) -> None:
        super().datasync()
        self._keep()

    def fullsync(self) -> None:
        super().fullsync()
        self._keep()

    def _keep(self) -> None:
        files = self._files
        for inode, data, offset in files.pushed:
            files.apply(inode, data, offset)
        files.pushed.clear()
        for data, offset in self._unsynced:
            files.apply(self.inode, data, offset)
        self._unsynced.clear()
        os.truncate(_made(files.content(self.inode)), self.size())


class SyncedCalls(SystemCalls):
    """The system's calls, but those to files go through ``SyncedFile`` as Python's do."""

    def __init__(self) -> None:
        super().__init__()
        self._kept = [
            self._put(WRITE, 4, self._write),
            self._put(SYNC_DATA, 1, lambda file: OPEN[file].datasync()),
            self._put(SYNC, 1, lambda file: OPEN[file].fullsync()),
            self._put(SYNC_RANGE, 4, self._sync_range),
        ]

    def _put(self, place: int, count: int, function: Callable[..., int | None]) -> object:
        def call(*arguments: int) -> int:
            try:
                return function(*arguments) or 0
            except BaseException:  # which cannot pass through compiled code, nor be what the test is about
                traceback.print_exc()
                os.abort()

        return put_call(self.table, place, call, count)

    def _write(self, file: int, buffer: int, length: int, offset: int) -> int:
        OPEN[file].pwrite(ctypes.string_at(buffer, length), offset)
        return length

    def _sync_range(self, file: int, offset: int, length: int, flags: int) -> None:
        (OPEN[file].start_writeback if flags == START_WRITING else OPEN[file].push)(offset, length)


def _made(path: Path) -> Path:
    path.touch()
    return path


def restore(directory: Path) -> None:
    """Put what was synced in the place of a member's directory; its counters are gone with the power."""
    image = directory.with_name(directory.name + SUFFIX)
    shutil.rmtree(directory)
    for listing in image.glob("*.names"):
        folder = directory / listing.stem.replace(":", "/")
        folder.mkdir(parents=True, exist_ok=True)
        for name, inode in json.loads(listing.read_text()).items():
            content = image / f"{inode}.content"
            if content.exists():
                shutil.copyfile(content, folder / name)
            else:
                (folder / name).touch()
    shutil.rmtree(image)


if __name__ == "__main__":
    from cluster.cli.main import main

    member_node.OsFiles = SyncedFiles  # type: ignore[misc]
    sys.argv.insert(1, "node")
    sys.exit(main())
