"""Where clients connect: fair, and unmoved by those who misbehave (bad input of every listening port)."""

import contextlib
import os
import socket
import time
from functools import partial

import pytest

from cluster.errors import PortInUse, StorageError
from cluster.protocol import decode, link
from cluster.protocol.enums import Offer
from cluster.protocol.frame import frame
from cluster.transport.bounds import SECOND_NS, Bounds
from cluster.transport.dial import dial
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.message_frames import each_frame, link_frame
from cluster.transport.outsiders import Outsiders
from cluster.transport.poller import Poller
from cluster.transport.server import UNREAD_BYTES_MAX
from cluster.transport.sockets import RECEIVE_BUFFER_LENGTH, Connection, ReceiveBuffer
from cluster.transport.tls import TlsSession, client_context
from cluster.transport.tls_connection import TlsConnection
from tests.transport.authorities import Certificates
from tests.transport.echo_port import DEADLINE_S, HELLO, MESSAGE_LENGTH_MAX, Server, bare, servers


@pytest.fixture
def serve():
    with servers() as make:
        yield make


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certs"))


@pytest.fixture(params=["tcp", "ipc", "tls"])
def server(request, serve, tmp_path, certificates):
    if request.param == "tcp":
        return serve(Endpoint(Medium.TCP, "127.0.0.1", 0))
    if request.param == "tls":
        server = serve(Endpoint(Medium.TCP, "127.0.0.1", 0), tls=certificates.tls_of(2))
        server.trust = certificates.trust
        return server
    return serve(Endpoint(Medium.IPC, path=str(tmp_path / "ingress.sock")))


class Client:
    """A well-behaved client over a connection of ours, turned together with the server."""

    def __init__(self, server):
        self.server = server
        self.poller = Poller()
        make = Connection
        if server.trust is not None:
            session = TlsSession(client_context(server.trust), "the server", server_name="127.0.0.1")
            make = partial(TlsConnection, tls=session)
        self.connection = dial(server.port.endpoints[0], self.poller, ReceiveBuffer(), make=make)
        self.received = b""
        server.turn_until(self.is_connected)
        assert self.connection.offer(HELLO) > 0
        self.await_bytes(1)
        _stream_id, offset, length = next(each_frame(self.connection.buffer, 0, len(self.received)))
        self.reply = decode(self.received[offset : offset + length])
        self.received = b""

    def is_connected(self):
        self.poller.wait(0)
        if self.connection.is_readable:
            self.connection.receive()  # takes a handshake on
        return self.connection.is_connected

    def await_bytes(self, length):
        def arrived():
            self.poller.wait(0)
            if self.connection.is_readable and self.connection.receive():
                self.received += self.connection.buffer[self.connection.start : self.connection.end].tobytes()
                self.connection.release(self.connection.end)
            return len(self.received) >= length

        self.server.turn_until(arrived)

    def assert_is_served(self):
        message = frame(os.urandom(100), session_id=0, stream_id=101)
        self.received = b""
        assert self.connection.offer(message) > 0
        self.await_bytes(len(message))
        assert self.received == message

    def close(self):
        self.connection.close()
        self.poller.close()


@pytest.fixture
def client(server):
    client = Client(server)
    yield client
    client.close()


def test_a_client_is_greeted_with_what_the_log_takes(server, client):
    assert isinstance(client.reply, link.HelloReply)
    assert client.reply.code is link.LinkErrorCode.OK
    assert client.reply.member_id == 2
    assert client.reply.message_length_max == MESSAGE_LENGTH_MAX
    client.assert_is_served()


def test_a_disconnect_is_told_once(server, client):
    client.connection.close()
    server.turn_until(lambda: ("disconnect", 1) in server.told)

    assert server.told == [("connect", 1), ("disconnect", 1)]
    assert server.port.send(1, HELLO) == Offer.CLOSED
    assert server.port.connection_count == 0


