"""What a follower finds of one session: its messages in their order, the terms, and how it ends."""

from __future__ import annotations

import threading
from zlib import crc32

import numpy as np
import pytest

from cluster.aeron.log_follower import FoundEnd, FoundMessages, FoundTerm, LogFollower
from cluster.errors import TimedOut
from cluster.reader import LogReader
from tests.reader import real


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Entries, and the blocks of whole messages, of a log that real members have written."""
    with LogReader.open(dir=str(real.a_copy(tmp_path_factory.mktemp("real")))) as reader:
        return list(reader.entries()), list(reader.blocks())


class ScriptedLog:
    """Gives these blocks, and then nothing, or ``error``."""

    def __init__(self, blocks, error=None):
        self.blocks, self.error = blocks, error
        self.is_closed = threading.Event()

    def follow(self, from_position):
        assert from_position == 0
        yield from self.blocks
        if self.error is not None:
            raise self.error
        while True:
            yield None

    def await_more(self, timeout_s, *, is_due):
        self.is_closed.wait(0.001)

    def close(self):
        self.is_closed.set()


def expected_of(entries, session_id):
    for entry in entries:
        match entry["entryType"]:
            case "SESSION_MESSAGE" if entry["clusterSessionId"] == session_id:
                yield FoundMessages([crc32(entry["payload"])], entry["endPosition"])
            case "SESSION_CLOSE" if entry["clusterSessionId"] == session_id:
                yield FoundEnd(entry["closeReason"])
            case "NEW_LEADERSHIP_TERM":
                yield FoundTerm(entry["leadershipTermId"], entry["leaderMemberId"])


def assert_found(found, expected):
    """That it is what is expected one by one, whatever messages were found together."""
    expected = list(expected)
    for each in found:
        count = len(each.checksums) if isinstance(each, FoundMessages) else 1
        these, expected = expected[:count], expected[count:]
        if isinstance(each, FoundMessages):
            assert each == FoundMessages([one for of in these for one in of.checksums], these[-1].position)
        else:
            assert [each] == these
    assert expected == []


def test_of_a_log_the_messages_and_the_end_of_one_session_are_found_and_all_terms(log):
    told = threading.Event()
    entries, blocks = log
    sessions = {e["clusterSessionId"] for e in entries if e["entryType"] == "SESSION_MESSAGE"}
    assert any(len(e.get("payload", b"")) > 1408 for e in entries), "some are of several frames"
    for session_id in sorted(sessions)[-4:]:
        follower = LogFollower(lambda: ScriptedLog([]), 0, told.set)
        follower.session_id = session_id
        found = [each for block in blocks for each in follower.find(*block)]
        assert_found(found, expected_of(entries, session_id))
        follower.close()


def test_a_log_that_begins_in_the_midst_of_a_message_is_followed_from_the_next_one_on(log):
    told = threading.Event()
    entries, blocks = log
    long = next(e for e in entries if len(e.get("payload", b"")) > 1408)
    frames = np.concatenate([block for _, block in blocks])
    begin = long["position"] + 1408
    follower = LogFollower(lambda: ScriptedLog([]), 0, told.set)
    follower.session_id = long["clusterSessionId"]
    found = list(follower.find(begin, frames[begin:]))
    assert_found(found, expected_of((e for e in entries if e["position"] > begin), follower.session_id))
    follower.close()


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (TimedOut("no member goes on"), "no member goes on"),
        (OSError(24, "Too many open files"), "[Errno 24] Too many open files"),
        (KeyError("a mistake"), "KeyError: 'a mistake'"),
    ],
)
def test_a_thread_follows_until_it_is_closed_and_says_when_it_cannot_go_on(log, error, why):
    told = threading.Event()
    scripted = ScriptedLog(log[1], error)
    follower = LogFollower(lambda: scripted, 0, told.set)
    assert scripted.is_closed.wait(10)
    follower.await_end(10)
    assert told.is_set()
    assert follower.found[-1] == FoundEnd(why)
    assert sum(isinstance(each, FoundTerm) for each in follower.found) == sum(
        e["entryType"] == "NEW_LEADERSHIP_TERM" for e in log[0]
    )
    scripted = ScriptedLog([])
    follower = LogFollower(lambda: scripted, 0, told.set)
    follower.close()
    assert scripted.is_closed.wait(10)
