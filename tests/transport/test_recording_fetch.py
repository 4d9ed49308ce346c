"""Recordings are fetched in a thread, whose answers an agent takes when it likes."""

import threading

import pytest

from cluster.errors import ClusterError
from cluster.transport.log_client import Unreachable
from cluster.transport.recording_fetch import ANSWERS_MAX, FetchedInThread, read_recordings

DEADLINE_S = 20


class Archive:
    """A ``LogClient`` that answers with numbers, then with what is ``last``."""

    def __init__(self, count=3, last=None):
        self.count = count
        self.last = last
        self.given = 0
        self.is_closed = threading.Event()

    def read_recording(self, recording_id):
        for number in range(self.count):
            self.given += 1
            yield recording_id, number
        if self.last is not None:
            raise self.last

    def close(self):
        self.is_closed.set()


def taken(fetched, count):
    """The next so many answers."""
    answers = []
    done = threading.Event()

    def take():
        while len(answers) < count and not done.is_set():
            if (answer := fetched.poll()) is not None:
                answers.append(answer)

    thread = threading.Thread(target=take)
    thread.start()
    thread.join(DEADLINE_S)
    done.set()
    assert len(answers) == count
    return answers


def raised(fetched):
    """What ``poll`` raises at last."""
    for _ in range(10_000_000):
        try:
            fetched.poll()
        except ClusterError as error:
            return error
    raise AssertionError("nothing was raised")


def test_all_recordings_come_in_their_order_and_the_client_is_closed():
    archive = Archive()
    fetched = FetchedInThread(read_recordings(archive, [7, 5]))
    assert taken(fetched, 6) == [(7, 0), (7, 1), (7, 2), (5, 0), (5, 1), (5, 2)]
    assert archive.is_closed.wait(DEADLINE_S)
    assert fetched.poll() is None, "there is no more"


@pytest.mark.parametrize(
    ("last", "text"),
    [
        (Unreachable("standby:9100: no answer in 10 s"), "standby:9100: no answer in 10 s"),
        (ValueError("not of this protocol"), "ValueError: not of this protocol"),
    ],
)
def test_an_archive_that_fails_is_told_to_who_polls(last, text):
    archive = Archive(count=2, last=last)
    fetched = FetchedInThread(read_recordings(archive, [7]))
    assert taken(fetched, 2) == [(7, 0), (7, 1)]
    assert str(raised(fetched)) == text
    assert archive.is_closed.wait(DEADLINE_S)


def test_what_nobody_takes_is_bounded_and_ends_with_a_close():
    archive = Archive(count=1_000)
    fetched = FetchedInThread(read_recordings(archive, [7]))
    assert not archive.is_closed.wait(0.3), "it waits for somebody to take what it has"
    assert archive.given <= ANSWERS_MAX + 1
    fetched.close()
    assert archive.is_closed.wait(DEADLINE_S)
    assert archive.given <= ANSWERS_MAX + 2
