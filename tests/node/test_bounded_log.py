"""Real members whose log may take only so much of their disks."""

import json

import pytest

from tests.node.processes import Up, await_that, run

MIB = 1 << 20


@pytest.mark.slow
def test_members_at_full_speed_keep_within_the_bound_and_lose_nothing(tmp_path):
    keys = ("log_term_length=1m", "archive_segment_file_length=1m", "log_bytes_max=16m", "disk_free_min=1m")
    with Up(tmp_path / "c1", *(f"--set={key}" for key in keys)) as up:
        bench = run("bench", "--endpoints", up.tcp, "--duration", "5", "--json")
        counted = json.loads(bench.stdout)
        assert counted["committed"] == counted["echoed"] == counted["offered"]
        assert counted["bytesPerSecond"] * 5 > 4 * MIB
        archives = [tmp_path / "c1" / f"member-{member}" / "archive" for member in range(3)]
        for archive in archives:
            assert sum(path.stat().st_size for path in archive.glob("*.rec")) < 32 * MIB

        def has_room_again() -> bool:
            """A leader that stands at its bound when the load ends looks again, and has room."""
            status = json.loads(run("status", "--dir", str(tmp_path / "c1"), "--json").stdout)
            has_room = all(0 < member["logRoom"] <= 16 * MIB for member in status["members"])
            return status["verdict"] == "healthy" and has_room

        await_that(has_room_again, "all members are healthy and have room")
