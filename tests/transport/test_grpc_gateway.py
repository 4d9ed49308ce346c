"""The gRPC gateway before a member that echoes, and a log that grows."""

import contextlib
import itertools
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from cluster.errors import ConfigurationError, DataLoss, LogDamaged, PortInUse
from cluster.protocol import decode, link
from cluster.protocol.enums import ClusterTimeUnit
from cluster.protocol.frame import HEADER_LENGTH, align, frame
from cluster.transport import grpc_gateway
from cluster.transport.bounds import Bounds
from cluster.transport.dialler import Dialler
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.grpc_gateway import GrpcGateway
from cluster.transport.grpc_service import READ_LOG_METHOD, SERVICE, SESSION_METHOD, STATUS_METHOD
from cluster.transport.message_frames import each_frame, link_frame
from cluster.transport.poller import Poller
from cluster.transport.server import ClientPort

DEADLINE_S = 20
HELLO = link_frame(link.Hello(-1, -1, 0, link.LINK_PROTOCOL_VERSION, link.ConnectionKind.CLIENT))
MESSAGE_LENGTH_MAX = 2_000_000


class EchoMember:
    """A ClientPort on a Unix socket, turned by a thread, that sends back what it gets."""

    def __init__(self, path):
        self.endpoint = Endpoint(Medium.IPC, path=path)
        self.poller = Poller()
        self.port = ClientPort(
            [self.endpoint],
            poller=self.poller,
            member_id=0,
            cluster_id=0,
            incarnation=1,
            message_length_max=MESSAGE_LENGTH_MAX,
        )
        self.disconnects = 0
        self.received = 0
        self.is_stopped = False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.is_stopped:
            self.poller.wait(1)
            self.port.poll(self)

    def on_connect(self, connection_id):
        pass

    def has_session(self, connection_id):
        return True

    def on_disconnect(self, connection_id):
        self.disconnects += 1

    def on_frames(self, connection_id, buffer, start, end):
        self.received += end - start
        self.port.send(connection_id, buffer[start:end])

    def stop(self):
        if not self.is_stopped:
            self.is_stopped = True
            self.poller.wake()
            self.thread.join()
            self.port.shutdown()
            self.poller.close()


class GrowingLog:
    """Frames of 64 bytes from position 128 on, committed as far as the test says."""

    start = 128
    committed = 128
    opened = 0
    leader_member_id = 0

    def __init__(self):
        type(self).opened += 1

    def status(self, correlation_id):
        return link.LogStatus(
            correlation_id=correlation_id,
            start_position=self.start,
            commit_position=self.committed,
            append_position=self.committed,
            leadership_term_id=3,
            first_term_timestamp=None,
            first_log_session_id=None,
            cluster_id=0,
            member_id=0,
            leader_member_id=self.leader_member_id,
            role=0,
            election_state=17,
            module_state=1,
            session_count=0,
            term_length=65536,
            mtu=1408,
            initial_term_id=0,
            time_unit=ClusterTimeUnit.MILLIS,
        )

    def term_before(self, position):
        return f"3:{position}:7" if position else None

    def commit_position(self):
        return self.committed

    def blocks(self, from_position, to_position, how):
        if self.frame_around(from_position) is not None:
            raise LogDamaged(None, None, "no frame begins here")
        while from_position < to_position:
            end = min(from_position + how.max_bytes // 64 * 64, to_position)
            yield from_position, np.concatenate([self.frame(p) for p in range(from_position, end, 64)])
            from_position = end

    def frame_around(self, position):
        return position - 32 if position % 64 else None

    @staticmethod
    def frame(position):
        return np.frombuffer(frame(position.to_bytes(32, "little"), session_id=0, stream_id=100), np.uint8)

    def close(self):
        type(self).opened -= 1


@pytest.fixture
def log():
    return type("Log", (GrowingLog,), {})


@pytest.fixture
def gateway(tmp_path, log):
    member = EchoMember(str(tmp_path / "ingress.sock"))
    gateway = GrpcGateway(Endpoint(Medium.GRPC, "127.0.0.1", 0), member.port.connect, log, MESSAGE_LENGTH_MAX)
    gateway.endpoint = gateway.start()
    gateway.member = member
    yield gateway
    gateway.stop()
    member.stop()


@pytest.fixture
def channel(gateway):
    options = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(gateway.endpoint.target, options=options) as channel:
        yield channel


@pytest.fixture
def dialler():
    dialler = Dialler()
    yield dialler
    dialler.close()


def receive(dialler, connection, length):
    received = b""
    deadline = time.monotonic() + DEADLINE_S
    while len(received) < length:
        assert time.monotonic() < deadline
        assert not connection.is_closed, connection.why_closed
        dialler.wait(0.05)
        dialler.poll()
        if connection.is_readable and connection.receive():
            received += connection.buffer[connection.start : connection.end].tobytes()
            connection.release(connection.end)
    return received


def await_true(condition):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)