def test_a_connection_that_the_member_closes_is_told_as_well(server, client):
    server.port.close(1)
    server.turn_until(lambda: ("disconnect", 1) in server.told)
    assert server.port.connection_count == 0


def test_of_a_client_that_came_to_the_tcp_port_that_is_known_until_it_is_gone(server, client):
    is_tcp = server.port.endpoints[0].medium is Medium.TCP
    assert server.port.is_over_tcp(1) is is_tcp
    made = server.port.connect(None, "10.0.0.7")  # for a gRPC client
    server.turn_until(lambda: server.port.connection_count == 2)
    assert not server.port.is_over_tcp(2)
    made.close()
    server.port.close(1)
    server.turn_until(lambda: ("disconnect", 1) in server.told)
    assert not server.port.is_over_tcp(1)


def test_whose_input_has_ended_three_lives_is_refused_for_ten_minutes_and_is_named(serve):
    outsiders, now_ns = Outsiders(), [0]

    def life():
        return serve(outsiders=outsiders, clock_ns=lambda: now_ns[0])

    def end(server, mistake):
        client = Client(server)
        server.on_frames = lambda *_: (_ for _ in ()).throw(mistake)
        client.connection.offer(HELLO)
        with pytest.raises(type(mistake)) as ended:
            server.turn_until(lambda: False)
        client.close()
        return ended.value

    end(life(), StorageError("log", 5, "the disk"))  # is nobody's input
    for _ in range(3):
        mistake = end(life(), IndexError("a mistake of ours"))
        assert mistake.__notes__ == ["client 1, 127.0.0.1, was served"]
    why = "what 127.0.0.1 sent has ended 3 lives of this member; it is refused for 600 s more"
    server = life()
    reply = Client(server).reply
    assert (reply.code, reply.detail) == (link.LinkErrorCode.REFUSED, why)
    assert server.errors == [f"client 1 was cut off: {why}"]

    now_ns[0] = 600 * SECOND_NS
    Client(server).assert_is_served()
    assert end(life(), IndexError()) and Client(life()).reply.code is link.LinkErrorCode.OK


def test_what_was_sent_before_a_close_arrives_although_more_came_than_was_read(server, client):
    answer = frame(bytes(90_000), session_id=0, stream_id=102)
    for _ in range(100):
        assert server.port.send(1, answer) > 0
    server.port.close(1)
    assert not server.port.is_connected(1)
    assert server.port.send(1, answer) == Offer.CLOSED
    client.connection.offer(frame(bytes(50_000), session_id=0, stream_id=101))  # resets what closes at once

    client.await_bytes(100 * len(answer))
    server.turn_until(lambda: client.poller.wait(0) is not None and not client.connection.receive())
    server.turn_until(lambda: client.connection.is_closed or client.connection.receive() is None)
    server.turn_until(lambda: ("disconnect", 1) in server.told)
    assert server.frames[1] == b""


BAD_FIRST_FRAMES = {
    "text": b"GET / HTTP/1.1\r\nHost: cluster\r\nUser-Agent: x\r\n\r\n",
    "zeros": bytes(4096),
    "ones": b"\xff" * 4096,
    "oversized": (MESSAGE_LENGTH_MAX + 33).to_bytes(4, "little") + b"\x00\xc0\x01\x00" + bytes(24),
    "a fragment": frame(b"x", session_id=0, stream_id=101, flags=0x80),
    "no message": frame(b"no message at all", session_id=0, stream_id=1000),
    "ingress before Hello": frame(b"x", session_id=0, stream_id=101),
    "another message": link_frame(link.StatusRequest(1)),
    "another major": link_frame(link.Hello(-1, -1, 0, 9 << 16, link.ConnectionKind.CLIENT)),
    "another cluster": link_frame(
        link.Hello(5, -1, 0, link.LINK_PROTOCOL_VERSION, link.ConnectionKind.CLIENT)
    ),
    "garbage after Hello": HELLO + b"\xee" * 100,
    "oversized after Hello": HELLO
    + (MESSAGE_LENGTH_MAX + 33).to_bytes(4, "little")
    + b"\x00\xc0\x01\x00"
    + bytes(24),
}


