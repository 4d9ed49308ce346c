"""A member whose disk fails it: its process lives, others lead, and it comes back with what they have."""

from __future__ import annotations

import ctypes
import errno
import os
import time

import pytest

from cluster import ClusterClient, ClusterNode
from cluster.archive.archive import Archive
from cluster.archive.files import OsFile, OsFiles
from cluster.log.calls import SYNC_DATA, SystemCalls
from tests.node.processes import await_that, free_base_port
from tests.node.three import Three, check_level, damage, numbers_in, said, send


class Disks:
    """Errors by folder, for real files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failing: dict[str, int] = {}  # syncs under a folder that fail yet
        self.full: set[str] = set()
        datasync, allocate = OsFile.datasync, OsFile.allocate
        disks = self

        def failing_datasync(file: OsFile) -> None:
            for folder, left in disks.failing.items():
                if left and file.path.startswith(folder) and file.path.endswith(".rec"):
                    disks.failing[folder] -= 1
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
            datasync(file)

        def failing_allocate(file: OsFile, length: int) -> None:
            if any(file.path.startswith(folder) for folder in disks.full):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            allocate(file, length)

        calls = SystemCalls()
        self._sync = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, use_errno=True)(self._failing_call)
        calls.table[SYNC_DATA] = ctypes.cast(self._sync, ctypes.c_void_p).value
        monkeypatch.setattr(OsFiles, "calls", calls)
        monkeypatch.setattr(OsFile, "datasync", failing_datasync)
        monkeypatch.setattr(OsFile, "allocate", failing_allocate)

    def _failing_call(self, descriptor: int) -> int:
        """What compiled code calls: as ``failing_datasync``."""
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        for folder, left in self.failing.items():
            if left and path.startswith(folder) and path.endswith(".rec"):
                self.failing[folder] -= 1
                ctypes.set_errno(errno.EIO)
                return -1
        os.fdatasync(descriptor)
        return 0


@pytest.fixture
def disks(monkeypatch):
    return Disks(monkeypatch)


def test_a_leader_whose_sync_fails_steps_down_at_once_lives_and_comes_back_level(tmp_path, opened, disks):
    cluster = Three(tmp_path, opened)
    failed = await_that(cluster.leader, "a leader")
    segment = failed.config.archive_path / "0-0.rec"
    with ClusterClient.connect(cluster.endpoints) as client:
        send(client, 100)
        client.await_committed(20)
        inode = segment.stat().st_ino
        disks.failing[str(failed.config.path)] = 1
        begin = time.monotonic()
        send(client, 100)
        await_that(lambda: cluster.leader() not in (None, failed), "another leads")
        assert time.monotonic() - begin < 5, "nobody waited for a heartbeat of 10 s"
        client.await_committed(20)
        send(client, 100)
        client.await_committed(20)

    check_level(cluster, 300)
    assert "0-0.rec: writing the recording failed: Input/output error" in said(failed)
    assert "is started again" in said(failed)
    assert segment.stat().st_ino != inode, "the pages that failed are written again"


def test_a_full_disk_stops_a_member_until_it_has_room_and_no_longer(tmp_path, opened, disks):
    cluster = Three(tmp_path, opened, archive_segment_file_length=64 * 1024)
    full = await_that(cluster.leader, "a leader")
    with ClusterClient.connect(cluster.endpoints) as client:
        disks.full.add(str(full.config.archive_path))
        send(client, 300, 1_000)
        client.await_committed(20)
        await_that(lambda: "No space left on device" in said(full), "it says what is wrong")
        await_that(lambda: "the disk is still full" in said(full), "it looks whether there is room")
        assert full.is_running
        assert full is not cluster.leader()
        assert not full.terminate_cluster(), "it leads nothing"
        disks.full.clear()
        send(client, 10, 1_000)
        client.await_committed(20)

    check_level(cluster, 310)


def test_a_follower_with_a_full_disk_costs_the_others_nothing(tmp_path, opened, disks):
    cluster = Three(tmp_path, opened, archive_segment_file_length=64 * 1024)
    leader = await_that(cluster.leader, "a leader")
    full = next(node for node in cluster.nodes if node is not leader)
    with ClusterClient.connect(cluster.endpoints) as client:
        disks.full.add(str(full.config.archive_path))
        send(client, 300, 1_000)
        client.await_committed(20)
        assert cluster.leader() is leader
        await_that(lambda: "the disk is still full" in said(full), "it looks whether there is room")
        disks.full.clear()
    check_level(cluster, 300)


def test_a_member_that_is_alone_lives_on_with_what_it_had_synced(tmp_path, opened, disks):
    port = free_base_port(ports=10)
    members = [f"0,127.0.0.1:{port}" + f",127.0.0.1:{port + 2}" * 4]
    node = opened.enter_context(ClusterNode.launch(members=members, dir=str(tmp_path / "member-{member_id}")))
    with ClusterClient.connect(f"0=127.0.0.1:{port}") as client:
        send(client, 50)
        client.await_committed(20)
        disks.failing[str(node.config.path)] = 2
        send(client, 50)
        await_that(lambda: client.is_closed, "leading anew, it opens no old session")
        acknowledged = client.acknowledged
    with ClusterClient.connect(f"0=127.0.0.1:{port}") as client:
        send(client, 10)
        client.await_committed(20)
    assert acknowledged >= 50
    found = numbers_in(node)
    assert found[:acknowledged] == list(range(acknowledged))
    assert found[-10:] == list(range(10))


def test_a_member_that_waits_for_its_disk_answers_a_hangup_and_can_be_stopped(tmp_path, opened, disks):
    cluster = Three(tmp_path, opened)
    failed = await_that(cluster.leader, "a leader")
    disks.failing[str(failed.config.path)] = 1_000
    with ClusterClient.connect(cluster.endpoints) as client:
        send(client, 10)
        client.await_committed(20)
    await_that(lambda: "is started again" in said(failed), "its disk fails")
    failed._failures.due_ns = time.monotonic_ns() + 60 * 10**9
    failed.reload()
    await_that(lambda: "logs were opened again" in said(failed), "it answers")
    failed.close()
    assert not failed.is_running
    assert failed.error is None


@pytest.mark.parametrize("way", ["mended", "cut"])
@pytest.mark.parametrize("checksum", ["crc32c", "none"])
def test_a_member_repairs_its_damaged_log_from_the_others_when_it_starts(
    tmp_path, opened, checksum, way, monkeypatch
):
    if way == "cut":
        monkeypatch.setattr(Archive, "open_repair", lambda self, damage: None)
    keys = {"archive_segment_file_length": 64 * 1024, "archive_record_checksum": checksum}
    cluster = Three(tmp_path, opened, **keys)
    await_that(cluster.leader, "a leader")
    with ClusterClient.connect(cluster.endpoints) as client:
        send(client, 300, 1_000)
        client.await_committed(20)
        damaged = next(node for node in cluster.nodes if node is not cluster.leader())
        check_level(cluster, 300)
        damaged.close()
        damage(damaged, 65536, checksum)
        send(client, 50, 1_000)
        client.await_committed(20)
        again = cluster.launch(damaged.config.member_id, log_term_length=64 * 1024, **keys)
        cluster.nodes[damaged.config.member_id] = opened.enter_context(again)
        check_level(cluster, 350)
    what = "the segment file is missing" if checksum == "none" else "at offset 29"
    assert "0-65536.rec" in said(again)
    assert what in said(again)
    if way == "mended":
        assert "log repaired: " in said(again)
    else:
        assert "log cut at position " in said(again)
        await_that(lambda: "whole again up to position " in said(again), "it says that it is whole again")
        assert list((again.config.archive_path / "damaged").iterdir()) == []
    assert not (again.config.cluster_path / "repair-needed").exists()


@pytest.mark.parametrize("checksum", ["crc32c", "none"])
@pytest.mark.parametrize("way", ["two are cut", "three are mended"])
def test_members_that_are_damaged_at_different_places_lose_nothing(
    tmp_path, opened, checksum, way, monkeypatch
):
    keys = {"archive_segment_file_length": 64 * 1024, "archive_record_checksum": checksum}
    cluster = Three(tmp_path, opened, **keys)
    await_that(cluster.leader, "a leader")
    with ClusterClient.connect(cluster.endpoints) as client:
        send(client, 300, 1_000)
        client.await_committed(20)
    check_level(cluster, 300)
    best = await_that(cluster.leader, "a leader")
    others = [node for node in cluster.nodes if node is not best]
    for node in (*others, best):
        node.close()
    for node, base in zip(others, (65536, 196608), strict=True):
        damage(node, base, checksum)
    if way == "two are cut":
        monkeypatch.setattr(Archive, "open_repair", lambda self, damage: None)
    else:
        damage(best, 131072, checksum)

    cluster.nodes = [
        opened.enter_context(cluster.launch(i, log_term_length=64 * 1024, **keys)) for i in range(3)
    ]
    leader = await_that(cluster.leader, "a leader")
    with ClusterClient.connect(cluster.endpoints) as client:
        send(client, 50, 1_000, first=300)
        client.await_committed(20)
    check_level(cluster, 350)

    for node in cluster.nodes:
        if way == "three are mended":
            assert "log repaired: " in said(node)
        elif node is not leader:
            assert "; votes for logs to " in said(node)
            await_that(lambda node=node: "whole again up to position " in said(node), "it is whole again")
        assert not (node.config.cluster_path / "repair-needed").exists()
    if way == "two are cut":
        assert leader.config.member_id == best.config.member_id


@pytest.mark.parametrize(
    "name", ["archive/archive.catalog", "cluster/recording.log", "cluster/node-state.dat"]
)
def test_a_member_whose_other_files_are_damaged_is_filled_again_by_the_others(tmp_path, opened, name):
    cluster = Three(tmp_path, opened)
    await_that(cluster.leader, "a leader")
    with ClusterClient.connect(cluster.endpoints) as client:
        send(client, 100)
        client.await_committed(20)
        damaged = next(node for node in cluster.nodes if node is not cluster.leader())
        damaged.close()
        path = damaged.config.path / name
        data = bytearray(path.read_bytes())
        data[:64] = b"\x55" * 64
        path.write_bytes(data)
        again = cluster.launch(damaged.config.member_id, log_term_length=64 * 1024)
        cluster.nodes[damaged.config.member_id] = opened.enter_context(again)
        send(client, 50)
        client.await_committed(20)
        check_level(cluster, 150)
    assert f"{path} at offset " in said(again)
    await_that(lambda: "whole again" in said(again), "it says that it is whole again")