@pytest.mark.parametrize("size", [1, 100, 70_000, 1_900_000])
def test_a_session_carries_frames_both_ways_as_ipc_does(gateway, dialler, size):
    connection = dialler.dial(gateway.endpoint)
    message = frame(b"x" * size, session_id=0, stream_id=101) * 3
    connection.offer(HELLO)
    reply = receive(dialler, connection, 1)
    _, offset, length = next(each_frame(np.frombuffer(reply, np.uint8), 0, len(reply)))
    assert decode(reply[offset : offset + length]).message_length_max == MESSAGE_LENGTH_MAX
    connection.offer(message)

    assert receive(dialler, connection, len(message)) == message
    connection.close()
    await_true(lambda: gateway.member.disconnects == 1)


def test_a_stream_on_which_nothing_happens_is_kept(gateway, capfd):
    """gRPC's server ends a connection that pings more often than its bound allows, at the third time."""
    is_done = threading.Event()
    pinging = [("grpc.keepalive_time_ms", 1_100), ("grpc.http2.max_pings_without_data", 0)]
    with grpc.insecure_channel(gateway.endpoint.target, options=pinging) as channel:
        requests = itertools.chain([HELLO], iter(is_done.wait, True))
        call = channel.stream_stream(SESSION_METHOD)(requests, timeout=6)
        next(call)
        with pytest.raises(grpc.RpcError) as ended:
            next(call)
        is_done.set()

    assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert "too_many_pings" not in capfd.readouterr().err


def test_nobody_at_the_address_shows_as_a_closed_connection(dialler):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    connection = dialler.dial(Endpoint(Medium.GRPC, "127.0.0.1", port))
    deadline = time.monotonic() + DEADLINE_S
    while not connection.is_closed:
        assert time.monotonic() < deadline
        dialler.wait(0.05)
        dialler.poll()
        connection.receive()


def test_a_member_that_goes_away_ends_the_session(gateway, dialler):
    connection = dialler.dial(gateway.endpoint)
    connection.offer(HELLO)
    receive(dialler, connection, 1)
    gateway.member.stop()
    deadline = time.monotonic() + DEADLINE_S
    while not connection.is_closed:
        assert time.monotonic() < deadline
        dialler.wait(0.05)
        dialler.poll()
        connection.receive()


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (b"no frame at all, but longer than 32 bytes", "not a frame"),
        (frame(b"x" * 100, session_id=0, stream_id=101)[:100], "a frame is cut off"),
        (frame(b"x", session_id=0, stream_id=101, flags=0x80), "not a frame"),
        (bytes(64), "not a frame"),
        (b"\xff" * 64, "not a frame"),
        (frame(b"x" * (MESSAGE_LENGTH_MAX + 1), session_id=0, stream_id=101), "not a frame of at most"),
    ],
    ids=["text", "cut off", "a fragment", "zeros", "ones", "too long"],
)
def test_a_message_that_is_not_whole_frames_is_refused_and_nothing_of_it_reaches_the_member(
    gateway, channel, dialler, message, told
):
    other = dialler.dial(gateway.endpoint)
    other.offer(HELLO)
    receive(dialler, other, 1)
    before = gateway.member.received

    with pytest.raises(grpc.RpcError) as raised:
        list(channel.stream_stream(SESSION_METHOD)(iter([HELLO, message])))

    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert told in raised.value.details()
    assert gateway.member.received == before
    good = frame(b"still served", session_id=0, stream_id=101)
    other.offer(good)
    assert receive(dialler, other, 1) == good


