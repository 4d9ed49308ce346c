"""A member under a service manager: ready when it listens, alive while it turns, stopping when told to."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from cluster.node.config_text import write
from cluster.node.service_manager import ServiceManager
from tests.node.forked import Forked
from tests.node.processes import DEADLINE_S, environment, keys_of


@pytest.fixture
def manager(tmp_path) -> Iterator[socket.socket]:
    """What NOTIFY_SOCKET names."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(DEADLINE_S)
        yield listening


def test_a_member_says_when_it_listens_that_it_turns_and_that_it_stops(tmp_path, manager):
    write(tmp_path / "node.toml", {"member_id": 0, **keys_of(tmp_path)})
    variables = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "100000"}
    with Forked(
        ["cluster", "node", "--config", str(tmp_path / "node.toml")], env=environment(**variables)
    ) as member:
        try:
            assert manager.recv(100) == b"READY=1"
            assert [manager.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
            member.terminate()
            while (heard := manager.recv(100)) == b"WATCHDOG=1":
                pass
            assert heard == b"STOPPING=1"
            _, errors = member.communicate(timeout=DEADLINE_S)
            assert (member.returncode, errors) == (0, "")
        finally:
            member.kill()


def test_an_abstract_name_is_found(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0tests-{os.getpid()}")
        ServiceManager({"NOTIFY_SOCKET": f"@tests-{os.getpid()}"}).notify("READY=1")
        assert listening.recv(100) == b"READY=1"


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"WATCHDOG_USEC": "100000"},
        {"NOTIFY_SOCKET": "/nowhere/notify"},
        {"NOTIFY_SOCKET": "/nowhere/notify", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"},
        {"NOTIFY_SOCKET": "/nowhere/notify", "WATCHDOG_USEC": "soon"},
    ],
)
def test_without_a_manager_or_a_watchdog_of_ours_nothing_happens(variables):
    manager = ServiceManager(variables)
    manager.notify("READY=1")
    assert manager.watchdog() is None
