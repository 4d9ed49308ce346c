"""Half a frame of a client, whose rest Python or compiled turns receive, has a bounded time."""

import numpy as np
import pytest

from cluster.log.connection_table import (
    CLIENT,
    IS_KEPT,
    OWNER,
    PART_BYTES,
    PART_ROWS,
    STATE,
    ConnectionTable,
)
from cluster.protocol.frame import frame
from tests.transport.echo_port import HELLO, bare, servers


@pytest.fixture
def serve():
    """A server in a process that has compiled turns."""
    with servers() as make:

        def served(**options):
            server = make(**options)
            server.poller.table.keep_parts()
            return server

        yield served


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
        connection = server.port._clients[1].connection
        assert connection.partial_bytes == 100 and server.poller.table.get(connection.descriptor, STATE) == 0
        server.poller.table.drop_part(connection.descriptor)  # as a kernel that receives the rest
        for _ in range(30):
            now_ns += 1_000_000_000
            server.turn()

    assert server.errors == []
    assert server.port._clients[1].partial_ns == server.port._clients[1].buffered == 0


@pytest.mark.parametrize("is_new", [False, True])
def test_half_a_frame_that_kernels_hold_is_held_for_a_bounded_time(serve, is_new):
    """Meanwhile it is the same, or the begin of another."""
    now_ns = 1
    server = serve(clock_ns=lambda: now_ns)
    with bare(server) as client:
        client.sendall(HELLO)
        server.turn_until(lambda: server.told)
        connection = server.port._clients[1].connection
        assert server.poller.table.keep_part(connection.descriptor, np.zeros(100, np.uint8), 200)
        for _ in range(13):
            now_ns += 1_000_000_000
            server.turn()
            if not connection.is_closed:
                connection.is_part_new |= is_new
        server.turn()

    late = ["client 1 was cut off: half a frame for 10 s (frame_timeout)"]
    assert server.errors == ([] if is_new else late)


def test_a_half_frame_for_which_the_table_has_no_room_waits_at_its_connection(serve):
    server = serve()
    message = frame(b"x" * 90_000, session_id=0, stream_id=101)
    with bare(server) as client:
        client.sendall(HELLO)
        server.turn_until(lambda: server.told)
        table, connection = server.poller.table, server.port._clients[1].connection
        table.keepers[:] = 999
        client.sendall(message[:100])
        server.turn_until(lambda: connection.partial_bytes == 100)
        assert table.get(connection.descriptor, STATE) == IS_KEPT
        table.keepers[:] = 0
        client.sendall(message[100:200])
        server.turn_until(lambda: connection.partial_bytes == 200)
        assert table.get(connection.descriptor, STATE) == 0
        assert sorted(table.keepers.tolist()) == [0] * (PART_ROWS - 1) + [connection.descriptor + 1]
        server.poller.unregister(connection.descriptor)
        assert not table.keepers.any()


def test_what_may_grow_beyond_its_row_is_not_kept_and_more_descriptors_leave_the_rows_as_they_are():
    table = ConnectionTable(4)
    table.keep_parts()
    table.serve(3, CLIENT, 5, 1 << 20)
    part = np.ones(8, np.uint8)
    assert not table.keep_part(3, part, PART_BYTES + 1) and not table.keepers.any()
    assert table.keep_part(3, part, PART_BYTES)
    table.clear(100)
    assert table.get(3, OWNER) == 5 and table.part(3).tolist() == part.tolist()
