"""Who gets in through a Unix socket: processes of the own user, by the file's mode and the kernel's word."""

import os
import socket
import stat

import pytest

from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.listener import Listener
from cluster.transport.poller import Poller

NOBODY = 65_534


class Listening:
    def __init__(self, path):
        self.poller = Poller()
        self.turned_away = []
        self.listener = Listener(Endpoint(Medium.IPC, path=str(path)), self.poller, self.turned_away.append)

    def accept(self):
        self.poller.wait(5)
        return self.listener.accept()

    def close(self):
        self.listener.close()
        self.poller.close()


@pytest.fixture(params=["short", "x" * 120])
def path(request, tmp_path):
    """One that a socket's address holds, and one that it does not."""
    folder = tmp_path / request.param
    folder.mkdir()
    return folder / "a.sock"


@pytest.fixture
def listening(path):
    listening = Listening(path)
    yield listening
    listening.close()


def connect(path):
    sock = socket.socket(socket.AF_UNIX)
    with Endpoint(Medium.IPC, path=str(path)).address() as address:
        sock.connect(address)
    return sock


def test_its_file_is_for_its_user_alone_whatever_the_umask_says(path):
    before = os.umask(0)
    try:
        listening = Listening(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    listening.close()
    assert not path.exists()


def test_a_process_of_the_own_user_comes_in(listening, path):
    with connect(path):
        (accepted,) = listening.accept()
        accepted.close()
    assert listening.turned_away == []


def test_a_process_of_another_user_is_turned_away_though_the_file_lets_it(listening, path, monkeypatch):
    """The kernel tells whose process dialled; here the member is taken for somebody else's."""
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    with connect(path) as sock:
        assert listening.accept() == []
        assert sock.recv(1) == b""
    (told,) = listening.turned_away
    assert told == f"ipc:{path}: process {os.getpid()} is of user {os.getuid()}, expected {NOBODY}"


def test_the_file_of_a_process_that_is_gone_is_replaced(path):
    with socket.socket(socket.AF_UNIX) as left, Endpoint(Medium.IPC, path=str(path)).address() as address:
        left.bind(address)
        left.listen()
    listening = Listening(path)
    with connect(path):
        (accepted,) = listening.accept()
        accepted.close()
    listening.close()