@pytest.mark.parametrize("bad", BAD_FIRST_FRAMES.values(), ids=BAD_FIRST_FRAMES.keys())
def test_who_sends_garbage_is_cut_off_and_named_and_others_do_not_notice(server, client, bad):
    with bare(server) as intruder:
        intruder.sendall(bad)
        intruder.setblocking(False)

        def is_cut_off():
            try:
                while intruder.recv(4096):
                    pass
                return True
            except BlockingIOError:
                return False
            except ConnectionResetError:
                return True

        server.turn_until(is_cut_off)

    assert any("client 2 was cut off" in error for error in server.errors)
    client.assert_is_served()


def test_half_a_message_holds_up_nobody_and_its_end_is_told(server, client):
    with bare(server) as other:
        other.sendall(HELLO + frame(b"x" * 1000, session_id=0, stream_id=101)[:500])
        server.turn_until(lambda: ("connect", 2) in server.told)
        client.assert_is_served()
    server.turn_until(lambda: ("disconnect", 2) in server.told)

    assert server.frames[2] == b""
    client.assert_is_served()


def test_who_says_nothing_is_cut_off_in_time(serve):
    now_ns = 0
    server = serve(clock_ns=lambda: now_ns)
    server.strangers = [1]
    with bare(server) as silent:
        server.turn_until(lambda: server.port.connection_count == 1)
        now_ns += 11_000_000_000
        server.turn_until(lambda: server.port.connection_count == 0)
        assert silent.recv(1) == b""
    assert server.told == []


def test_a_slow_reader_is_cut_off_at_its_limit_and_others_do_not_notice(server, client):
    with bare(server) as slow:
        slow.sendall(HELLO)
        server.turn_until(lambda: ("connect", 2) in server.told)
        batch = frame(b"x" * 60_000, session_id=0, stream_id=102) * 10
        results = [server.port.send(2, batch) for _ in range(100)]
        assert results[-1] == Offer.CLOSED
        assert server.port.is_connected(2) is False
        server.turn_until(lambda: ("disconnect", 2) in server.told)
    assert any("client 2 was cut off" in error and "wait to be read" in error for error in server.errors)
    client.assert_is_served()


def test_all_queues_together_are_bounded_and_the_longest_is_cut(serve):
    server = serve(bounds=Bounds(egress_bytes_max=10_000_000, egress_bytes_total_max=15_000_000))
    with contextlib.ExitStack() as stack:
        for n in range(1, 4):
            stack.enter_context(bare(server)).sendall(HELLO)
            server.turn_until(lambda n=n: ("connect", n) in server.told)
        batch = frame(b"x" * 90_000, session_id=0, stream_id=102) * 10
        for _ in range(12):
            for n in (3, 1, 2) if _ < 10 else (3,):
                server.port.send(n, batch)
        queued = sum(client.connection.queued_bytes for client in server.port._clients.values())

    assert queued <= 15_000_000
    assert server.errors


def test_a_reader_that_takes_nothing_for_too_long_is_cut_off(serve):
    now_ns = 0
    server = serve(clock_ns=lambda: now_ns)
    with bare(server) as slow:
        slow.sendall(HELLO)
        server.turn_until(lambda: ("connect", 1) in server.told)
        server.port.send(1, frame(b"x" * 5_000_000, session_id=0, stream_id=102))
        for _ in range(12):
            now_ns += 1_000_000_000
            server.turn()
    assert ("disconnect", 1) in server.told


