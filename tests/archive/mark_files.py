"""Mark files of a member, and of another process that wrote one."""

from __future__ import annotations

from pathlib import Path

from cluster.archive.files import OsFiles
from cluster.archive.mark_files import ClusterMarkFile
from cluster.protocol.enums import ClusterComponentType
from tests.archive.logs import T0


def mark(directory: Path, now_ms: int = T0) -> ClusterMarkFile:
    return ClusterMarkFile.create(
        str(directory),
        files=OsFiles(),
        component_type=ClusterComponentType.CONSENSUS_MODULE,
        now_ms=now_ms,
        cluster_id=3,
        member_id=2,
        aeron_directory="/driver",
    )


def leave_mark_of_another_process(directory: Path, activity: int) -> None:
    mark(directory).abandon()
    with (directory / "cluster-mark.dat").open("r+b") as file:
        file.seek(16)
        file.write(activity.to_bytes(8, "little"))
        file.seek(32)
        file.write((4242).to_bytes(8, "little"))