def test_a_message_above_the_limit_of_grpc_is_refused_with_its_size(channel):
    with pytest.raises(grpc.RpcError) as raised:
        list(channel.stream_stream(SESSION_METHOD)(iter([bytes(20_000_000)])))
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "20000000" in raised.value.details()


def test_metadata_without_bounds_is_refused(channel):
    with pytest.raises(grpc.RpcError):
        channel.unary_unary(STATUS_METHOD)(
            link.StatusRequest(1).encode(), metadata=[("key", "x" * 100_000)], timeout=DEADLINE_S
        )
    assert channel.unary_unary(STATUS_METHOD)(link.StatusRequest(1).encode())


def read(channel, from_position, to_position, max_bytes=0):
    """(log bytes, status, end) of one ReadLog."""
    request = link.LogRequest(5, from_position, to_position, max_bytes).encode()
    log_bytes, status, end = b"", None, None
    for data in channel.unary_stream(READ_LOG_METHOD)(request, timeout=DEADLINE_S):
        for stream_id, offset, length in each_frame(np.frombuffer(data, np.uint8), 0, len(data)):
            if stream_id == 100:
                assert end is None
                log_bytes += data[offset - HEADER_LENGTH : align(offset + length)]
            elif status is None:
                status = decode(data, offset, length)
            else:
                end = decode(data, offset, length)
    return log_bytes, status, end


@pytest.mark.parametrize("max_bytes", [64, 1000, 0])
def test_a_range_of_the_log_comes_between_its_status_and_its_end(channel, log, max_bytes):
    log.committed = 128 + 640
    log_bytes, status, end = read(channel, 192, 704, max_bytes)

    assert log_bytes == b"".join(log.frame(p).tobytes() for p in range(192, 704, 64))
    assert (status.correlation_id, status.start_position, status.commit_position) == (5, 128, 768)
    assert end == link.EndOfStream(5, 704, link.LinkErrorCode.OK)
    await_true(lambda: log.opened == 0)


def test_a_member_that_is_behind_says_so_and_never_sends_what_is_not_committed(channel, log):
    log.committed = 256
    log_bytes, _, end = read(channel, 128, 1024)

    assert len(log_bytes) == 128
    assert (end.position, end.code) == (256, link.LinkErrorCode.NOT_AVAILABLE)
    assert "committed up to 256 here, asked up to 1024" in end.text


def test_what_was_purged_is_named(channel):
    _, _, end = read(channel, 0, 128)

    assert end.code is link.LinkErrorCode.NOT_AVAILABLE
    assert "position 0 was purged, the log begins at 128" in end.text


@pytest.mark.parametrize(
    ("request_", "code", "told"),
    [
        ((-64, 192), "INVALID_ARGUMENT", "from_position -64: expected a multiple of 32, at least 0"),
        ((129, 192), "INVALID_ARGUMENT", "from_position 129: expected a multiple of 32, at least 0"),
        ((160, 192), "INVALID_ARGUMENT", "from_position 160 is within the frame that begins at 128"),
        ((192, 128), "INVALID_ARGUMENT", "to_position 128: expected at least from_position, 192, or -1"),
        ((128, -2), "INVALID_ARGUMENT", "to_position -2: expected at least from_position, 128, or -1"),
        (
            (2**62, -1),
            "OUT_OF_RANGE",
            f"from_position {2**62} is beyond what is committed here, 256",
        ),
        ((512, 1024, 2**62), "OUT_OF_RANGE", "from_position 512 is beyond what is committed here, 256"),
    ],
)
def test_a_range_that_cannot_be_is_refused_with_its_reason(channel, log, request_, code, told):
    log.committed = 256
    with pytest.raises(grpc.RpcError) as raised:
        read(channel, *request_)

    assert raised.value.code() is grpc.StatusCode[code]
    assert raised.value.details() == told