def test_a_client_is_heard_further_once_it_has_read_its_answers(server, client):
    """It is not cut off, however much it sends before it reads."""
    sent = frame(b"x" * 50_000, session_id=0, stream_id=101) * 400
    assert client.connection.offer(sent) > 0
    taken = -1
    while taken < len(server.frames[1]):  # until it takes no more
        taken = len(server.frames[1])
        for _ in range(20):
            client.poller.wait(0)
            server.turn()
    assert 0 < taken < len(sent)
    assert server.port._clients[1].connection.queued_bytes <= UNREAD_BYTES_MAX + RECEIVE_BUFFER_LENGTH

    client.await_bytes(len(sent))
    assert client.received == sent
    assert server.errors == []


def test_what_was_received_before_the_answers_piled_up_is_taken_after_them(server, client):
    """No byte that comes later brings it to mind."""
    message = frame(b"y" * 200, session_id=0, stream_id=101)
    server.bytes_per_call = len(message)
    answer = frame(b"x" * 60_000, session_id=0, stream_id=102) * 120
    echo, server.is_echo = server.on_frames, False

    def on_frames(connection_id, buffer, start, end):
        if not server.frames[connection_id]:
            server.port.send(connection_id, answer)
        return echo(connection_id, buffer, start, end)

    server.on_frames = on_frames
    client.connection.offer(message * 20)
    client.await_bytes(len(answer))
    server.turn_until(lambda: server.frames[1] == message * 20)


def test_who_reads_little_is_heard_a_little_and_never_seems_silent(serve):
    """A session times out of which nothing is heard, and a client is cut off that sends half a frame."""
    now_ns = 0
    server = serve(clock_ns=lambda: now_ns, bounds=Bounds(frame_timeout_ns=5 * SECOND_NS))
    with bare(server) as slow:
        slow.sendall(HELLO)
        server.turn_until(lambda: ("connect", 1) in server.told)
        server.is_echo = False
        server.port.send(1, frame(b"x" * 14_000_000, session_id=0, stream_id=102))
        message = frame(b"z" * (MESSAGE_LENGTH_MAX - 100), session_id=0, stream_id=101)
        slow.sendall(message * 2)
        for second in range(1, 26):
            now_ns = second * SECOND_NS
            slow.recv(300_000, socket.MSG_WAITALL)
            server.turn()
            assert len(server.frames[1]) <= 16 * 1024 * second
        assert server.frames[1] == message * 2
    assert server.errors == []


@pytest.mark.conformance("C-238")
def test_ready_clients_take_turns(serve):
    """Ascending ids from where the last poll ended, at most one receive each: nobody is always the first."""
    server = serve()
    socks = [bare(server) for _ in range(5)]
    for sock in socks:
        sock.sendall(HELLO)
    server.turn_until(lambda: len(server.told) == 5)
    served = []
    server.on_frames = lambda connection_id, buffer, start, end: served.append(connection_id)
    message = frame(b"x", session_id=0, stream_id=101)
    for start in (3, 1):
        server.port._last_served = start
        served.clear()
        for sock in socks:
            sock.sendall(message)
        deadline = time.monotonic() + DEADLINE_S
        clients = server.port._clients.values()
        while not all(client.connection.is_readable for client in clients):
            server.poller.wait(0.05)
            assert time.monotonic() < deadline
        server.port.poll(server)
        assert served == [(start + n) % 5 + 1 for n in range(5)]
    for sock in socks:
        sock.close()


def test_a_handler_takes_as_much_as_it_likes_and_the_rest_comes_again(server, client):
    message = frame(b"y" * 200, session_id=0, stream_id=101)
    server.bytes_per_call = 3 * len(message)
    client.connection.offer(message * 20)
    client.await_bytes(20 * len(message))

    assert client.received == message * 20


def test_too_many_connections_are_turned_away(serve):
    server = serve(bounds=Bounds(connections_max=2))
    with bare(server) as one, bare(server) as two, bare(server) as three:
        for sock in (one, two, three):
            with contextlib.suppress(OSError):
                sock.sendall(HELLO)
        server.turn_until(lambda: len(server.told) == 2 and server.errors)
        with contextlib.suppress(ConnectionResetError):
            assert three.recv(1) == b""
    assert "2 connections are open (connections_max)" in server.errors[0]


