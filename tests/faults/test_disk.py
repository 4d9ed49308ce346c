"""Disks that are full and syncs that fail: nothing is acknowledged on top of it, and it passes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.load import Load
from benchmarks.real_members import RealMembers, await_that
from tests.faults.conftest import check_everything
from tests.faults.tools import kernel
from tests.programs import require

pytestmark = pytest.mark.faults

DISK_MIB = 192
SMALL = {"log_term_length": "1m", "archive_segment_file_length": "4m"}


class SmallDisk:
    """A tmpfs that is a member's directory, and a file that takes what is free."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._filler = directory / "filler"
        directory.mkdir(parents=True)
        kernel("mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(directory))

    def fill(self) -> None:
        """Take all that is left, down to the last page."""
        with self._filler.open("ab") as file:
            length = DISK_MIB << 20
            while length >= 4096:
                try:
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), length)
                except OSError:
                    length //= 2

    def free(self) -> None:
        self._filler.unlink()

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.directory)], check=False)


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[list[SmallDisk]]:
    """A small disk for each of three members."""
    require("mount", "mount")
    made: list[SmallDisk] = []
    try:
        for i in range(3):
            made.append(SmallDisk(tmp_path / f"member-{i}"))
        yield made
    finally:
        for disk in made:
            disk.close()


def await_all_well(members: RealMembers) -> None:
    """Return when every member is level with the leader.

    A member may ride its disk's fault out or end with it, now or in a moment; then it is started again.
    """

    def are_level() -> bool:
        for member_id in members.ids:
            if not members.is_running(member_id):
                members.start(member_id)
        established = members.established(members.ids)
        return len(established) == 3 and len({s.commit_position for s in established.values()}) == 1

    await_that(are_level, "all members are level again", tell=members.tell)


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_full_disk_of_one_member_stops_nobody_else_and_is_made_good_when_there_is_space(
    disks, members_of, role
):
    members = members_of(keys=SMALL)
    members.start()
    with Load(members.tcp, messages_per_s=2_000, payload_bytes=1_000) as load:
        load.await_progress(members.tell)
        leader = members.await_leader()
        full = leader if role == "leader" else (leader + 1) % 3
        disks[full].fill()
        await_that(
            lambda: not members.is_running(full) or is_behind(members, full),
            "the full disk is felt",
            tell=members.tell,
        )
        load.await_progress(members.tell)
        disks[full].free()
        await_all_well(members)
        load.await_progress(members.tell)
        check_everything(members, load)


def is_behind(members: RealMembers, member_id: int) -> bool:
    """Whether others have committed more than a segment beyond what the member has appended."""
    standings = members.established()
    one = members.standing(member_id)
    ahead = max((standing.commit_position for standing in standings.values()), default=0)
    return one is not None and (not one.is_established or ahead - one.append_position > 1 << 20)


def test_full_disks_of_all_members_stop_the_commits_and_lose_none(disks, members_of):
    members = members_of(keys=SMALL)
    members.start()
    with Load(members.tcp, messages_per_s=2_000, payload_bytes=1_000) as load:
        load.await_progress(members.tell)
        for disk in disks:
            disk.fill()
        acknowledged = -1

        def stands_still() -> bool:
            nonlocal acknowledged
            before, acknowledged = acknowledged, load.acknowledged
            load.await_seconds(1)
            return before == acknowledged == load.acknowledged

        await_that(stands_still, "no more is acknowledged", tell=members.tell)
        for disk in disks:
            disk.free()
        await_all_well(members)
        load.await_progress(members.tell)
        check_everything(members, load)


class FailingSyncs:
    """strace on a member that runs: its syncs return EIO from now on, or only the first one."""

    def __init__(self, pid: int, output: Path, *, only_once: bool) -> None:
        when = "1" if only_once else "1+"
        self._output = output
        self._process = subprocess.Popen(
            [
                *(require("strace", "strace"), "-f", "-p", str(pid), "-o", str(output)),
                *("-e", "trace=fsync,fdatasync", "-e", f"inject=fsync,fdatasync:error=EIO:when={when}"),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        line = self._process.stderr.readline()
        if "attached" not in line:
            self._process.wait()
            pytest.xfail(f"not possible here: strace of a process: {line.strip()}")

    @property
    def count(self) -> int:
        """How many syncs were made to fail."""
        return self._output.read_text().count("(INJECTED)") if self._output.exists() else 0

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=30)


@pytest.mark.parametrize("only_once", [True, False], ids=["once", "always"])
@pytest.mark.parametrize("role", ["leader", "follower"])
def test_after_a_failed_sync_a_member_trusts_only_what_was_synced_before(
    members_of, tmp_path, role, only_once
):
    """Once is the trap: the kernel drops the pages, and the next sync says that all is well."""
    members = members_of(keys=SMALL)
    members.start()
    with Load(members.tcp, messages_per_s=2_000) as load:
        load.await_progress(members.tell)
        leader = members.await_leader()
        broken = leader if role == "leader" else (leader + 1) % 3
        syncs = FailingSyncs(members.pid(broken), tmp_path / "strace", only_once=only_once)
        try:
            await_that(lambda: syncs.count, "a sync fails", tell=members.tell)
            load.await_progress(members.tell)
            told = await_that(lambda: errors_of(members, broken), "the error is told", tell=members.tell)
            assert any("Input/output error" in line and "member-" in line for line in told), told
        finally:
            syncs.end()
        await_all_well(members)
        check_everything(members, load)


def errors_of(members: RealMembers, member_id: int) -> list[str]:
    """What a member wrote of errors, in its log or where it ended."""
    paths = (members.member_dir(member_id) / "node.log", members.directory / f"member-{member_id}.err")
    lines = [line for path in paths if path.exists() for line in path.read_text().splitlines()]
    return [line for line in lines if "Input/output error" in line]
