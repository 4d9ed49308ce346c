"""A member that lost its disk, filled again by the others while the cluster works, beside what the disk does.

The rate is that of the member's log, from its first byte to where it is level with the leader under a light
load. In the same run segments are written and synced by themselves, as that member does it: where a disk is
the limit, no network helps. The processor time of both sides tells what a faster disk would allow.

Goal: 300 MB/s.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.load import Load
from benchmarks.options import Options
from benchmarks.processes import cpu_seconds
from benchmarks.real_members import RealMembers, await_that
from benchmarks.recovery import write_log

MESSAGES = 8_000_000  # of 100 bytes: 1.5 GB of log
SEGMENT_BYTES = 128 * 1024 * 1024
SYNC_BYTES = 8 * 1024 * 1024  # as a member does that fetches a log
CHUNK_BYTES = 1024 * 1024


def run(options: Options) -> Iterator[dict[str, Any]]:
    """A figure a round for the member, and one for the disk before it."""
    with (
        tempfile.TemporaryDirectory(prefix="cluster-bench-", ignore_cleanup_errors=True) as name,
        RealMembers(Path(name)) as members,
    ):
        print(f"wiped: writing {MESSAGES:,} messages for 3 members", file=sys.stderr, flush=True)
        end = write_log(members, MESSAGES)
        members.start()
        members.await_level(within_s=300)
        for number in range(options.rounds):
            disk = _disk_rate(Path(name) / "alone", end)
            yield {"figure": "disk alone", "round": number, "bytes": end, "mb_per_s": round(disk / 1e6)}
            yield {"figure": "wiped member", "round": number, **_refill(members, disk)}
        members.stop()


def _refill(members: RealMembers, disk: float) -> dict[str, Any]:
    leader = members.await_leader()
    wiped = (leader + 1) % 3
    members.stop(wiped)
    shutil.rmtree(members.member_dir(wiped))
    with Load(members.tcp, messages_per_s=1_000) as load:
        load.await_progress(members.tell)
        began = time.monotonic()
        members.start(wiped)

        def append_position() -> int:
            standing = members.standing(wiped)
            return 0 if standing is None else max(standing.append_position, 0)

        await_that(append_position, "the first bytes arrive", tell=members.tell)
        first, at = time.monotonic(), append_position()
        spent = {i: -cpu_seconds(members.pid(i)) for i in (leader, wiped)}
        standing = members.standing(leader)
        assert standing is not None
        goal = standing.append_position
        await_that(lambda: append_position() >= goal, "its log is there", within_s=300, tell=members.tell)
        seconds = time.monotonic() - first
        for i in spent:
            spent[i] += cpu_seconds(members.pid(i))
        members.await_level(within_s=300)
        level = time.monotonic() - began
        gap = load.longest_gap(began, time.monotonic())
    rate = (goal - at) / seconds
    return {
        "log_mb": goal // 10**6,
        "mb_per_s": round(rate / 1e6),
        "of_disk": round(rate / disk, 2),
        "seconds_of_log": round(seconds, 2),
        "seconds_to_level": round(level, 2),
        "mb_per_cpu_second_of_leader": round((goal - at) / 1e6 / spent[leader]),
        "mb_per_cpu_second_of_member": round((goal - at) / 1e6 / spent[wiped]),
        "longest_gap_of_commits_s": round(gap, 3),
    }


def _disk_rate(folder: Path, length: int) -> float:
    """Bytes a second of writing ``length`` bytes into reserved segments, synced every ``SYNC_BYTES``."""
    folder.mkdir()
    chunk = os.urandom(CHUNK_BYTES)
    began = time.monotonic()
    for base in range(0, length, SEGMENT_BYTES):
        fd = os.open(folder / f"{base}.rec", os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(fd, 0, SEGMENT_BYTES)
        for offset in range(0, min(SEGMENT_BYTES, length - base), CHUNK_BYTES):
            os.pwrite(fd, chunk, offset)
            if (offset + CHUNK_BYTES) % SYNC_BYTES == 0:
                os.fdatasync(fd)
        os.close(fd)
    seconds = time.monotonic() - began
    shutil.rmtree(folder)
    return length / seconds