def test_the_oldest_stranger_makes_room_and_who_has_a_session_stays(serve):
    server = serve(bounds=Bounds(connections_max=2))
    server.strangers = range(2, 100)
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(bare(server)) for _ in range(4)]
        for sock in socks:
            with contextlib.suppress(OSError):
                sock.sendall(HELLO)
        server.turn_until(lambda: ("connect", 4) in server.told)
        server.turn()

        assert sorted(server.port._clients) == [1, 4]
        assert all("connections are open (connections_max)" in error for error in server.errors)


def test_one_host_gets_a_bounded_number_of_connections(serve):
    server = serve(bounds=Bounds(address_connections_max=2))
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(bare(server))
        server.turn_until(lambda: server.errors)

    (error,) = server.errors
    assert error == "a client was turned away: 2 connections of 127.0.0.1 (address_connections_max)"


def test_who_opens_no_session_is_cut_off_in_time(serve):
    now_ns = 0
    server = serve(clock_ns=lambda: now_ns)
    server.strangers = [1]
    with bare(server) as idle, bare(server) as busy:
        for sock in (idle, busy):
            sock.sendall(HELLO)
        server.turn_until(lambda: len(server.told) == 2)
        now_ns += 11_000_000_000
        server.turn_until(lambda: ("disconnect", 1) in server.told)
        now_ns += 100_000_000_000
        server.turn()

    assert server.errors == ["client 1 was cut off: no session within 10 s (session_open_timeout)"]
    assert server.port.is_connected(2)


def test_half_a_frame_is_held_for_a_bounded_time(serve):
    now_ns = 0
    server = serve(clock_ns=lambda: now_ns)
    message = frame(b"x" * 90_000, session_id=0, stream_id=101)
    with bare(server) as slow:
        slow.sendall(HELLO + message[:100])
        server.turn_until(lambda: server.port._clients and server.port._clients[1].partial_ns == 0)
        now_ns += 1
        slow.sendall(message[100:200])
        server.turn_until(lambda: server.port._clients[1].partial_ns)
        for _ in range(11):
            now_ns += 1_000_000_000
            slow.sendall(b"x")  # a byte now and then is no progress
            server.turn()
        server.turn_until(lambda: ("disconnect", 1) in server.told)

    assert server.errors == ["client 1 was cut off: half a frame for 10 s (frame_timeout)"]


def test_half_frames_are_held_in_a_bounded_number_of_bytes_and_strangers_go_first(serve):
    server = serve(bounds=Bounds(received_bytes_max=200_000))
    server.strangers = [2, 3, 4]
    message = frame(b"x" * 90_000, session_id=0, stream_id=101)
    with contextlib.ExitStack() as stack:
        for number in range(1, 5):
            sock = stack.enter_context(bare(server))
            sock.sendall(HELLO)
            server.turn_until(lambda number=number: ("connect", number) in server.told)
            sock.sendall(message[:80_000])
            server.turn_until(
                lambda number=number: server.errors or server.port._clients[number].buffered > 0
            )
        server.turn_until(lambda: any("disconnect" in told for told in server.told))
        buffered = sum(client.connection.buffered_bytes for client in server.port._clients.values())

        assert buffered <= 200_000
        assert server.port.is_connected(1)
        assert all("(received_bytes_max)" in error for error in server.errors)


def test_strangers_take_no_more_than_a_share_of_a_turn(serve, tmp_path):
    """Counted, not timed: whoever has a session is served in each turn, however many others push."""
    server = serve(Endpoint(Medium.IPC, path=str(tmp_path / "ingress.sock")))
    server.strangers = range(2, 100)
    server.is_echo = False
    message = frame(b"x" * 200, session_id=0, stream_id=101)
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(bare(server)) for _ in range(41)]
        for sock in socks:
            sock.sendall(HELLO)
        server.turn_until(lambda: len(server.told) == 41)
        for sock in socks[1:]:
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                sock.send(message * 2000)
        for _ in range(20):
            server.frames.clear()
            socks[0].sendall(message * 50)
            server.poller.wait(0.05)
            server.port.poll(server)
            of_strangers = [len(frames) for number, frames in server.frames.items() if number != 1]
            assert len(server.frames[1]) == 50 * len(message)
            assert len(of_strangers) <= 8
            assert sum(of_strangers) <= 8 * 2 * 16 * 1024


