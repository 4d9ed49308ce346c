"""Three of our members, while they run and after: real tools describe them, a real node replays their log."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.reader import LogReader
from tests.interop.aeron import archive_tool, cluster_tool, entries_as_told, real_node, told_by

pytestmark = pytest.mark.interop
BASE_PORT = 24300
LINES = 3000


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, object]]]:
    """Directory of a stopped cluster, and what the real tools said of it while it ran."""
    folder = tmp_path_factory.mktemp("cluster")
    cluster = [sys.executable, "-m", "cluster"]
    up = subprocess.Popen(
        [*cluster, "up", "--dir", str(folder), "--base-port", str(BASE_PORT), "--json"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert up.stdout is not None
        told = json.loads(up.stdout.readline())
        lines = "".join(f"line {i} {'x' * (i % 3000)}\n" for i in range(LINES))
        subprocess.run(
            [*cluster, "send", "--endpoints", told["ipcEndpoints"], "-"],
            input=lines,
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        )
        said = {
            str(member["memberId"]): [
                cluster_tool(Path(member["dir"]) / "cluster", verb)
                for verb in ("is-leader", "pid", "describe", "errors")
            ]
            for member in told["members"]
        }
        listed = [
            subprocess.run(
                [*cluster, "tool", "list-members", "--json", "--dir", member["dir"]],
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            ).stdout
            for member in told["members"]
        ]
        yield folder, {"told": told, "said": said, "listed": listed, "up": up}
    finally:
        if up.poll() is None:
            os.kill(up.pid, signal.SIGTERM)
            up.wait(30)


@pytest.mark.conformance("S-167")
def test_the_real_tools_accept_running_members_and_find_one_leader(judged):
    _, while_up = judged
    told, said = while_up["told"], while_up["said"]
    for member in told["members"]:
        is_leader, pid, describe, errors = said[str(member["memberId"])]
        assert is_leader.status == (0 if member["memberId"] == told["leaderMemberId"] else 1), is_leader.err
        assert pid.out.strip() == str(member["pid"])
        assert describe.status == errors.status == 0, errors.err
        assert f"memberId={member['memberId']}|" in describe.out


@pytest.mark.conformance("S-130")
def test_each_running_member_names_the_leader_itself_and_all_members(judged):
    _, while_up = judged
    told = while_up["told"]
    assert [json.loads(line) for line in while_up["listed"]] == [
        {
            "leaderMemberId": told["leaderMemberId"],
            "memberId": member,
            "activeMembers": told["endpoints"],
        }
        for member in range(3)
    ]


def test_the_real_tools_accept_what_stopped_members_leave(judged):
    folder, while_up = judged
    up = while_up["up"]
    os.kill(up.pid, signal.SIGTERM)
    assert up.wait(30) == 0
    ends = set()
    for member in range(3):
        directory = folder / f"member-{member}"
        said = cluster_tool(directory / "cluster", "recording-log")
        assert said.status == 0, said.err
        assert "type=TERM, isValid=true" in said.out
        described = cluster_tool(directory / "cluster", "describe")
        assert described.out.count("activityTimestamp=-1|") == 2, described.err
        said = archive_tool(directory / "archive", "verify", "-a")
        assert (said.status, said.out.strip()) == (0, "(recordingId=0) OK"), said.err
        with LogReader.open(dir=str(directory)) as reader:
            assert reader.warnings == []
            ends.add((reader.identity, reader.end_position()))
    assert len(ends) == 1, "the members do not hold the same log"


def test_a_real_node_goes_on_from_any_member_s_directory(judged, tmp_path):
    folder, _ = judged
    directory = folder / "member-1"
    with LogReader.open(dir=str(directory)) as reader:
        ours = entries_as_told(reader.entries())
    assert sum(callback == "sessionMessage" for callback, *_ in ours) == LINES
    record = tmp_path / "record.jsonl"
    options = ["--member-id", "1", "--base-port", "24400", "--service", "record", "--record", str(record)]
    with real_node(directory, *options) as node:
        node.stop()
        assert "Exception" not in node.errors()
    start, told = told_by(record)
    assert (start, told[: len(ours)]) == (0, ours)
    assert told[len(ours)][0] == "newLeadershipTerm"
