"""A client and its driver: what it has is what the driver says, and it lives while the driver lives."""

from __future__ import annotations

import struct
import threading
import time
from functools import partial

import numpy as np
import pytest

from cluster.errors import MediaDriverError
from cluster.media import client_conductor
from cluster.media.aeron import Aeron
from cluster.media.client_conductor import ChannelRefused
from cluster.protocol import media
from tests.media.made_driver import MadeDriver


class Answering:
    """A driver that answers each command at once, in a thread of its own."""

    def __init__(self, folder):
        self.driver = MadeDriver(folder)
        self.limit = self.driver.counter(1, value=2**62)
        self.position = self.driver.counter(4)
        self.heartbeat = -1
        self.commands = []
        self.log = self.driver.log_buffer()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._stop.wait(0.001):
            for type_id, body in self.driver.commands():
                self.commands.append(type_id)
                self._answer(type_id, body)

    def _answer(self, type_id, body):
        client_id, correlation_id = struct.unpack_from("<qq", body)
        if self.heartbeat < 0:
            self.heartbeat = self.driver.heartbeat_counter(client_id)
            self.client_id = client_id
        if b"nonsense" in body:
            self.driver.answer(media.ON_ERROR, media.OnError(correlation_id, 1, "bad channel").encode_body())
        elif type_id == media.ADD_SUBSCRIPTION:
            self.driver.answer(media.ON_SUBSCRIPTION_READY, struct.pack("<qi", correlation_id, 77))
        elif type_id == media.ADD_EXCLUSIVE_PUBLICATION:
            ready = media.OnPublicationReady(
                correlation_id, correlation_id, 5, 7, self.limit, -1, str(self.log)
            )
            self.driver.answer(media.ON_EXCLUSIVE_PUBLICATION_READY, ready.encode_body())

    def image(self, subscription, log=None):
        """An image of the publication for the subscription."""
        name = str(log or self.log).encode()
        body = struct.pack("<qiiqii", 99, 5, 7, subscription.registration_id, self.position, len(name)) + name
        body += bytes(-len(body) % 4) + struct.pack("<i4s", 4, b"here")
        self.driver.answer(media.ON_AVAILABLE_IMAGE, body)

    def close(self):
        self._stop.set()
        self._thread.join()


@pytest.fixture
def driver(tmp_path):
    driver = Answering(tmp_path)
    yield driver
    driver.close()


@pytest.fixture
def aeron(driver, tmp_path):
    with Aeron.connect(str(tmp_path), 0) as aeron:
        yield aeron


@pytest.mark.conformance("M-14", "M-19", "M-26")
def test_images_come_and_go_as_the_driver_says(driver, aeron):
    subscription = aeron.add_subscription("aeron:ipc", 7)
    publication = aeron.add_exclusive_publication("aeron:ipc", 7)
    driver.image(subscription)
    aeron.conductor.await_value(lambda: subscription.images, 5, "the image")
    image = subscription.image_of(5)
    assert publication.offer(b"a word") == 64
    out = np.zeros(64, np.uint8)
    driver.driver.answer(media.ON_UNAVAILABLE_IMAGE, struct.pack("<qqi", 99, subscription.registration_id, 7))
    aeron.conductor.await_value(lambda: not subscription.images, 5, "its end")
    assert image.is_closed
    assert image.poll(out) == 64
    assert out[32:38].tobytes() == b"a word"


@pytest.mark.conformance("M-14")
def test_an_image_of_another_s_subscription_or_one_that_is_gone_again_is_passed_over(driver, aeron, tmp_path):
    subscription = aeron.add_subscription("aeron:ipc", 7)
    driver.image(subscription, tmp_path / "gone")
    aeron.remove_subscription(subscription)
    driver.image(subscription)
    aeron.add_subscription("aeron:ipc", 8)
    assert subscription.images == {}


@pytest.mark.conformance("M-13")
def test_a_refusal_of_the_driver_is_an_error_in_its_words(driver, aeron):
    with pytest.raises(MediaDriverError, match=r"refused: bad channel \(error 1\)"):
        aeron.add_exclusive_publication("aeron:nonsense", 7)
    with pytest.raises(MediaDriverError, match="bad channel"):
        aeron.add_subscription("aeron:nonsense", 7)


