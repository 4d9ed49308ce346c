"""Directories of members that lived in memory: what a simulated cluster has on its disks, as files."""

from __future__ import annotations

from pathlib import Path

from cluster.testing import SimulatedCluster

PAGE = 1 << 16


def write_out(cluster: SimulatedCluster, folder: Path) -> str:
    """Write ``member-N`` of each member into ``folder``, with holes where zeros are; return ``folder``."""
    for disk in cluster._disks:
        for path in disk.paths():
            content = bytes(disk.inode(path).cache)
            file = folder / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("wb") as out:
                for begin in range(0, len(content), PAGE):
                    if any(page := content[begin : begin + PAGE]):
                        out.seek(begin)
                        out.write(page)
                out.truncate(len(content))
    return str(folder)
