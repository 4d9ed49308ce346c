"""Who gets in through a Unix socket: processes of the own user, by the file's mode and the kernel's word."""

import os
import shutil
import socket
import stat
import tempfile
import threading
from pathlib import Path

import pytest

from cluster.errors import PortInUse
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


@pytest.fixture
def open_folder():
    """One that every user may enter, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="listener-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def heard_by_another_user(path) -> bytes:
    """What a process of nobody's gets at a socket: how it fails, or what it reads."""
    if os.geteuid() != 0:
        pytest.xfail("only root can be another user")
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        try:
            with connect(path) as sock:
                os.write(writing, b"read %r" % sock.recv(1))
        except OSError as error:
            os.write(writing, type(error).__name__.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        return answer.read()


def test_another_user_does_not_get_past_the_files_mode(open_folder):
    listening = Listening(open_folder / "a.sock")
    assert heard_by_another_user(open_folder / "a.sock") == b"PermissionError"
    listening.close()


def test_nor_past_the_kernels_word_where_somebody_has_opened_the_file_to_all(open_folder):
    path = open_folder / "a.sock"
    listening = Listening(path)
    path.chmod(0o666)
    accepting = threading.Thread(target=listening.accept)
    accepting.start()
    assert heard_by_another_user(path) == b"read b''"
    accepting.join()
    (told,) = listening.turned_away
    assert told.endswith(f"is of user {NOBODY}, expected 0")
    listening.close()


def test_the_file_of_a_process_that_listens_is_left_to_it(listening, path):
    with pytest.raises(PortInUse):
        Listening(path)
    with connect(path) as sock:
        sock.sendall(b"x")
        assert [accepted.recv(1) for accepted in listening.accept()][-1] == b"x"


def test_the_file_of_a_process_that_is_gone_is_replaced(path):
    with socket.socket(socket.AF_UNIX) as left, Endpoint(Medium.IPC, path=str(path)).address() as address:
        left.bind(address)
        left.listen()
    listening = Listening(path)
    with connect(path):
        (accepted,) = listening.accept()
        accepted.close()
    listening.close()