def test_what_is_asked_for_without_waiting_is_there_once_the_driver_has_answered(driver, aeron):
    asked = aeron.ask_for_exclusive_publication("aeron:ipc", 7)
    find = partial(aeron.publication_of, asked)
    assert aeron.conductor.await_value(find, 5, "the publication").session_id == 5
    assert find() is None, "it is given once"
    refused = aeron.ask_for_exclusive_publication("aeron:nonsense", 7)
    with pytest.raises(ChannelRefused, match="bad channel"):
        aeron.conductor.await_value(lambda: aeron.publication_of(refused), 5, "no publication")


@pytest.mark.conformance("M-33")
def test_the_port_that_the_driver_chose_is_known(driver, aeron):
    subscription = aeron.add_subscription("aeron:udp?endpoint=localhost:0", 7)
    for status_id, text in ((76, b"127.0.0.1:1"), (77, b""), (77, b"127.0.0.1:20121")):
        driver.driver.counter(14, struct.pack("<ii", status_id, len(text)) + text, 1)
    assert aeron.local_address(subscription) == "127.0.0.1:20121"


@pytest.mark.conformance("M-17")
def test_a_client_lives_though_python_does_nothing_for_it(driver, aeron):
    aeron.add_subscription("aeron:ipc", 7)
    before = driver.driver.value(driver.heartbeat)
    deadline = time.monotonic() + 5
    while driver.driver.value(driver.heartbeat) <= before:
        assert time.monotonic() < deadline
    assert abs(driver.driver.value(driver.heartbeat) - time.time() * 1000) < 5000


@pytest.mark.conformance("M-18")
def test_a_counter_that_is_another_s_by_now_is_left_alone(driver, aeron, monkeypatch):
    monkeypatch.setattr(client_conductor, "CHECK_INTERVAL_S", 0.0)
    aeron.add_subscription("aeron:ipc", 7)
    driver.driver.free(driver.heartbeat)
    deadline = time.monotonic() + 5
    with pytest.raises(MediaDriverError, match="given this client up"):
        while time.monotonic() < deadline:
            aeron.conductor.do_work()


@pytest.mark.conformance("M-17")
def test_a_client_that_the_driver_gives_up_hears_it_and_others_do_not(driver, aeron):
    aeron.add_subscription("aeron:ipc", 7)
    driver.driver.answer(media.ON_CLIENT_TIMEOUT, struct.pack("<q", driver.client_id + 1))
    aeron.conductor.do_work()
    driver.driver.answer(media.ON_CLIENT_TIMEOUT, struct.pack("<q", driver.client_id))
    with pytest.raises(MediaDriverError, match="it was silent"):
        aeron.conductor.do_work()


def test_a_driver_that_answers_nothing_is_waited_for_no_longer_than_said(tmp_path, monkeypatch):
    MadeDriver(tmp_path)
    monkeypatch.setattr("cluster.media.aeron.ANSWER_TIMEOUT_S", 0.05)
    with (
        Aeron.connect(str(tmp_path), 0) as aeron,
        pytest.raises(MediaDriverError, match=r"answer did not come within 0\.05 s"),
    ):
        aeron.add_subscription("aeron:ipc", 7)


def test_a_client_that_ends_says_so_and_ends_its_thread(driver, tmp_path):
    with Aeron.connect(str(tmp_path), 0) as aeron:
        aeron.add_subscription("aeron:ipc", 7)
        assert "aeron-client-heartbeat" in {thread.name for thread in threading.enumerate()}
    assert "aeron-client-heartbeat" not in {thread.name for thread in threading.enumerate()}
    deadline = time.monotonic() + 5
    while media.CLIENT_CLOSE not in driver.commands:
        assert time.monotonic() < deadline


def test_an_answer_that_does_not_decode_is_the_driver_s_error(driver, aeron):
    driver.driver.answer(media.ON_SUBSCRIPTION_READY, b"123")
    with pytest.raises(MediaDriverError, match="does not decode"):
        aeron.conductor.do_work()
