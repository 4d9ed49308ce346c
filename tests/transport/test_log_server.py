"""How a member's log server answers status requests: from one log that it keeps open."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from cluster.errors import NotAClusterDirectory, StorageError
from cluster.protocol import decode, link
from cluster.protocol.frame import HEADER_LENGTH
from cluster.transport.log_server import LogServer
from tests.reader.scripted import FakeMember


class Directory:
    """Hands out logs of a played member, and knows which of them are open."""

    def __init__(self):
        self.member = FakeMember(0)
        self.opened = 0
        self.open_now = 0
        self.error = None

    def open_log(self):
        if self.error is not None:
            raise self.error
        self.opened += 1
        self.open_now += 1
        return self

    def status(self, correlation_id):
        if self.error is not None:
            raise self.error
        return self.member.status()

    def close(self):
        self.open_now -= 1


@pytest.fixture
def directory():
    return Directory()


@pytest.fixture
def ask(directory):
    with ThreadPoolExecutor(2) as executor:
        server = LogServer(directory.open_log, executor)

        def status():
            frame = asyncio.run(server.status(7))
            return decode(frame, HEADER_LENGTH, len(frame) - HEADER_LENGTH)

        yield status
        server.close()
    assert directory.open_now == 0, "all that was opened is closed in the end"


def test_many_status_requests_open_the_log_once(ask, directory):
    for committed in range(6400, 12_800, 640):
        directory.member.committed = committed
        status = ask()
        assert isinstance(status, link.LogStatus)
        assert status.commit_position == committed
    assert directory.opened == 1


def test_a_log_that_was_purged_is_opened_again_for_its_old_segments_are_to_go(ask, directory):
    ask()
    directory.member.start = 640
    assert ask().start_position == 640
    assert (directory.opened, directory.open_now) == (2, 1)


def test_a_log_that_failed_is_opened_again_by_the_next_request(ask, directory):
    ask()
    directory.error = StorageError("catalog", 5, "reading failed")
    with pytest.raises(StorageError):
        ask()
    directory.error = NotAClusterDirectory("it is being refilled")
    with pytest.raises(NotAClusterDirectory):
        ask()
    assert directory.open_now == 0
    directory.error = None
    assert ask().commit_position == 6400
