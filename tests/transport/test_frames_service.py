"""A stranger's gRPC client, which has only cluster.proto, or reflection."""

import re
from pathlib import Path

import grpc
import numpy as np
import pytest
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from cluster import ClusterClient, ClusterNode
from cluster.protocol import decode, link
from cluster.transport import frames_service
from cluster.transport.frames_service import MESSAGES, METHODS
from cluster.transport.message_frames import each_frame, link_frame
from tests.client.leader import Leader
from tests.node.processes import await_that, free_base_port

DEADLINE_S = 20
HELLO = link_frame(link.Hello(-1, -1, 0, link.LINK_PROTOCOL_VERSION, link.ConnectionKind.CLIENT))


def test_the_published_file_is_what_is_served():
    text = (Path(frames_service.__file__).parent / "cluster.proto").read_text()
    text = re.sub(r" *//.*", "", text)
    messages = {
        name: tuple(re.findall(r"^  (\w+) (\w+) = \d+;$", body, re.MULTILINE))
        for name, body in re.findall(r"^message (\w+) \{\n(.*?)^\}$", text, re.MULTILINE | re.DOTALL)
    }
    numbers = [
        [int(number) for number in re.findall(r"= (\d+);", body)]
        for body in re.findall(r"^message \w+ \{\n(.*?)^\}$", text, re.MULTILINE | re.DOTALL)
    ]
    methods = re.findall(r"rpc (\w+)\((stream )?(\w+)\) returns \((stream )?(\w+)\);", text)

    assert messages == MESSAGES
    assert all(found == list(range(1, len(found) + 1)) for found in numbers)
    assert {
        name: (taken, bool(takes), returned, bool(returns))
        for name, takes, taken, returns, returned in methods
    } == METHODS
    assert 'syntax = "proto3";' in text
    assert re.search(r"^package cluster;$", text, re.MULTILINE)


class Stranger:
    """Knows nothing but an address: calls and messages come from reflection."""

    def __init__(self, channel):
        self._channel = channel
        self._pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        self._service = self._pool.FindServiceByName("cluster.Frames")

    def message(self, name, **fields):
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(f"cluster.{name}"))(**fields)

    def call(self, name, request):
        method = self._service.FindMethodByName(name)
        kind = "stream" if method.client_streaming else "unary"
        kind += "_stream" if method.server_streaming else "_unary"
        returned = message_factory.GetMessageClass(method.output_type)
        stub = getattr(self._channel, kind)(
            f"/cluster.Frames/{name}",
            request_serializer=method.input_type._concrete_class.SerializeToString,
            response_deserializer=returned.FromString,
        )
        return stub(request, timeout=DEADLINE_S)


@pytest.fixture
def leader(tmp_path):
    leader = Leader(str(tmp_path))
    yield leader
    leader.stop()


def messages_in(frames):
    buffer = np.frombuffer(frames, np.uint8)
    return [decode(buffer, offset, length) for _, offset, length in each_frame(buffer, 0, len(buffer))]


def test_a_session_is_spoken_by_who_knows_only_the_address(leader):
    with grpc.insecure_channel(leader.endpoints["grpc"].removeprefix("0=")) as channel:
        stranger = Stranger(channel)
        responses = stranger.call("Session", iter([stranger.message("FrameRun", frames=HELLO)]))
        (reply,) = messages_in(next(responses).frames)

    assert isinstance(reply, link.HelloReply)
    assert reply.code is link.LinkErrorCode.OK


def test_what_is_no_frame_is_refused(leader):
    with grpc.insecure_channel(leader.endpoints["grpc"].removeprefix("0=")) as channel:
        stranger = Stranger(channel)
        responses = stranger.call("Session", iter([stranger.message("FrameRun", frames=bytes(64))]))
        with pytest.raises(grpc.RpcError) as refused:
            list(responses)

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "not a frame" in refused.value.details()


@pytest.mark.parametrize("method", ["Session", "ReadLog", "Status"])
def test_what_is_no_message_of_the_file_is_refused(leader, method):
    """And not a failure of the member's, which gRPC would call INTERNAL."""
    takes_stream = METHODS[method][1]
    with grpc.insecure_channel(leader.endpoints["grpc"].removeprefix("0=")) as channel:
        kind = "stream_stream" if takes_stream else "unary_stream" if METHODS[method][3] else "unary_unary"
        call = getattr(channel, kind)(f"/cluster.Frames/{method}")
        with pytest.raises(grpc.RpcError) as refused:
            answer = call(iter([b"\xff"]) if takes_stream else b"\xff", timeout=DEADLINE_S)
            list(answer)

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "1 bytes that are no cluster." in refused.value.details()


def test_status_and_log_of_a_member_are_read_by_who_knows_only_the_address(tmp_path):
    port = free_base_port(ports=10)
    member = f"0,127.0.0.1:{port}" + f",127.0.0.1:{port + 2}" * 4
    with ClusterNode.launch(members=[member], member_id=0, dir=str(tmp_path / "member")) as node:
        await_that(lambda: node.is_leader, "a leader")
        with ClusterClient.connect(f"127.0.0.1:{port}") as client:
            client.offer(b"hello")
            client.await_committed(DEADLINE_S)
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stranger = Stranger(channel)
            status = stranger.call("Status", stranger.message("StatusQuery"))
            wanted = stranger.message("LogRange", to_position=status.commit_position, max_bytes=1 << 20)
            runs = [run.frames for run in stranger.call("ReadLog", wanted)]

    assert (status.member_id, status.leader_member_id) == (0, 0)
    assert status.commit_position >= client.committed_position > 0
    assert any(b"hello" in run for run in runs)
    assert isinstance(messages_in(runs[0])[0], link.LogStatus)
    assert isinstance(messages_in(runs[-1])[-1], link.EndOfStream)