def test_a_length_without_bounds_is_taken_for_the_longest(channel, log):
    log.committed = 256
    log_bytes, _, end = read(channel, 128, 256, 2**62)

    assert len(log_bytes) == 128
    assert end.code is link.LinkErrorCode.OK


def test_a_reader_that_follows_gets_what_is_committed_as_it_is(channel, log):
    request = link.LogRequest(5, 128, -1, 0).encode()
    call = channel.unary_stream(READ_LOG_METHOD)(request, timeout=DEADLINE_S)
    next(call)
    for end in (192, 320, 448):
        log.committed = end
        received = 0
        while received < (end - 128 if end == 192 else 128):
            received += len(next(call))
    call.cancel()
    await_true(lambda: log.opened == 0)


def test_a_stop_is_over_when_readers_have_closed_what_they_had_open(gateway, channel, log):
    close = log.close

    def slow_close(self):
        threading.Event().wait(0.05)
        close(self)

    log.close = slow_close
    call = channel.unary_stream(READ_LOG_METHOD)(link.LogRequest(5, 128, -1, 0).encode(), timeout=DEADLINE_S)
    next(call)
    assert log.opened == 1
    gateway.stop()
    assert log.opened == 0


def test_damage_ends_the_stream_with_its_words(channel, log):
    def blocks(self, from_position, to_position, how):
        raise DataLoss("position 128 was purged meanwhile")
        yield

    log.committed = 256
    log.blocks = blocks
    _, _, end = read(channel, 128, 256)

    assert end.text == "position 128 was purged meanwhile"


def test_readers_do_not_hold_up_sessions(gateway, channel, dialler, log):
    """Slow disks: the reads wait in their threads, a session goes on."""
    release = threading.Event()

    def blocks(self, from_position, to_position, how):
        release.wait(DEADLINE_S)
        yield from GrowingLog.blocks(self, from_position, to_position, how)

    log.committed = 256
    log.blocks = blocks
    with ThreadPoolExecutor(4) as pool:
        reads = [pool.submit(read, channel, 128, 256) for _ in range(4)]
        connection = dialler.dial(gateway.endpoint)
        connection.offer(HELLO)
        assert receive(dialler, connection, 1)
        release.set()
        assert all(len(done.result()[0]) == 128 for done in reads)


def test_garbage_requests_are_refused(channel):
    for method, request in ((READ_LOG_METHOD, b"garbage"), (READ_LOG_METHOD, link.StatusRequest(1).encode())):
        with pytest.raises(grpc.RpcError) as raised:
            list(channel.unary_stream(method)(request, timeout=DEADLINE_S))
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_health_is_serving_only_while_a_leader_is_known(gateway, channel, log):
    stub = health_pb2_grpc.HealthStub(channel)
    watched = stub.Watch(health_pb2.HealthCheckRequest(service=SERVICE), timeout=DEADLINE_S)
    response = health_pb2.HealthCheckResponse
    assert next(watched).status == response.SERVING
    log.leader_member_id = -1
    assert next(watched).status == response.NOT_SERVING
    for service in ("", SERVICE):
        assert stub.Check(health_pb2.HealthCheckRequest(service=service)).status == response.NOT_SERVING
    log.leader_member_id = 2
    assert next(watched).status == response.SERVING
    assert stub.Check(health_pb2.HealthCheckRequest()).status == response.SERVING
    watched.cancel()


