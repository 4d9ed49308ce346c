"""One connection over real sockets: whole frames however the bytes come, and bounded queues."""

import contextlib
import os
import socket
import threading
import time

import numpy as np
import pytest

from cluster.errors import RemoteProtocolError
from cluster.protocol.enums import Offer
from cluster.protocol.frame import frame
from cluster.transport.dial import dial
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.poller import Poller
from cluster.transport.sockets import Connection, ReceiveBuffer

DEADLINE_S = 30


@pytest.fixture
def poller():
    poller = Poller()
    yield poller
    poller.close()


@pytest.fixture
def pair(poller):
    """A connection and the bare socket at its other end."""
    ours, theirs = socket.socketpair()
    connection = Connection(ours, poller, ReceiveBuffer(64 * 1024), frame_length_max=4_000_000)
    yield connection, theirs
    connection.close()
    theirs.close()


def a_frame(payload: bytes) -> bytes:
    return frame(payload, session_id=1, stream_id=101)


def receive(poller, connection, length, *, take=None):
    """Bytes of whole frames until there are ``length``; ``take`` bounds what is released at a time."""
    taken = b""
    deadline = time.monotonic() + DEADLINE_S
    while len(taken) < length:
        assert time.monotonic() < deadline, f"{len(taken)} of {length} bytes came"
        poller.wait(0.05)
        if (connection.is_readable or connection.has_frames) and connection.receive():
            start, end = connection.start, connection.end
            if take is not None:
                end = min(end, start + take)
            taken += connection.buffer[start:end].tobytes()
            connection.release(end)
    return taken


@pytest.mark.parametrize("piece", [1, 7, 31, 32, 33, 100, 1000, 10**6])
def test_frames_come_whole_however_the_bytes_come(poller, pair, piece):
    connection, theirs = pair
    sent = b"".join(a_frame(bytes([n]) * (n * 5)) for n in range(20))
    received = b""
    for begin in range(0, len(sent), piece):
        theirs.sendall(sent[begin : begin + piece])
        poller.wait(0.05)
        if connection.receive():
            received += connection.buffer[connection.start : connection.end].tobytes()
            connection.release(connection.end)

    assert received == sent


@pytest.mark.parametrize("length", [40_000, 70_000, 1_000_000, 3_999_968])
def test_a_frame_larger_than_the_shared_buffer_comes_whole(poller, pair, length):
    connection, theirs = pair
    theirs.setblocking(False)
    sent = a_frame(b"before") + a_frame(np.random.default_rng(1).bytes(length)) + a_frame(b"after")
    rest = memoryview(sent)
    received = b""
    deadline = time.monotonic() + DEADLINE_S
    while len(received) < len(sent):
        assert time.monotonic() < deadline
        try:
            rest = rest[theirs.send(rest) :] if rest else rest
        except BlockingIOError:
            pass
        poller.wait(0.05)
        if connection.is_readable and connection.receive():
            received += connection.buffer[connection.start : connection.end].tobytes()
            connection.release(connection.end)

    assert received == sent


@pytest.mark.parametrize("given", [64, 40_000, 64 * 1024, 200_000])
def test_a_large_frame_whose_beginning_a_kernel_received_comes_whole(poller, pair, given):
    connection, theirs = pair
    sent = a_frame(np.random.default_rng(1).bytes(300_000))
    connection.adopt(np.frombuffer(sent[:given], np.uint8))
    sending = threading.Thread(target=theirs.sendall, args=(sent[given:],))
    sending.start()
    assert receive(poller, connection, len(sent)) == sent and not connection.is_closed
    sending.join()


def test_frames_that_were_not_taken_come_again(poller, pair):
    connection, theirs = pair
    frames = [a_frame(bytes([n]) * 50) for n in range(10)]
    theirs.sendall(b"".join(frames) + a_frame(b"half")[:20])
    first = receive(poller, connection, 1, take=len(frames[0]))
    theirs.sendall(a_frame(b"half")[20:])

    rest = receive(poller, connection, 9 * len(frames[0]) + 64, take=3 * len(frames[0]))

    assert first + rest == b"".join(frames) + a_frame(b"half")


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: cluster\r\n\r\n",
        bytes(64),
        b"\xff" * 64,
        (31).to_bytes(4, "little") + b"\x00\xc0\x01\x00" + bytes(24),
        (4_000_001).to_bytes(4, "little") + b"\x00\xc0\x01\x00" + bytes(24),
        (40).to_bytes(4, "little") + b"\x00\xc0\x05\x00" + bytes(56),
    ],
)
def test_what_is_no_frame_closes_the_connection_and_is_named(poller, pair, garbage):
    connection, theirs = pair
    theirs.sendall(garbage)
    poller.wait(1)

    with pytest.raises(RemoteProtocolError, match="not a frame of at most 4000000 bytes: "):
        connection.receive()
    assert connection.is_closed
    assert theirs.recv(1) == b""


def test_end_of_file_in_the_middle_of_a_frame_closes_the_connection(poller, pair):
    connection, theirs = pair
    theirs.sendall(a_frame(b"x" * 100)[:50])
    theirs.close()
    deadline = time.monotonic() + DEADLINE_S
    while not connection.is_closed:
        assert time.monotonic() < deadline
        poller.wait(0.05)
        assert not connection.receive()

    assert connection.why_closed == "the peer closed the connection"
    assert connection.offer(a_frame(b"y")) == Offer.CLOSED


