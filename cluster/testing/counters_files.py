"""cnc.dat on a simulated disk: written by a member's process, mapped by readers on its machine."""

import os

from cluster.counters import CountersFile, CountersReader
from cluster.errors import NotAClusterDirectory
from cluster.protocol.cnc import decode_cnc_header
from cluster.protocol.counter_types import CounterTypeId
from cluster.testing.disk import Disk


def create_counters(disk: Disk, path: str, *, pid: int, now_ms: int) -> CountersFile:
    """A new file in the place of the one before. Stores into a mapping are no effects of their process."""
    counters = CountersFile.in_memory(pid=pid, now_ms=now_ms)
    inode = disk.new_inode()
    inode.cache = counters._buffer.obj  # type: ignore[assignment]
    inode.device_size = len(inode.cache)
    folder = os.path.dirname(path)
    disk.folders.add(folder)
    disk.change_names({path: inode})
    disk.sync_folder(folder)
    return counters


class SimulatedCounters(CountersReader):
    """The file that is at a path now, mapped."""

    def __init__(self, disk: Disk, path: str) -> None:
        inode = disk.inode(path)
        if inode is None:
            raise NotAClusterDirectory(f"{path}: no counters file is here")
        self._disk = disk
        self._mapped_inode = inode
        header = decode_cnc_header(inode.cache, len(inode.cache))
        super(CountersReader, self).__init__(memoryview(inode.cache), header, path)

    def is_replaced(self) -> bool:
        return self._disk.inode(self.path) not in (None, self._mapped_inode)

    def close(self) -> None:
        self._release()


def stored_commit_position(disk: Disk, path: str) -> int:
    """The commit position in a counters file, whoever wrote it and whether it lives; 0 without a file."""
    if disk.inode(path) is None:
        return 0
    with SimulatedCounters(disk, path) as counters:
        found = counters.find(CounterTypeId.COMMIT_POSITION)
        return 0 if found is None else found.get()
