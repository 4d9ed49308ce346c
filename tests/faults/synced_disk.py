"""A member on a disk that can lose power: what it has synced is kept a second time, beside its directory.

    python -m tests.faults.synced_disk --config node.toml     runs the member, its image in DIR.synced
    restore(DIR)                                              the power is back: DIR is what was synced

A write reaches the image with the sync of its file, a name with the sync of its directory, and nothing else
does: no page that the kernel happened to write, no file whose directory was not synced. That is the harshest
that a disk may be. SIGKILL finds the image between two syncs, or half way through the last one, as the power
cut would.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from cluster.archive.files import Buffer, OsFile, OsFiles
from cluster.node import node as member_node
from cluster.node.config_text import load

SUFFIX = ".synced"


class SyncedFiles(OsFiles):
    """The real files, with the image kept along."""

    def __init__(self) -> None:
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

    def content(self, inode: int) -> Path:
        """What is synced of a file, by its number: it keeps its content whatever it is called."""
        return self.image / f"{inode}.content"

    def open(self, path: str, *, write: bool = False, create: bool = False) -> OsFile:
        plain = super().open(path, write=write, create=create)
        file = SyncedFile(self, path, plain._fd)
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

    __slots__ = ("_files", "_length", "_unsynced", "inode")

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
