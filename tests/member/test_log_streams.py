"""A leader's log to its followers: recorded bytes first, then the live log without a gap."""

import numpy as np
import pytest

from cluster.errors import AgentTermination
from cluster.log.append import append_message
from cluster.log.frames import LogParams
from cluster.member.log.publication import LogPublication
from cluster.member.log.streams import CHUNKS_PER_TURN, LogStreams
from tests.log.naive import scan

PARAMS = LogParams(64 * 1024, 1408, 0, 7)


class Recording:
    """A recording in memory."""

    def __init__(self, data=b""):
        self.data = bytearray(data)

    @property
    def append_position(self):
        return len(self.data)

    def append(self, position, data):
        assert position == len(self.data)
        self.data += bytes(data)
        return len(self.data)

    def sync(self):
        return len(self.data)

    def read_published(self, position, max_length, out=None):
        data = np.frombuffer(bytes(self.data[position : position + max_length]), np.uint8)
        return data[: scan(data, 0, len(data))]


class Links:
    """Links that take everything, or nothing for some."""

    def __init__(self):
        self.sent = {1: bytearray(), 2: bytearray()}
        self.full = set()
        self.is_backed_up = False

    def send(self, member_id, *buffers):
        if member_id in self.full:
            return -2
        for buffer in buffers:
            self.sent[member_id] += bytes(buffer)
        return len(self.sent[member_id])

    def is_full(self, member_id):
        return self.is_backed_up

    def publish(self, log):
        self.published = log


@pytest.fixture
def log():
    """A log of some frames, with its publication and streams."""
    links = Links()
    recording = Recording()
    streams = LogStreams(links, range(5))
    streams.open(recording)
    publication = LogPublication(recording, streams, PARAMS)
    for number in range(20):
        publication.append(b"message %d" % number + bytes(100))
    publication.flush()
    return links, recording, streams, publication


def test_nothing_is_sent_to_a_follower_that_did_not_ask(log):
    links, _, streams, _ = log

    assert streams.do_work() == 0
    assert links.sent == {1: b"", 2: b""}


@pytest.mark.conformance("C-240")
def test_a_follower_gets_what_is_recorded_and_then_what_is_appended(log):
    links, recording, streams, publication = log
    streams.start(1, 5, 0)
    streams.do_work()
    streams.start(2, 6, recording.append_position)
    streams.do_work()
    publication.append(b"live")
    publication.flush()

    assert links.sent[1] == recording.data
    assert links.sent[2] == recording.data[-64:]


@pytest.mark.conformance("C-150")
def test_a_stream_is_the_live_logs_own_bytes_under_its_session(log):
    links, _, streams, _ = log
    streams.start(1, 5, 160)
    streams.do_work()

    expected = np.zeros(256, np.uint8)
    append_message(expected, 0, 160, PARAMS, b"message 1" + bytes(100))
    assert links.sent[1][:160] == expected[:160].tobytes()


def test_a_follower_whose_link_is_full_falls_back_to_the_recording_and_merges_again(log):
    links, recording, streams, publication = log
    streams.start(1, 5, 0)
    streams.do_work()
    links.full = {1}
    for number in range(5):
        publication.append(b"missed %d" % number)
        publication.flush()
    assert streams.has_laggards
    streams.do_work()
    links.full = set()
    publication.append(b"not sent before what was missed")
    publication.flush()
    streams.do_work()
    publication.append(b"live again")
    publication.flush()

    assert links.sent[1] == recording.data
    assert not streams.has_laggards


def test_a_full_link_holds_up_nobody_else(log):
    links, recording, streams, publication = log
    for member_id in (1, 2):
        streams.start(member_id, 5, 0)
    streams.do_work()
    links.full = {1}
    publication.append(b"more")
    publication.flush()

    assert links.sent[2] == recording.data


def test_recorded_bytes_wait_while_the_link_has_a_queue(log):
    links, _, streams, _ = log
    streams.start(1, 5, 0)
    links.is_backed_up = True

    assert streams.do_work() == 0
    links.is_backed_up = False
    assert streams.do_work() == 1


