"""What a gRPC server gives to strangers who reset streams without end, or watch its health without number."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from types import SimpleNamespace

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cluster.transport import grpc_guard, member_health
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.grpc_gateway import GrpcGateway
from cluster.transport.grpc_service import SESSION_METHOD, STATUS_METHOD
from cluster.transport.member_health import MemberHealth

DEADLINE_S = 20


class LedLog:
    """That of a member that leads."""

    def status(self, correlation_id):
        return SimpleNamespace(leader_member_id=0, start_position=0)

    def close(self):
        pass


@pytest.fixture
def gateway():
    """Its endpoint, and what it reports; sessions meet a member that says nothing."""
    told, ends = [], []

    def connect(certificate_name, peer):
        ours, theirs = socket.socketpair()
        ends.append(ours)
        return theirs

    listen = Endpoint(Medium.GRPC, "127.0.0.1", 0)
    gateway = GrpcGateway(listen, connect, LedLog, 1 << 20, on_error=told.append)
    yield gateway.start(), told
    gateway.stop()
    for end in ends:
        end.close()


class Http2:
    """Frames on a socket, as no library of gRPC sends them."""

    def __init__(self, endpoint):
        self.sock = socket.create_connection((endpoint.host, endpoint.port))
        self.sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self.frame(4, 0, 0) + self.frame(4, 1, 0))
        self.stream = 1

    @staticmethod
    def frame(kind, flags, stream, payload=b""):
        return (
            struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload
        )

    def reset_streams(self, path, count):
        """Open so many streams, and reset each at once."""
        names = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x", "te": "trailers"}
        names["content-type"] = "application/grpc"
        fields = [part.encode() for item in names.items() for part in item]
        headers = b"".join(
            b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
            for name, value in zip(fields[::2], fields[1::2], strict=True)
        )
        for _ in range(count):
            frames = self.frame(1, 4, self.stream, headers) + self.frame(3, 0, self.stream, b"\0\0\0\x08")
            self.sock.sendall(frames)
            self.stream += 2

    def is_cut_off(self, within_s):
        """Whether the connection ends within that time."""
        self.sock.settimeout(within_s)
        with contextlib.suppress(TimeoutError):
            try:
                while self.sock.recv(65536):
                    pass
            except ConnectionError:
                pass
            return True
        return False


@pytest.mark.parametrize("path", [SESSION_METHOD, STATUS_METHOD, "/no.such/Method"])
def test_who_resets_streams_without_end_loses_his_connection_and_others_keep_theirs(
    gateway, monkeypatch, path
):
    monkeypatch.setattr(grpc_guard, "RESETS_MAX", 20)
    endpoint, told = gateway
    with grpc.insecure_channel(endpoint.target) as channel:
        unknown = channel.unary_unary("/no.such/Method")
        with pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"):
            unknown(b"", timeout=DEADLINE_S)
        stranger = Http2(endpoint)
        deadline = time.monotonic() + DEADLINE_S
        while not told and time.monotonic() < deadline:
            with contextlib.suppress(ConnectionError):
                stranger.reset_streams(path, 10)
            time.sleep(0.01)
        assert str(told[0]) == "127.0.0.1 was cut off: it reset 21 streams within 10 s"
        assert stranger.is_cut_off(DEADLINE_S)
        with pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"):
            unknown(b"", timeout=DEADLINE_S)
    assert len(told) == 1


def test_each_window_counts_for_itself_and_cuts_the_same_peer_off_again(monkeypatch):
    cut_off, told = [], []
    monkeypatch.setattr(grpc_guard, "_reset", cut_off.append)
    guard = grpc_guard.ResetGuard(told.append)
    for windows in range(1, 4):
        for _ in range(grpc_guard.RESETS_MAX + 5):
            guard._on_reset(Watcher(), windows * grpc_guard.RESETS_WINDOW_S)
        assert cut_off == ["ipv4:10.0.0.1:1"] * windows
        assert len(told) == windows


def test_a_connection_that_resets_a_few_streams_goes_on(gateway):
    endpoint, told = gateway
    client = Http2(endpoint)
    client.reset_streams(SESSION_METHOD, 50)
    with grpc.insecure_channel(endpoint.target) as channel, pytest.raises(grpc.RpcError):
        channel.unary_unary("/no.such/Method")(b"", timeout=DEADLINE_S)  # the server has been through them
    assert not client.is_cut_off(0.05)
    assert told == []
    client.sock.close()


def test_one_address_watches_the_health_so_often_and_the_next_watch_is_refused(gateway, monkeypatch):
    monkeypatch.setattr(grpc_guard, "WATCHES_MAX", 8)
    endpoint, _ = gateway
    with grpc.insecure_channel(endpoint.target) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch
        watches = [watch(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S) for _ in range(6)]
        for each in watches:
            assert next(each).status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError) as raised:
            next(watch(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S))
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        rule = "127.0.0.1 has 6, and 2 are free: one has at most 3 times as many as are free"
        assert raised.value.details() == f"watches of the health, 8 at most: {rule}"
        for each in watches:
            each.cancel()


class Watcher:
    """The context of one call."""

    def __init__(self):
        self.written = []

    def peer(self):
        return "ipv4:10.0.0.1:1"

    async def write(self, response):
        self.written.append(response.status)


def test_those_who_watch_share_one_look_and_hear_of_changes_alone(monkeypatch):
    monkeypatch.setattr(member_health, "WATCH_INTERVAL_S", 0.01)
    leader, looks = [0], []

    async def look():
        looks.append(leader[0])
        return SimpleNamespace(leader_member_id=leader[0])

    async def watch():
        health = MemberHealth(look, ("",))
        watchers = [Watcher() for _ in range(20)]
        request = health_pb2.HealthCheckRequest()
        calls = [asyncio.create_task(health.Watch(request, watcher)) for watcher in watchers]
        while not all(watcher.written for watcher in watchers):
            await asyncio.sleep(0)
        before = len(looks)
        while len(looks) < before + 5:
            await asyncio.sleep(0.001)
        leader[0] = -1
        while not all(len(watcher.written) == 2 for watcher in watchers):
            await asyncio.sleep(0.001)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        return watchers, before, health

    watchers, before, health = asyncio.run(watch())
    response = health_pb2.HealthCheckResponse
    assert all(watcher.written == [response.SERVING, response.NOT_SERVING] for watcher in watchers)
    assert before <= 25, "each looks once when it comes, and then one looks for all"
    assert health._looking is None


def test_a_look_that_fails_in_whatever_way_is_no_leader_and_the_watch_goes_on(monkeypatch):
    monkeypatch.setattr(member_health, "WATCH_INTERVAL_S", 0.001)
    looks = []

    async def look():
        looks.append(len(looks))
        if len(looks) == 3:
            raise RuntimeError("cannot schedule new futures after shutdown")
        return SimpleNamespace(leader_member_id=0)

    async def watch():
        watcher = Watcher()
        call = asyncio.create_task(MemberHealth(look, ("",)).Watch(health_pb2.HealthCheckRequest(), watcher))
        deadline = time.monotonic() + DEADLINE_S
        while len(watcher.written) < 3 and time.monotonic() < deadline:
            await asyncio.sleep(0.001)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        return watcher.written

    response = health_pb2.HealthCheckResponse
    assert asyncio.run(watch()) == [response.SERVING, response.NOT_SERVING, response.SERVING]
