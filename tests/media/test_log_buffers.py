"""What a publication writes into a log buffer an image reads, and both stay within it."""

from __future__ import annotations

import random
import socket
import struct
import threading
from bisect import bisect_left

import numpy as np
import pytest

from cluster.errors import LocalProtocolError, MediaDriverError
from cluster.log.deliver import read_message
from cluster.media.cnc_file import CncFile
from cluster.media.frame_wait import await_frames
from cluster.media.image import Image
from cluster.media.log_buffers import LogBuffers
from cluster.media.message_reader import MessageReader
from cluster.media.publication import BACK_PRESSURED, NOT_CONNECTED, Publication
from cluster.protocol.frame import TYPE_PAD, frame, header_at
from tests.aeron.recorded import recorded
from tests.media import made_driver
from tests.media.made_driver import MTU, TERM_LENGTH, MadeDriver, log_buffer


class Stream:
    """A publication and its image in one log buffer."""

    def __init__(self, folder, initial_term_id=0):
        self.driver = MadeDriver(folder)
        self.cnc = CncFile(str(folder), 0)
        self.limit, self.position = self.driver.counter(1), self.driver.counter(4)
        self.log = LogBuffers(str(self.driver.log_buffer(initial_term_id=initial_term_id)))
        self.publication = Publication(self.cnc, 1, 5, self.limit, self.log)
        self.image = Image(self.cnc, 2, 5, self.position, self.log)
        self.out = np.zeros(4 * TERM_LENGTH, np.uint8)

    def limit_to(self, position):
        self.driver.put("<q", self.cnc.value_offset(self.limit), position)

    def clean(self):
        """As the driver does: what was read is zeroed before it comes round again."""
        term = (self.publication.position // TERM_LENGTH + 1) % 3 * TERM_LENGTH
        self.log.buffer[term : term + TERM_LENGTH] = 0


@pytest.fixture
def stream(tmp_path):
    return Stream(tmp_path)


@pytest.mark.parametrize("initial_term_id", [0, -3, 2**31 - 2])
@pytest.mark.conformance("M-20", "M-21", "M-22", "M-23", "M-24", "M-25", "M-28", "M-29", "M-30")
def test_messages_of_any_length_come_out_of_the_image_as_they_were_offered(tmp_path, initial_term_id):
    stream = Stream(tmp_path, initial_term_id)
    stream.limit_to(2**62)
    rng = random.Random(7)
    ended, position = 0, 0
    for number in range(1500):
        message = bytes([number % 256]) * (8 + rng.randrange(MTU if number % 9 else 8000))
        before = stream.publication.position
        result = stream.publication.offer(message)
        if result // TERM_LENGTH > before // TERM_LENGTH:
            ended += 1
            stream.clean()
        length = stream.image.poll(stream.out)
        while stream.image.position < result:
            length += stream.image.poll(stream.out, length)
        at, read = 0, None
        while read is None:
            read, at = read_message(stream.out, at, length)
        assert read == message
        position += length
        assert at == length
        assert result == position == stream.publication.position == stream.driver.value(stream.position)
    assert ended == position // TERM_LENGTH > 6
    assert stream.log.metadata.active_term_count == ended


@pytest.mark.conformance("M-22", "M-28")
def test_a_frame_has_the_header_that_the_driver_chose_with_its_own_place(stream):
    stream.limit_to(2**62)
    stream.publication.offer(b"one")
    assert stream.publication.offer(bytes(MTU)) == 64 + MTU + 64
    assert stream.image.poll(stream.out) == 64 + MTU + 64
    headers = [header_at(stream.out, at) for at in (0, 64, 64 + MTU)]
    assert [tuple(header) for header in headers] == [
        (35, 0, 0xC0, 1, 0, 5, 7, 0, 0),
        (MTU, 0, 0x80, 1, 64, 5, 7, 0, 0),
        (64, 0, 0x40, 1, 64 + MTU, 5, 7, 0, 0),
    ]


@pytest.mark.conformance("M-27")
def test_nothing_is_appended_beyond_the_driver_s_limit(stream):
    assert stream.publication.offer(b"word") == BACK_PRESSURED
    stream.driver.put("<i", 0, stream.driver.get("<i", 0))
    stream.log.buffer[stream.log.metadata_offset + 136] = 0
    assert not stream.publication.is_connected
    assert stream.publication.offer(b"word") == NOT_CONNECTED
    stream.limit_to(1)
    assert stream.publication.offer(b"word") == 64
    assert stream.publication.position == 64


@pytest.mark.parametrize("seed", range(3))
def test_a_run_of_messages_is_appended_as_far_as_it_is_taken_and_as_they_are_one_by_one(stream, seed):
    chance = random.Random(seed)
    sent = [bytes([number % 256]) * chance.randrange(3000) for number in range(300)]
    run = np.frombuffer(b"".join(frame(each, session_id=1, stream_id=101) for each in sent), np.uint8)
    reader, at, read = MessageReader(stream.image), 0, []
    while at < run.size:
        stream.clean()
        stream.limit_to(stream.publication.position + chance.randrange(20_000))
        taken = stream.publication.offer_frames(run, at, run.size)
        assert taken > at or stream.publication.offer(b"") == BACK_PRESSURED
        at = taken
        read += reader.poll()
    assert read == sent


def test_a_message_of_a_run_that_is_too_long_is_left_and_not_the_one_before(stream):
    stream.limit_to(2**62)
    first, long = (frame(bytes(n), session_id=1, stream_id=101) for n in (40, TERM_LENGTH // 8 + 1))
    run = np.frombuffer(first + long, np.uint8)
    assert stream.publication.offer_frames(run, 0, run.size) == len(first)
    assert stream.publication.offer_frames(run, len(first), run.size) == len(first)
    assert stream.publication.position == 96


def test_a_wait_ends_with_the_next_frame_or_what_a_descriptor_has_or_its_time(stream):
    stream.limit_to(2**62)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not await_frames([], 0.002)
        assert not await_frames([stream.image], 0.002, ours.fileno())
        theirs.send(b"x")
        assert await_frames([stream.image], 60, ours.fileno())
    run = np.frombuffer(frame(bytes(4000), session_id=1, stream_id=101), np.uint8)
    for _ in range(2 * TERM_LENGTH // 4096):  # into other terms
        sender = threading.Timer(0.002, stream.publication.offer_frames, [run, 0, run.size])
        sender.start()
        assert await_frames([stream.image], 60)
        sender.join()
        while stream.image.poll(stream.out):
            pass


@pytest.mark.conformance("M-30")
def test_a_message_is_an_eighth_of_a_term_at_most(stream):
    stream.limit_to(2**62)
    assert stream.publication.offer(bytes(TERM_LENGTH // 8)) > 0
    with pytest.raises(LocalProtocolError, match="at most 8192"):
        stream.publication.offer(bytes(TERM_LENGTH // 8 + 1))


def test_an_image_goes_on_only_over_frames_that_fit_what_reads_them(stream):
    stream.limit_to(2**62)
    for _ in range(3):
        stream.publication.offer(bytes(32))
    assert stream.image.poll(stream.out[:160]) == 128
    assert stream.image.poll(stream.out[:32]) == 0
    assert stream.image.poll(stream.out, 96) == 64
    assert stream.image.poll(stream.out) == 0
    assert stream.out[96:160].tobytes()[:4] == struct.pack("<i", 64)


@pytest.mark.conformance("M-26")
def test_padding_that_is_longer_than_a_reader_has_room_for_is_read_all_the_same(tmp_path, monkeypatch):
    """It takes the rest of a term, where the next message does not fit: up to an eighth of it."""
    term_length = 32 * TERM_LENGTH
    monkeypatch.setattr(made_driver, "TERM_LENGTH", term_length)
    stream = Stream(tmp_path)
    stream.limit_to(2**62)
    reader, sent = MessageReader(stream.image), 0
    while term_length - stream.publication.position > 200_000:
        stream.publication.offer(bytes(1000))
        sent += 1
    assert [len(message) for message in reader.poll()] == [1000] * sent
    stream.publication.offer(b"x" * 240_000)
    stream.publication.offer(b"next")
    assert reader.poll() == [b"x" * 240_000, b"next"]
    assert stream.image.needed == 0


def test_an_image_says_how_much_room_its_next_frame_needs(stream):
    stream.limit_to(2**62)
    stream.publication.offer(bytes(1000))
    stream.publication.offer(bytes(8))
    assert stream.image.poll(stream.out[:1000]) == 0 and stream.image.needed == 1056
    assert stream.image.poll(stream.out[:1056]) == 1056 and stream.image.needed == 0
    assert stream.image.poll(stream.out[:0]) == 0 and stream.image.needed == 64


def test_what_was_sent_can_be_read_after_the_driver_has_taken_the_image_away(stream):
    stream.limit_to(2**62)
    stream.publication.offer(bytes(32))
    stream.image.is_closed = True
    assert not stream.image.is_end_of_stream
    assert stream.image.poll(stream.out) == 64
    assert stream.driver.value(stream.position) == 0, "the counter is another's by then"
    stream.log.buffer[stream.log.metadata_offset + 128 :][:8] = np.frombuffer(struct.pack("<q", 64), np.uint8)
    assert stream.image.is_end_of_stream


@pytest.mark.parametrize("length", [1, 31, TERM_LENGTH + 32, 2**31 - 1])
def test_a_frame_that_does_not_fit_its_term_is_refused(stream, length):
    stream.log.buffer[:4] = np.frombuffer(struct.pack("<i", length), np.uint8)
    with pytest.raises(MediaDriverError, match="no frame at 0"):
        stream.image.poll(stream.out)


@pytest.mark.parametrize("position", [-32, 7])
def test_an_image_that_begins_nowhere_is_refused(stream, position):
    stream.driver.put("<q", stream.cnc.value_offset(stream.position), position)
    with pytest.raises(MediaDriverError, match="expected a multiple of 32"):
        Image(stream.cnc, 2, 5, stream.position, stream.log)


@pytest.mark.parametrize(("offset", "value"), [(0, 7), (0, TERM_LENGTH + 32), (4, 9), (24, 1)])
def test_a_publication_with_a_tail_that_is_none_is_refused(stream, offset, value):
    at = stream.log.metadata_offset + offset
    stream.log.buffer[at : at + 4] = np.frombuffer(struct.pack("<i", value), np.uint8)
    with pytest.raises(MediaDriverError, match="a publication"):
        Publication(stream.cnc, 1, 5, stream.limit, stream.log)


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        *((268, 64), (272, 0), (272, 1400), (272, 2**20), (276, 0), (276, -1), (276, 128 * 1024)),
        *((276, 65535), (280, 0), (280, 5000), (280, -4096)),
    ],
)
@pytest.mark.conformance("M-20", "M-21")
def test_a_log_buffer_with_a_wrong_length_in_it_is_not_used(tmp_path, offset, value):
    data = bytearray(log_buffer())
    struct.pack_into("<i", data, len(data) - 4096 + offset, value)
    path = tmp_path / "log"
    path.write_bytes(data)
    with pytest.raises(MediaDriverError, match="log buffer"):
        LogBuffers(str(path))


@pytest.mark.parametrize("length", [0, 4095, 4096, 3 * TERM_LENGTH, 3 * TERM_LENGTH + 8192])
def test_a_log_buffer_of_another_length_is_not_used(tmp_path, length):
    path = tmp_path / "log"
    path.write_bytes((bytes(8192) + log_buffer())[-length:] if length else b"")
    with pytest.raises(MediaDriverError, match="log buffer"):
        LogBuffers(str(path))


def test_messages_are_joined_from_their_frames_when_the_last_has_come(stream):
    stream.limit_to(2**62)
    reader = MessageReader(stream.image)
    assert reader.poll() == []
    sent = [bytes([n]) * (8 + 997 * n) for n in range(8)]
    for message in sent:
        stream.publication.offer(message)
    assert reader.poll() == sent
    stream.publication.offer(sent[7])
    last = stream.publication.position - 160  # where its last frame begins
    length = stream.log.buffer[last : last + 4].copy()
    stream.log.buffer[last : last + 4] = 0
    assert reader.poll() == []
    stream.log.buffer[last : last + 4] = length
    assert reader.poll() == [sent[7]]


@pytest.mark.parametrize("initial_term_id", [9, 2**31 - 2])
@pytest.mark.conformance("M-47")
def test_recorded_frames_come_out_as_they_were_but_for_session_and_stream(tmp_path, initial_term_id):
    frames, _ = recorded(5)
    frames = frames.copy()
    begins, at = [], 0
    while at < frames.size:
        begins.append(at)
        terms = at // TERM_LENGTH
        term_id = (initial_term_id + terms + 2**31) % 2**32 - 2**31
        frames[at + 20 : at + 24] = np.frombuffer(struct.pack("<i", term_id), np.uint8)
        at += header_at(frames, at).aligned_length
    stream = Stream(tmp_path, initial_term_id)
    heard, at, rng = bytearray(), 0, random.Random(5)
    while at < frames.size:
        stream.limit_to(at + rng.randrange(1, 20_000))
        end = min(at + rng.randrange(1, 30_000), frames.size)
        taken = stream.publication.offer_recorded(frames, at, end)
        assert taken in begins or taken == frames.size
        assert taken < end or begins[bisect_left(begins, end) - 1] < end <= taken
        at = taken
        assert stream.publication.position == at
        heard += stream.out[: stream.image.poll(stream.out)].tobytes()
        stream.clean()
    expected = frames.copy()
    for begin in begins:
        expected[begin + 12 : begin + 20] = np.frombuffer(struct.pack("<ii", 5, 7), np.uint8)
        if header_at(frames, begin).type == TYPE_PAD:
            expected[begin + 32 : begin + header_at(frames, begin).aligned_length] = 0
    assert heard == expected.tobytes()


@pytest.mark.parametrize(
    ("offset", "value"),
    [(0, 0), (0, 31), (0, 1440 + 32), (0, 2**31 - 1), (8, 96), (20, 10)],
    ids=["none", "short", "beyond the MTU", "beyond the run", "another offset", "another term"],
)
def test_a_frame_that_does_not_belong_there_is_not_offered(tmp_path, offset, value):
    stream = Stream(tmp_path, 9)
    stream.limit_to(2**62)
    frames, _ = recorded(1)
    frames = frames.copy()
    begin = header_at(frames, 0).aligned_length
    frames[begin + offset : begin + offset + 4] = np.frombuffer(struct.pack("<i", value), np.uint8)
    with pytest.raises(LocalProtocolError, match=f"no frame of position {begin} is at {begin}"):
        stream.publication.offer_recorded(frames, 0, frames.size)
    assert stream.image.poll(stream.out) == begin


def test_a_publication_says_whether_it_is_where_a_recording_goes_on(tmp_path):
    publication = Stream(tmp_path, 9).publication
    assert publication.is_at(0, TERM_LENGTH, 9, MTU)
    for place in ((32, TERM_LENGTH, 9, MTU), (0, 2 * TERM_LENGTH, 9, MTU), (0, TERM_LENGTH, 8, MTU)):
        assert not publication.is_at(*place)
