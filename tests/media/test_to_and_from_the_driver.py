"""Commands go into the driver's ring as it takes them, and its answers come out as it gave them."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest

from cluster.errors import LocalProtocolError, MediaDriverError, RemoteProtocolError
from cluster.media.aeron import Aeron
from cluster.media.broadcast_receiver import BroadcastReceiver
from cluster.media.cnc_file import CncFile
from cluster.media.many_to_one_ring_buffer import ManyToOneRingBuffer
from cluster.protocol import media
from tests.media.made_driver import BROADCAST, RING, MadeDriver


@pytest.fixture
def driver(tmp_path):
    return MadeDriver(tmp_path)


@pytest.fixture
def cnc(driver, tmp_path):
    return CncFile(str(tmp_path), 0)


@pytest.fixture
def ring(cnc):
    return ManyToOneRingBuffer(cnc.buffer, cnc.regions.to_driver)


@pytest.mark.conformance("M-1", "M-2", "M-3")
def test_a_driver_s_file_is_mapped_when_its_driver_runs(driver, cnc, tmp_path):
    assert cnc.header == driver.header
    driver.beat(age_ms=10_500)
    with pytest.raises(MediaDriverError, match="heartbeat is old"):
        CncFile(str(tmp_path), 0)


@pytest.mark.parametrize(
    ("offset", "value", "why"),
    [
        (0, 0, "is being made"),
        (0, 1 << 16, "version"),
        (4, 2**31 - 1, "region to_driver"),
        (4, 16 * 1024 + 769, "the to-driver ring has"),
        (8, 400, "the to-clients buffer has"),
        (16, -128, "region counters_values"),
    ],
)
@pytest.mark.conformance("M-1")
def test_a_file_with_a_wrong_version_or_length_is_not_used(driver, tmp_path, offset, value, why):
    driver.put("<i", offset, value)
    with pytest.raises(MediaDriverError, match=why):
        CncFile(str(tmp_path), 0)


def test_without_a_driver_the_command_that_runs_one_is_named(tmp_path):
    why, how = "/cnc.dat is not there", f"`cluster aeron driver --aeron-dir {tmp_path}` runs one"
    with pytest.raises(MediaDriverError, match=f"directory {tmp_path}: {tmp_path}{why}; {how}"):
        CncFile(str(tmp_path), 0)
    (tmp_path / "cnc.dat").write_bytes(b"\0" * 7)
    with pytest.raises(MediaDriverError, match="has 7 bytes"):
        CncFile(str(tmp_path), 0)


@pytest.mark.conformance("M-4")
def test_a_driver_that_was_started_again_is_noticed(driver, cnc, tmp_path):
    cnc.check_driver()
    again = tmp_path / "new"
    again.write_bytes(driver.path.read_bytes())
    again.rename(driver.path)
    with pytest.raises(MediaDriverError, match="started again"):
        cnc.check_driver()
    driver.path.unlink()
    with pytest.raises(MediaDriverError, match="was stopped"):
        cnc.check_driver()


@pytest.mark.conformance("M-5", "M-6", "M-8")
def test_commands_of_any_length_come_out_of_the_ring_as_they_went_in(driver, ring):
    sent = []
    for number in range(2000):  # many times round
        body = bytes([number % 256]) * (1 + number * 37 % ring.message_length_max)
        ring.write(number + 1, body)
        sent.append((number + 1, body))
        if number % 5 == 4:
            assert list(driver.commands()) == sent
            sent.clear()


@pytest.mark.conformance("M-6", "M-7")
def test_a_ring_that_is_full_takes_no_command_and_overwrites_none(driver, ring):
    ring.write(1, b"first")
    written = 0
    with pytest.raises(MediaDriverError, match="its ring is full"):
        while True:
            ring.write(2, bytes(1000))
            written += 1
    assert written == (RING - 16) // 1008
    assert next(driver.commands()) == (1, b"first")
    with pytest.raises(LocalProtocolError, match="takes at most 2048"):
        ring.write(3, bytes(2049))


@pytest.mark.conformance("M-7")
def test_a_record_whose_padding_would_reach_the_driver_s_head_is_refused(driver, ring):
    for length in (1016, *[2040] * 6, 1016, 1016):
        ring.write(1, bytes(length))
    driver.put("<q", driver.regions.to_driver.offset + RING + 384, 1024)
    with pytest.raises(MediaDriverError, match="its ring is full"):
        ring.write(2, bytes(2040))
    ring.write(2, bytes(1016))


@pytest.mark.conformance("M-9")
def test_no_two_commands_have_one_correlation_id(ring, cnc):
    other = ManyToOneRingBuffer(cnc.buffer, cnc.regions.to_driver)
    assert [each.next_correlation_id() for each in (ring, other, ring)] == [0, 1, 2]


@pytest.mark.conformance("M-10", "M-12", "M-32")
def test_each_command_has_the_bytes_of_aeron_s(driver, cnc):
    aeron = Aeron(cnc)
    publication = aeron.ask_for_exclusive_publication("aeron:ipc", 10)
    subscription = aeron.ask_for_subscription("aeron:udp?endpoint=localhost:0", 20)
    aeron.give_up_publication(publication)
    aeron.remove_subscription(subscription)
    aeron.add_destination(subscription, "aeron:udp?endpoint=localhost:7")
    aeron.remove_destination(subscription, "aeron:udp?endpoint=localhost:7")
    aeron.add_sent_destination(SimpleNamespace(registration_id=publication), "aeron:udp?endpoint=localhost:8")
    aeron.close()
    assert list(driver.commands()) == [
        (0x03, struct.pack("<qqii9s", 0, 1, 10, 9, b"aeron:ipc")),
        (0x04, struct.pack("<qqqii30s", 0, 2, -1, 20, 30, b"aeron:udp?endpoint=localhost:0")),
        (0x02, struct.pack("<qqqq", 0, 3, 1, 0)),
        (0x05, struct.pack("<qqq", 0, 4, 2)),
        (0x0C, struct.pack("<qqqi30s", 0, 5, 2, 30, b"aeron:udp?endpoint=localhost:7")),
        (0x0D, struct.pack("<qqqi30s", 0, 6, 2, 30, b"aeron:udp?endpoint=localhost:7")),
        (0x07, struct.pack("<qqqi30s", 0, 7, 1, 30, b"aeron:udp?endpoint=localhost:8")),
        (0x0B, struct.pack("<qq", 0, -1)),
    ]


@pytest.mark.conformance("M-15")
def test_answers_are_heard_from_the_latest_on_in_order_and_round_the_buffer(driver, cnc):
    driver.answer(1, b"before")
    driver.answer(2, b"latest")
    receiver = BroadcastReceiver(cnc.buffer, cnc.regions.to_clients)
    assert receiver.receive() == (2, b"latest")
    assert receiver.receive() is None
    for number in range(2000):
        body = bytes([number % 256]) * (number * 31 % 500)
        driver.answer(number, body)
        assert receiver.receive() == (number, body)


@pytest.mark.conformance("M-16")
def test_a_client_that_did_not_keep_up_hears_that_and_nothing_wrong(driver, cnc):
    receiver = BroadcastReceiver(cnc.buffer, cnc.regions.to_clients)
    for _ in range(BROADCAST // 504 + 1):
        driver.answer(1, bytes(496))
    with pytest.raises(MediaDriverError, match="kept up"):
        receiver.receive()


@pytest.mark.parametrize("length", [0, 7, -1, 5000, 2**31 - 1])
def test_an_answer_of_an_impossible_length_is_refused(driver, cnc, length):
    receiver = BroadcastReceiver(cnc.buffer, cnc.regions.to_clients)
    driver.answer(1, b"12345678")
    driver.put("<i", driver.regions.to_clients.offset, length)
    with pytest.raises(MediaDriverError, match="no record"):
        receiver.receive()


@pytest.mark.conformance("M-11")
def test_each_answer_is_read_as_the_driver_writes_it():
    image = (
        struct.pack("<qiiqii5s", 9, -7, 1001, 3, 12, 5, b"/a/bc") + bytes(3) + struct.pack("<i4s", 4, b"host")
    )
    for type_id, body, event in [
        (0xF01, struct.pack("<qii2s", 4, 1, 2, b"no"), media.OnError(4, 1, "no")),
        (0xF02, image, media.OnAvailableImage(9, -7, 1001, 3, 12, "/a/bc", "host")),
        (0xF04, struct.pack("<q", 4), media.OnOperationSuccess(4)),
        (0xF05, struct.pack("<qqii3s", 9, 3, 1001, 3, b"ipc"), media.OnUnavailableImage(9, 3, 1001)),
        (
            0xF06,
            struct.pack("<qqiiiii2s", 1, 1, 8, 1001, 11, 12, 2, b"/p"),
            media.OnPublicationReady(1, 1, 8, 1001, 11, 12, "/p"),
        ),
        (0xF07, struct.pack("<qi", 3, 14), media.OnSubscriptionReady(3, 14)),
        (0xF0A, struct.pack("<q", 5), media.OnClientTimeout(5)),
        (0xF08, b"", None),
    ]:
        assert media.decode_driver_event(type_id, body) == event
    for cut in range(len(image)):
        with pytest.raises(RemoteProtocolError):
            media.decode_driver_event(0xF02, image[:cut])


def test_counters_are_looked_for_only_where_there_are_some(cnc):
    assert cnc.value_offset(63) + 128 == cnc.regions.counters_values.end
    for counter_id in (-1, 64, 2**31 - 1):
        with pytest.raises(MediaDriverError, match="which there is not"):
            cnc.value_offset(counter_id)
