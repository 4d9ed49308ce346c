"""What ``cluster up`` says of members that end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cluster.archive.directory_lock import DirectoryLock
from cluster.archive.files import OsFiles
from cluster.cli import up
from cluster.protocol.mark_file import CLUSTER_MARK_FILE_NAME
from cluster.transport.clock import epoch_ms


def a_member(folder: Path, member_id: int, status: int | None) -> Any:
    path = folder / f"member-{member_id}" / "cluster"
    path.mkdir(parents=True)
    config = SimpleNamespace(path=path.parent, cluster_path=path)
    return SimpleNamespace(member_id=member_id, pid=7, status=status, error="", config=config)


def test_a_member_that_somebody_else_has_started_again_is_counted_among_those_that_go_on(tmp_path, capsys):
    members = [a_member(tmp_path, member_id, status) for member_id, status in enumerate((-9, -9, None))]
    locks = [
        DirectoryLock.take(OsFiles(), str(members[i].config.cluster_path), CLUSTER_MARK_FILE_NAME, epoch_ms())
        for i in (0, 2)
    ]
    supervisor: Any = SimpleNamespace(members=members, running=[members[2]], is_asked_to_stop=False)
    up._report(supervisor, [members[1]])
    assert capsys.readouterr().err == (
        "member 1 (pid 7) was ended by signal 9; 2 of 3 members go on; "
        f"to start it again: cluster node --config {tmp_path / 'member-1' / 'node.toml'}\n"
    )
    for lock in locks:
        lock.release()
