"""A standby of real members: it takes their snapshots for them, and serves readers of the log."""

from __future__ import annotations

import json

import pytest

from cluster import LogReader
from tests.backup.running import QUICK, await_copy
from tests.node.counting_service import COUNTING, Client
from tests.node.processes import Process, Up, await_that, free_base_port, run


def recording_log(member_dir):
    return run("tool", "recording-log", "--dir", str(member_dir), "--raw").stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.conformance("C-334")
def test_members_have_a_standbys_snapshot_without_taking_one_and_start_from_it(tmp_path):
    standby, config = tmp_path / "standby", tmp_path / "standby.toml"
    port = free_base_port(1)
    accepting = ("--set", "accept_standby_snapshots=true")
    with Up(tmp_path / "data", "--service", COUNTING, *accepting) as up:
        config.write_text(
            f'endpoints = "{up.endpoints}"\ndir = "{standby}"\nendpoint = "127.0.0.1:{port}"\n'
            f'{QUICK}services = ["{COUNTING}"]\n'
        )
        with Process("backup", "--config", str(config), "--json") as process:
            counting = Client(up.endpoints)
            counting.send(*[b"%d" % number for number in range(100)])
            counting.await_answers(100)
            assert run("tool", "standby-snapshot", "--dir", str(up.directory)).returncode == 0
            for member_id in range(3):
                await_that(
                    lambda at=member_id: recording_log(up.member_dir(at)).count("STANDBY_SNAPSHOT") == 2,
                    f"member {member_id} knows of the snapshot",
                )
            follower = (up.leader + 1) % 3
            member = up.member_dir(follower)
            for _ in range(2):
                done = run("tool", "replicate-standby-snapshot", "--dir", str(member), "--json")
                if done.returncode == 0:
                    assert json.loads(done.stdout)["outcome"] == "completed"
            assert done.returncode == 1 and "replicated no snapshot" in done.stderr, "there is no newer one"
            assert recording_log(member).count("type=SNAPSHOT") == 2, recording_log(member)
            counting.client.await_committed()
            await_copy(standby, counting.client.committed_position)
            with LogReader.open(endpoints=f"127.0.0.1:{port}") as log:
                sent = [bytes(e["payload"]) for e in log.entries(entry_types=["SESSION_MESSAGE"])]
            assert sent.count(b"99") == 2, "of the client, and of the services"
            counting.client.close()
            status, _, err = process.stop()
            assert (status, err) == (0, "")
        up.stop()
    with Up(tmp_path / "data", "--service", COUNTING, *accepting):
        assert "starts from the snapshot at" in (member / "node.log").read_text()
