"""Signals that do not end a member."""

import json
import os
import signal

from tests.node.processes import Up, await_that, run


def test_a_member_lives_on_after_each_and_says_what_it_did(tmp_path):
    with Up(tmp_path / "c", members=1) as up:
        path, pid = up.member_dir(0) / "node.log", up.pid(0)
        os.kill(pid, signal.SIGUSR1)
        await_that(lambda: "SIGUSR1 does nothing" in path.read_text(), "a line about SIGUSR1")
        os.kill(pid, signal.SIGUSR2)
        await_that(lambda: '"stacks": {' in path.read_text(), "the stacks")
        (told,) = [line for line in map(json.loads, path.read_text().splitlines()) if "stacks" in line]
        assert any("in run" in call for calls in told["stacks"].values() for call in calls)

        for name in ("node.log", "audit.log"):
            (up.member_dir(0) / name).rename(up.member_dir(0) / f"{name}.moved")
        os.kill(pid, signal.SIGHUP)
        await_that(lambda: path.exists() and "opened again" in path.read_text(), "a new node.log")
        await_that((up.member_dir(0) / "audit.log").exists, "a new audit.log")
        assert run("tool", "pid", "--dir", str(up.member_dir(0))).stdout.strip() == str(pid)
        assert up.stop() == (0, "", "")
