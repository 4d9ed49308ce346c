"""Half a frame of a client, which Python and compiled turns hand to each other, has a bounded time."""

import numpy as np
import pytest

from cluster.protocol.frame import frame
from tests.transport.echo_port import HELLO, bare, servers


@pytest.fixture
def serve():
    with servers() as make:
        yield make


def give_to_kernel(connection):
    """What a connection keeps of a frame goes to a kernel, which receives the rest."""
    assert connection.lend_part(1 << 20) is not None


def test_a_client_whose_frame_a_kernel_has_finished_is_not_cut_off(serve):
    now_ns = 0
    server = serve(clock_ns=lambda: now_ns)
    message = frame(b"x" * 90_000, session_id=0, stream_id=101)
    with bare(server) as client:
        client.sendall(HELLO)
        server.turn_until(lambda: server.told)
        now_ns += 1
        client.sendall(message[:100])
        server.turn_until(lambda: server.port._clients[1].partial_ns)
        give_to_kernel(server.port._clients[1].connection)
        for _ in range(30):
            now_ns += 1_000_000_000
            server.turn()

    assert server.errors == []
    assert server.port._clients[1].partial_ns == server.port._clients[1].buffered == 0


@pytest.mark.parametrize("is_new", [False, True])
def test_half_a_frame_that_kernels_hold_is_held_for_a_bounded_time(serve, is_new):
    """Each run of theirs takes it and gives it back: the same, or the begin of another."""
    now_ns = 1
    server = serve(clock_ns=lambda: now_ns)
    with bare(server) as client:
        client.sendall(HELLO)
        server.turn_until(lambda: server.told)
        connection = server.port._clients[1].connection
        connection.keep_part(np.zeros(100, np.uint8))
        for _ in range(13):
            now_ns += 1_000_000_000
            server.turn()
            if not connection.is_closed:
                part = connection.lend_part(1 << 20)
                connection.keep_part(part)
                connection.is_part_new |= is_new
        server.turn()

    late = ["client 1 was cut off: half a frame for 10 s (frame_timeout)"]
    assert server.errors == ([] if is_new else late)
