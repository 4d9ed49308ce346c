"""A real AeronCluster client on three of our members, over a real media driver."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cluster import LogReader
from tests.interop.aeron import EACH_VERSION, VERSION, java_client, media_driver
from tests.node.processes import Up, await_that

pytestmark = pytest.mark.interop
MESSAGES = 1000
KNOW_THE_LEADER = ("1.44.1", "1.46.9")  # else they are lost with a redirect, Java members' as well as ours


@pytest.mark.parametrize("version", EACH_VERSION)
def test_it_echoes_through_a_killed_leader_with_one_session_and_the_log_has_all_of_it(
    tmp_path: Path, version: str
) -> None:
    with media_driver() as aeron_dir, members(tmp_path, aeron_dir) as up:
        told = echo(up, lambda: os.kill(up.pid(up.leader), signal.SIGKILL), version)
        check(told, await_that(lambda: log_with_a_close(up), "the session's close in the log"))


@pytest.mark.slow
def test_it_echoes_through_the_restart_of_the_members_driver(tmp_path: Path) -> None:
    with ExitStack() as driver, members(tmp_path, driver.enter_context(media_driver())) as up:

        def restart() -> None:
            driver.close()
            driver.enter_context(media_driver())

        told = echo(up, restart)
        check(told, await_that(lambda: log_with_a_close(up), "the session's close in the log"))


def members(directory: Path, aeron_dir: Path) -> Up:
    """Three that serve Aeron's clients, and ask them for a word."""
    rights = directory / "rights"
    rights.write_text("someone: write\n")
    rights.chmod(0o600)
    keys = {
        "authenticator": "tests.member.challenges:Challenges",
        "authorisation": rights,
        "ingress_channel": "aeron:udp",
        "aeron_dir": aeron_dir,
        "leader_heartbeat_timeout": "2s",
        "startup_canvass_timeout": "4s",
    }
    return Up(directory, *(word for key, value in keys.items() for word in ("--set", f"{key}={value}")))


def check(told: dict[str, Any], entries: list[dict[str, Any]]) -> None:
    """One session, all answers, and each message in the log as often as it was sent at most."""
    assert (told["answered"], told["wrong"], told["connects"]) == (MESSAGES, 0, 1)
    assert told["newLeaders"] == 1
    (opened,) = [entry for entry in entries if entry["entryType"] == "SESSION_OPEN"]
    assert opened["clusterSessionId"] == told["session"]
    assert opened["encodedPrincipal"] == b"someone"
    assert re.fullmatch(r"aeron:udp\?(rejoin=false\|)?endpoint=localhost:\d+", opened["responseChannel"])
    closed = [entry["closeReason"] for entry in entries if entry["entryType"] == "SESSION_CLOSE"]
    assert closed == ["CLIENT_ACTION"]
    counts = Counter(
        struct.unpack_from("<q", entry["payload"])[0]
        for entry in entries
        if entry["entryType"] == "SESSION_MESSAGE"
    )
    assert sorted(counts) == list(range(MESSAGES))
    assert counts.total() <= told["sent"] <= MESSAGES + 5


def echo(up: Up, halfway: Callable[[], None], version: str = VERSION) -> dict[str, Any]:
    """What a client tells at its end that knows one follower, or all members where it has to."""
    known = range(3) if version in KNOW_THE_LEADER else [(up.leader + 1) % 3]
    endpoints = ",".join(f"{member}=localhost:{up.base_port + 10 * member}" for member in known)
    options = ["--messages", str(MESSAGES), "--ingress-endpoints", endpoints, "--word", "sesame"]
    with java_client("Echo", *options, version=version) as client:
        assert client.stdout is not None and client.stderr is not None
        assert client.stdout.readline() == "half\n", client.stderr.read()
        halfway()
        out, err = client.communicate(timeout=60)
    assert client.returncode == 0, err
    told: dict[str, Any] = json.loads(out)
    return told


def log_with_a_close(up: Up) -> list[dict[str, Any]] | None:
    """The committed log of a member that lives, once a session is closed."""
    with LogReader.open(dir=str(up.member_dir((up.leader + 1) % 3))) as reader:
        entries = list(reader.entries())
    return entries if any(entry["entryType"] == "SESSION_CLOSE" for entry in entries) else None