def test_a_turn_sends_a_bounded_part_of_a_long_log():
    links = Links()
    recording = Recording()
    streams = LogStreams(links, range(5))
    streams.open(recording)
    publication = LogPublication(recording, streams, PARAMS)
    while recording.append_position < 4 * 1024 * 1024:
        publication.append(bytes(8000))
        publication.flush()
    streams.start(1, 5, 0)

    assert streams.do_work() == CHUNKS_PER_TURN
    assert streams.has_laggards
    while streams.has_laggards:
        streams.do_work()
    assert links.sent[1] == recording.data


@pytest.mark.conformance("C-136")
def test_a_stream_with_an_end_stops_there(log):
    links, recording, streams, publication = log
    streams.start(1, 5, 160, 480)
    streams.do_work()
    publication.append(b"live")
    publication.flush()

    assert links.sent[1] == recording.data[160:480]
    assert streams.get(1) is None


@pytest.mark.conformance("C-152")
def test_a_catch_up_is_over_once_all_that_there_was_was_sent(log):
    _, recording, streams, publication = log
    streams.start(1, 0, 0, is_catchup=True)
    assert streams.get(1).merge_position == -1
    streams.do_work()
    merged = recording.append_position
    publication.append(b"live")
    publication.flush()

    assert streams.get(1).merge_position == merged


@pytest.mark.conformance("C-158")
def test_a_stream_that_is_stopped_sends_nothing_more(log):
    links, _, streams, publication = log
    streams.start(1, 5, 0)
    streams.stop(1)
    streams.stop(1)
    publication.append(b"live")
    publication.flush()

    assert links.sent[1] == b""


def test_the_publication_can_be_read_from_memory_and_from_the_recording(log):
    _, recording, _, publication = log
    for number in range(2000):
        publication.append(b"%d" % number + bytes(900))
        publication.flush()
    end = recording.append_position

    for position in (0, 160, end - 96 * 1024, end - 960):
        read = publication.read(position, 4096)
        assert read.tobytes() == recording.data[position : position + len(read)]
        assert len(read) > 0


def test_a_message_that_does_not_fit_what_is_left_of_the_buffer_is_appended_all_the_same():
    recording = Recording()
    streams = LogStreams(Links(), range(5))
    streams.open(recording)
    publication = LogPublication(recording, streams, PARAMS)
    for _ in range(400):  # far more than the buffer holds, without a flush in between
        publication.append(bytes(8000))
    publication.flush()

    assert recording.append_position == publication.position


# ---- the end of all positions (Aeron: MAX_POSITION_EXCEEDED)


def test_a_log_takes_no_more_input_well_before_its_last_position():
    recording = Recording()
    publication = LogPublication(recording, LogStreams(Links(), range(5)), PARAMS)
    limit = (PARAMS.term_length << 31) - 32 * PARAMS.term_length - 64 * 1024 * 1024
    publication.position = limit - 32
    assert not publication.is_full

    publication.position = limit
    assert publication.is_full


def test_what_does_not_fit_before_the_last_position_is_not_appended():
    publication = LogPublication(Recording(), LogStreams(Links(), range(5)), PARAMS)
    last = PARAMS.position_max - PARAMS.batch_length_min
    publication.base = publication.flushed_position = publication.position = last
    assert last < publication.append(b"x" * PARAMS.message_length_max) <= PARAMS.position_max

    with pytest.raises(AgentTermination, match="at its last position"):
        publication.append(b"x")


def test_a_follower_that_looks_for_a_leader_is_sent_nothing_until_it_follows_again(log):
    links, recording, streams, publication = log
    streams.start(1, 1, 0)
    streams.suspend(1)
    assert streams.has_suspended and streams.do_work() == 0
    publication.append(b"more")
    publication.flush()
    assert streams.do_work() == 0 and not links.sent[1]

    streams.resume(1)
    assert streams.do_work() == 1 and links.sent[1] == recording.data
    streams.suspend(1)
    streams.clear()
    assert not streams.has_suspended


def test_what_is_not_written_yet_is_read_by_nobody(log):
    _, recording, _, publication = log
    written = publication.flushed_position
    publication.append(b"more")
    assert not len(publication.read(written, 4096))
    publication.flush()
    assert publication.read(written, 4096).tobytes() == bytes(recording.data[written:])