def test_a_port_in_use_is_named_and_nothing_stays_bound(serve, tmp_path):
    server = serve()
    taken = server.port.endpoints[0]
    path = Endpoint(Medium.IPC, path=str(tmp_path / "ingress.sock"))
    with pytest.raises(PortInUse, match=f"{taken}: the address is in use"):
        Server((path, taken))
    assert not (tmp_path / "ingress.sock").exists()


def test_a_socket_file_left_by_a_dead_process_is_replaced_and_a_live_ones_is_not(serve, tmp_path):
    path = str(tmp_path / "ingress.sock")
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(path)
    stale.close()
    serve(Endpoint(Medium.IPC, path=path))

    with pytest.raises(PortInUse):
        Server((Endpoint(Medium.IPC, path=path),))


def test_a_thousand_clients_are_served(serve, tmp_path):
    server = serve(Endpoint(Medium.IPC, path=str(tmp_path / "ingress.sock")))
    message = frame(b"x" * 100, session_id=0, stream_id=101)
    socks = []
    for _ in range(1000):
        socks.append(bare(server))
        socks[-1].sendall(HELLO + message)
        if len(socks) % 8 == 0:  # as many as a turn accepts
            server.turn()
    server.turn_until(lambda: len(server.frames) == 1000)

    assert all(frames == message for frames in server.frames.values())
    for sock in socks:
        sock.close()


def test_connections_know_their_kind_of_socket():
    """TCP_NODELAY is set where there is TCP: small batches must not wait for an acknowledgement."""
    poller = Poller()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sock = socket.create_connection(listener.getsockname())
        connection = Connection(sock, poller, ReceiveBuffer())
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        connection.close()
    poller.close()


def test_a_connection_made_within_the_process_brings_the_name_of_its_client_and_its_session(serve):
    server = serve()
    with server.port.connect("alice", "10.0.0.1", 7) as alice, server.port.connect(None, "") as nobody:
        for client in (alice, nobody):
            client.settimeout(DEADLINE_S)
            client.sendall(HELLO)
        server.turn_until(lambda: len(server.told) == 2)
        names = [server.port.certificate_name(connection_id) for _, connection_id in server.told]
        assert [server.port.dialled_session(connection_id) for _, connection_id in server.told] == [7, None]
    assert names == ["alice", None]
    server.port.shutdown()
    with pytest.raises(ConnectionRefusedError):
        server.port.connect("alice", "10.0.0.1")


@pytest.mark.conformance("C-221")
def test_a_port_that_closes_closes_its_clients_connections(server):
    with bare(server) as client:
        client.sendall(HELLO)
        server.turn_until(lambda: server.told)
        server.port.shutdown()
        with contextlib.suppress(ConnectionResetError):
            while client.recv(4096):
                pass
    assert server.port.connection_count == 0


def test_what_came_before_the_end_of_a_tls_stream_is_answered(serve, certificates):
    """The end comes in one piece with the last frames; the answer still finds the connection open."""
    server = serve(tls=certificates.tls_of(2))
    server.trust = certificates.trust
    message = frame(b"last words", session_id=0, stream_id=101)
    with bare(server) as client:
        client.sendall(HELLO)
        server.turn_until(lambda: server.told)
        client.end(message)
        server.turn_until(lambda: ("disconnect", 1) in server.told)
        received = b""
        while data := client.recv(4096):
            received += data
    assert server.frames[1] == message
    assert received.endswith(message)
