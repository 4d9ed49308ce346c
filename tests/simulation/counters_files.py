"""cnc.dat on a simulated disk, as readers on its machine map it."""

from cluster.counters import CountersReader
from cluster.errors import NotAClusterDirectory
from cluster.protocol.cnc import decode_cnc_header
from cluster.protocol.counter_types import CounterTypeId
from cluster.testing.disk import Disk


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
