"""Who is heard by a member that takes nothing of clients: readers, whose sockets it hands over."""

import socket

import pytest

from cluster.protocol import link
from cluster.transport.bounds import SECOND_NS, Bounds
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.message_frames import link_frame
from cluster.transport.server import Heard
from tests.transport.echo_port import HELLO, bare, servers

READER_HELLO = link_frame(link.Hello(-1, -1, 0, link.LINK_PROTOCOL_VERSION, link.ConnectionKind.READER))


def test_in_an_election_readers_are_served_and_clients_wait_until_it_is_over(tmp_path):
    now_ns, handed = 0, []
    bounds = Bounds(session_open_timeout_ns=SECOND_NS)
    ipc = Endpoint(Medium.IPC, path=str(tmp_path / "ingress.sock"))
    with servers() as serve:
        server = serve(ipc, clock_ns=lambda: now_ns, hand_over=handed.append, bounds=bounds)
        server.strangers = range(10)
        client, reader = bare(server), bare(server)
        client.sendall(HELLO)
        reader.sendall(READER_HELLO)

        def greet():
            server.poller.wait(0.002)
            return server.port.greet(server, Heard.READERS)

        while not handed:
            greet()
        assert reader.recv(1024, socket.MSG_DONTWAIT), "the HelloReply"
        for _ in range(10):
            greet()
            now_ns += SECOND_NS
        assert greet() == 0, "who waits gives a member nothing to do"
        assert not server.told
        with pytest.raises(BlockingIOError):
            client.recv(1024, socket.MSG_DONTWAIT)

        server.turn_until(lambda: server.told == [("connect", 1)])
        assert client.recv(1024, socket.MSG_DONTWAIT), "the HelloReply"
        assert not server.errors
        handed[0].sock.close()
        client.close()
        reader.close()


def test_a_stranger_who_keeps_talking_is_cut_off_in_time_where_clients_are_served(tmp_path):
    now_ns = 0
    bounds = Bounds(session_open_timeout_ns=5 * SECOND_NS)
    ipc = Endpoint(Medium.IPC, path=str(tmp_path / "ingress.sock"))
    with servers() as serve:
        server = serve(ipc, clock_ns=lambda: now_ns, hand_over=lambda reader: None, bounds=bounds)
        server.strangers, server.is_echo = range(10), False
        client = bare(server)
        client.sendall(HELLO)
        server.turn_until(lambda: server.told)
        while not server.errors:
            client.sendall(HELLO)
            now_ns += SECOND_NS
            server.poller.wait(1)
            server.port.greet(server, Heard.READERS)  # as a slow tick does, before the clients' turn
            server.port.poll(server)
            assert now_ns <= 7 * SECOND_NS
        assert "no session within 5 s" in server.errors[0]
        client.close()
