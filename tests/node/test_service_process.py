"""The child that runs a service, and what it forks: the kernel says who lives, not a copied descriptor."""

from __future__ import annotations

import os
import socket
import sys
import time

import numpy as np
import pytest

from cluster.node.child import Child
from cluster.node.service_process import (
    HANG_TIMEOUT_NS,
    LOOK_INTERVAL_NS,
    ChildProcess,
    socket_path,
)
from cluster.node.service_snapshots import SnapshotChild
from cluster.protocol.service_link import SERVICE_LINK_VERSION, ServiceHello
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.message_frames import link_frame
from cluster.transport.poller import Poller
from tests.node.processes import await_that

FORKS_AND_DIES = """
import os, socket, sys
member = socket.socket(socket.AF_UNIX)
member.connect(sys.argv[1])
member.sendall(bytes.fromhex(sys.argv[2]))
if os.fork() == 0:
    member.recv(1)  # it has a copy, and lives for as long as nobody ends the stream
else:
    os.kill(os.getpid(), 9)
"""


class Events:
    def __init__(self):
        self.connected = self.lost = 0

    def on_connected(self):
        self.connected += 1

    def on_frames(self, buffer: np.ndarray, start: int, end: int):
        pass

    def on_lost(self):
        self.lost += 1


@pytest.mark.parametrize("is_greeted", [True, False])
def test_a_service_that_forked_and_died_is_started_again_though_its_fork_holds_the_socket(
    tmp_path, is_greeted
):
    hello = link_frame(ServiceHello(0, 1, SERVICE_LINK_VERSION)) if is_greeted else b""
    command = [sys.executable, "-S", "-c", FORKS_AND_DIES, socket_path(str(tmp_path), 0), hello.hex()]
    poller, events, told, warned = Poller(), Events(), [], []
    endpoint = Endpoint(Medium.IPC, path=socket_path(str(tmp_path), 0))
    child = Child("service 0", command, warned.append)
    process = ChildProcess(0, endpoint, poller, child, told.append)

    def is_started_again():
        poller.wait(0)
        process.do_work(time.monotonic_ns(), events, is_receiving=True)
        ends = sum("was ended by signal 9" in line for line in warned)
        return ends >= 2 and (events.lost >= 2 or not is_greeted)

    try:
        await_that(is_started_again, "the second of its processes")
    finally:
        process.close()
    assert "runs already in another process" not in " ".join(told)
    assert events.connected == 0 or is_greeted


class Hanging:
    """A child that lives until it is killed, and has a connection until ``sock`` is closed."""

    def __init__(self, path):
        self.is_running = self.is_killed = False
        self.starts = 0
        self._path = path

    def start(self, now_ns):
        self.is_running, self.is_killed = True, False
        self.starts += 1
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)
        self.sock.sendall(link_frame(ServiceHello(0, 1, SERVICE_LINK_VERSION)))
        return True

    def take_end(self, now_ns):
        if not self.is_killed:
            return None
        self.is_running = False
        return os.getpid()

    def kill(self):
        self.is_killed = True

    def retire(self):
        pass

    def await_end(self, timeout_s, work):
        self.sock.close()


def test_a_service_that_closes_its_socket_and_lives_on_is_killed_and_started_again(tmp_path):
    path = socket_path(str(tmp_path), 0)
    child, poller, events = Hanging(path), Poller(), Events()
    process = ChildProcess(0, Endpoint(Medium.IPC, path=path), poller, child, print)

    def turn(now_ns):
        for _ in range(4):
            poller.wait(0)
            process.do_work(now_ns, events, is_receiving=True)

    try:
        turn(1)
        assert events.connected == 1
        child.sock.close()
        turn(lost_ns := HANG_TIMEOUT_NS)
        assert events.lost == 1
        turn(lost_ns + HANG_TIMEOUT_NS)
        assert not child.is_killed
        now_ns = lost_ns + HANG_TIMEOUT_NS + LOOK_INTERVAL_NS
        turn(now_ns)
        assert child.is_killed
        turn(now_ns + LOOK_INTERVAL_NS)
        turn(now_ns + 2 * LOOK_INTERVAL_NS)
        assert (child.starts, events.connected) == (2, 2)
    finally:
        process.close()


def test_a_snapshot_is_written_when_its_process_has_ended_though_what_that_forked_holds_the_pipe():
    waiting, go_on = os.pipe()

    def say() -> bytes:
        if os.fork() == 0:
            os.close(go_on)
            os.read(waiting, 1)  # lives until the test ends it
            os._exit(0)
        return b"written"

    child = SnapshotChild(say)
    try:
        assert await_that(child.poll, "the end of the child") == (b"written", 0)
    finally:
        os.close(go_on)
