"""The Java media driver and a client of ours: what is offered arrives, and each notices the other's end."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys

import pytest

from cluster.errors import MediaDriverError
from cluster.media.aeron import Aeron
from cluster.media.client_conductor import ChannelRefused
from cluster.media.message_reader import MessageReader
from tests.interop.aeron import SHARED_MEMORY, jar, media_driver

pytestmark = pytest.mark.interop
MESSAGES = 20_000
STREAM = 1001


def test_the_command_runs_a_driver_until_it_is_interrupted(tmp_path):
    aeron_dir = SHARED_MEMORY / f"interop-command-{os.getpid()}"
    command = [sys.executable, "-m", "cluster", "aeron", "driver", "--aeron-dir", aeron_dir, "--jar", jar()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert (
                process.stdout.readline() == f"media driver of {jar().name} in {aeron_dir}; Ctrl-C ends it\n"
            )
            with Aeron.connect(str(aeron_dir), 30) as aeron:
                assert joined(aeron, "aeron:ipc")
            second = subprocess.run(command, capture_output=True, text=True, check=False)
            assert second.returncode == 1 and "runs with directory" in second.stderr
            process.send_signal(signal.SIGINT)
            process.wait(30)
            assert not aeron_dir.exists()
        finally:
            process.kill()
            shutil.rmtree(aeron_dir, ignore_errors=True)


@pytest.fixture
def aeron():
    with media_driver() as aeron_dir, Aeron.connect(str(aeron_dir), 30) as aeron:
        yield aeron


def joined(aeron, channel):
    """A publication and the reader of its image; of UDP the port is the driver's choice."""
    subscription = aeron.add_subscription(channel, STREAM)
    if "udp" in channel:
        channel = f"aeron:udp?endpoint={aeron.local_address(subscription)}"
    publication = aeron.add_exclusive_publication(
        f"{channel}{'|' if '?' in channel else '?'}term-length=64k", STREAM
    )
    image = aeron.conductor.await_value(
        lambda: publication.is_connected and subscription.image_of(publication.session_id), 10, "the image"
    )
    return publication, MessageReader(image)


@pytest.mark.parametrize("channel", ["aeron:ipc", "aeron:udp?endpoint=127.0.0.1:0"])
@pytest.mark.conformance("M-10", "M-11", "M-14", "M-23", "M-28", "M-29", "M-32", "M-33")
def test_what_is_offered_arrives_in_order_over_many_terms(aeron, channel):
    publication, reader = joined(aeron, channel)
    arrived, offered, pressed = 0, 0, 0
    while arrived < MESSAGES:
        while offered < MESSAGES:
            message = offered.to_bytes(8, "little") + bytes(offered % 5000)
            if publication.offer(message) < 0:
                pressed += 1
                break
            offered += 1
        for message in reader.poll():
            assert message == arrived.to_bytes(8, "little") + bytes(arrived % 5000)
            arrived += 1
        aeron.conductor.do_work()
    assert publication.position > 100 * 65536
    assert pressed > 0, "the driver's limit was never met"


@pytest.mark.conformance("M-10")
def test_a_subscription_listens_where_it_is_told_until_it_is_told_otherwise(aeron):
    answer, await_value = aeron.conductor.answer, aeron.conductor.await_value
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        destination = f"aeron:udp?endpoint=127.0.0.1:{probe.getsockname()[1]}"
    subscription = aeron.ask_for_subscription("aeron:udp?control-mode=manual", STREAM)
    id_ = subscription.registration_id
    await_value(lambda: answer(id_), 10, "the subscription")
    assert not aeron.has_socket_of(id_)
    added = aeron.add_destination(subscription, destination)
    await_value(lambda: answer(added), 10, "the destination")
    assert aeron.has_socket_of(id_)
    asked = aeron.ask_for_exclusive_publication(destination, STREAM)
    publication = await_value(lambda: aeron.publication_of(asked), 10, "the publication")
    await_value(lambda: subscription.image_of(publication.session_id), 10, "its image")
    aeron.remove_destination(subscription, destination)
    aeron.remove_subscription(subscription)
    await_value(lambda: not aeron.has_socket_of(id_), 10, "the end of its socket")


@pytest.mark.conformance("M-13")
def test_a_channel_that_the_driver_refuses_is_refused_in_its_words(aeron):
    with pytest.raises(ChannelRefused, match="address:port is required"):
        aeron.add_exclusive_publication("aeron:udp?endpoint=nonsense", STREAM)
    joined(aeron, "aeron:ipc")


@pytest.mark.timeout(120)
@pytest.mark.conformance("M-17")
def test_a_client_whose_python_stands_still_stays_alive(aeron):
    """The driver gives up a client that is silent for 10 s."""
    publication, reader = joined(aeron, "aeron:ipc")
    ctypes.PyDLL(None).sleep(12)  # it keeps the interpreter's lock
    aeron.conductor.do_work()
    assert publication.offer(b"still there") > 0
    assert aeron.conductor.await_value(reader.poll, 10, "the message") == [b"still there"]


@pytest.mark.timeout(120)
@pytest.mark.conformance("M-3", "M-4")
def test_a_driver_that_ends_is_noticed_and_the_next_one_serves_a_new_client():
    with media_driver() as aeron_dir:
        first = Aeron.connect(str(aeron_dir), 30)
        joined(first, "aeron:ipc")
    with media_driver() as aeron_dir:
        with pytest.raises(MediaDriverError, match="was stopped, or started again"):
            while True:
                first.conductor.do_work()
        first.close()
        with Aeron.connect(str(aeron_dir), 30) as second:
            publication, reader = joined(second, "aeron:ipc")
            assert publication.offer(b"again") > 0
            assert second.conductor.await_value(reader.poll, 10, "the message") == [b"again"]