def test_status_health_and_reflection(channel):
    status = channel.unary_unary(STATUS_METHOD)(link.StatusRequest(9).encode())
    _, offset, length = next(each_frame(np.frombuffer(status, np.uint8), 0, len(status)))
    assert decode(status, offset, length).leadership_term_id == 3

    check = health_pb2_grpc.HealthStub(channel).Check
    assert check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING

    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (listed,) = stub.ServerReflectionInfo(iter([request]))
    assert SERVICE in [service.name for service in listed.list_services_response.service]


def test_an_address_that_cannot_be_listened_on_is_named_and_grpc_says_nothing_besides(gateway, log, capfd):
    for endpoint, error, told in (
        (gateway.endpoint, PortInUse, "the address is in use"),
        (Endpoint(Medium.GRPC, "192.0.2.1", 9000), ConfigurationError, "Cannot assign requested address"),
        (Endpoint(Medium.GRPC, "nowhere.invalid", 9000), ConfigurationError, "not known|name resolution"),
    ):
        other = GrpcGateway(endpoint, gateway.member.port.connect, log, MESSAGE_LENGTH_MAX)
        with pytest.raises(error, match=f"{endpoint}: .*({told})"):
            other.start()
        other.stop()
    assert capfd.readouterr().err == ""


@pytest.fixture
def bounded(tmp_path, log):
    """A gateway that grants one host two sessions and one reader, and four connections to all."""
    member = EchoMember(str(tmp_path / "ingress.sock"))
    bounds = Bounds(connections_max=3, address_connections_max=2, readers_max=1)
    listen = Endpoint(Medium.GRPC, "127.0.0.1", 0)
    gateway = GrpcGateway(listen, member.port.connect, log, MESSAGE_LENGTH_MAX, bounds)
    yield gateway.start()
    gateway.stop()
    member.stop()


def refusal_of_a_third_session(target):
    with grpc.insecure_channel(target) as channel:
        calls = [channel.stream_stream(SESSION_METHOD)(iter_forever(HELLO)) for _ in range(2)]
        for call in calls:
            assert next(call)
        with pytest.raises(grpc.RpcError) as raised:
            list(channel.stream_stream(SESSION_METHOD)(iter([HELLO])))
        for call in calls:
            call.cancel()
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    return raised.value.details()


def test_one_host_gets_a_bounded_number_of_sessions(bounded):
    told = refusal_of_a_third_session(bounded.target)
    assert told == "2 sessions of 127.0.0.1 (address_connections_max)"


def test_the_addresses_that_a_host_of_ipv6_picks_are_those_of_one_host(bounded, monkeypatch):
    picked = itertools.count(1)
    monkeypatch.setattr(grpc_gateway, "address_of", lambda _: f"%5B2001:db8::{next(picked):x}%5D")
    told = refusal_of_a_third_session(bounded.target)
    assert told == "2 sessions of 2001:db8::/64 (address_connections_max)"


def test_readers_above_their_bound_are_refused_by_name(bounded):
    request = link.LogRequest(5, 128, -1, 0).encode()
    with grpc.insecure_channel(bounded.target) as channel:
        first = channel.unary_stream(READ_LOG_METHOD)(request, timeout=DEADLINE_S)
        next(first)
        with pytest.raises(grpc.RpcError) as raised:
            list(channel.unary_stream(READ_LOG_METHOD)(request, timeout=DEADLINE_S))
        first.cancel()

    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert raised.value.details() == "1 readers are served, as many as readers_max allows"


def test_bare_connections_to_the_port_are_bounded(bounded):
    with contextlib.ExitStack() as stack:
        socks = [
            stack.enter_context(socket.create_connection((bounded.host, bounded.port))) for _ in range(10)
        ]

        def refused():
            count = 0
            for sock in socks:
                sock.setblocking(False)
                try:
                    count += sock.recv(4096, socket.MSG_PEEK) == b""
                except BlockingIOError:
                    pass
                except ConnectionError:
                    count += 1
            return count

        await_true(lambda: refused() >= 6)


def iter_forever(first):
    """The first message, and then a stream that stays open."""
    yield first
    threading.Event().wait(DEADLINE_S)