def test_a_write_that_finds_the_peer_gone_says_so_as_a_read_does(pair):
    connection, theirs = pair
    theirs.close()

    assert connection.offer(a_frame(b"y")) == Offer.CLOSED
    assert connection.why_closed == "the peer closed the connection"


@pytest.mark.conformance("S-57")
def test_half_a_frame_of_a_connection_that_ended_is_no_part_of_the_next_one(poller):
    """A client has one buffer for all leaders."""
    shared = ReceiveBuffer(64 * 1024)
    for payload, is_whole in ((b"x" * 100, False), (b"y" * 100, True)):
        ours, theirs = socket.socketpair()
        connection = Connection(ours, poller, shared, frame_length_max=4_000_000)
        theirs.sendall(a_frame(payload) if is_whole else a_frame(payload)[:70])
        if is_whole:
            assert receive(poller, connection, len(a_frame(payload))) == a_frame(payload)
        else:
            poller.wait(1)
            assert not connection.receive()
        connection.close()
        theirs.close()


def test_a_full_queue_pushes_back_whole_batches_and_keeps_the_order(poller):
    ours, theirs = socket.socketpair()
    connection = Connection(ours, poller, ReceiveBuffer(), queue_bytes_max=1_000_000)
    batch = [a_frame(bytes([n]) * 20_000) for n in range(10)]
    accepted = 0
    while connection.offer(*batch) > 0:
        accepted += 1
    assert connection.offer(*batch) == Offer.BACK_PRESSURED
    assert connection.queued_bytes <= 1_000_000

    theirs.setblocking(False)
    received = b""
    deadline = time.monotonic() + DEADLINE_S
    expected = b"".join(batch) * accepted
    while len(received) < len(expected):
        assert time.monotonic() < deadline
        try:
            received += theirs.recv(1 << 20)
        except BlockingIOError:
            poller.wait(0.05)
    assert received == expected
    assert connection.queued_bytes == 0
    connection.close()
    theirs.close()


def test_the_buffers_of_an_offer_are_the_callers_again_on_return(poller, pair):
    connection, theirs = pair
    buffer = np.frombuffer(bytearray(a_frame(b"1" * 1_000_000)), np.uint8)
    copy = buffer.tobytes()
    connection.offer(buffer)
    buffer[:] = 0
    theirs.setblocking(False)
    received = b""
    deadline = time.monotonic() + DEADLINE_S
    while len(received) < len(copy):
        assert time.monotonic() < deadline
        try:
            received += theirs.recv(1 << 20)
        except BlockingIOError:
            poller.wait(0.05)

    assert received == copy


def test_write_takes_what_the_socket_takes_and_queues_nothing(poller, pair):
    connection, theirs = pair
    data = memoryview(a_frame(b"x" * 3_000_000))
    taken = connection.write(data)

    assert 0 < taken < len(data)
    assert connection.queued_bytes == 0
    assert connection.write(data[taken:]) == 0
    connection.want_writable()
    theirs.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while theirs.recv(1 << 20):
            pass
    assert poller.wait(DEADLINE_S) > 0
    assert connection.write(data[taken:]) > 0


def test_a_paused_connection_receives_nothing_until_resumed(poller, pair):
    connection, theirs = pair
    connection.pause()
    theirs.sendall(a_frame(b"x"))
    assert poller.wait(0) == 0
    connection.resume()
    poller.wait(1)

    assert connection.receive()


def test_nobody_at_an_address_is_a_refusal_and_silence_is_not(poller, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    refused = [
        dial(Endpoint(Medium.TCP, "127.0.0.1", port), poller, ReceiveBuffer()),
        dial(Endpoint(Medium.IPC, path=str(tmp_path / "none.sock")), poller, ReceiveBuffer()),
    ]
    deadline = time.monotonic() + DEADLINE_S
    while not all(connection.is_closed for connection in refused):
        assert time.monotonic() < deadline
        poller.wait(0.05)
    assert all(connection.was_refused for connection in refused)

    with socket.create_server(("127.0.0.1", 0)) as server:  # it listens, and never accepts
        silent = dial(Endpoint(Medium.TCP, "127.0.0.1", server.getsockname()[1]), poller, ReceiveBuffer())
        while not silent.is_connected:
            assert time.monotonic() < deadline
            poller.wait(0.05)
        assert not silent.was_refused
        silent.close()


def test_a_wait_is_ended_from_another_thread(poller):
    thread = threading.Thread(target=poller.wake)
    thread.start()
    assert poller.wait(DEADLINE_S) == 1
    thread.join()
    assert poller.wait(0) == 0


def test_a_poller_is_not_closed_while_another_thread_wakes_it(monkeypatch):
    """Its descriptor would be somebody else's by the time that the thread writes to it."""
    poller, closing, write = Poller(), [], os.eventfd_write

    def slow_write(fd, value):
        closing.append(threading.Thread(target=poller.close))
        closing[0].start()
        closing[0].join(0.05)
        assert closing[0].is_alive()
        write(fd, value)

    monkeypatch.setattr(os, "eventfd_write", slow_write)
    poller.wake()
    closing[0].join()
    poller.wake()
    assert len(closing) == 1, "nothing is written once it is closed"
