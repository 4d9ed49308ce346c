"""The service of ``cluster.proto``: what the gateway serves, in messages that every gRPC client can make.

The project's own clients use ``cluster.Cluster``, whose requests and responses are the bytes alone, which
saves a copy. The descriptors are made here and not by ``protoc``, so that nothing has to be generated; a test
compares them with the file.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from cluster.errors import RemoteProtocolError
from cluster.protocol import link
from cluster.transport.grpc_core import grpc
from cluster.transport.grpc_guard import abort

FRAMES_SERVICE = "cluster.Frames"

_FIELD = descriptor_pb2.FieldDescriptorProto
# Each message with its fields, by number from 1.
MESSAGES: dict[str, tuple[tuple[str, str], ...]] = {
    "FrameRun": (("bytes", "frames"),),
    "LogRange": (("int64", "from_position"), ("int64", "to_position"), ("int32", "max_bytes")),
    "StatusQuery": (),
    "MemberStatus": (
        ("int32", "cluster_id"),
        ("int32", "member_id"),
        ("int32", "leader_member_id"),
        ("int64", "leadership_term_id"),
        ("int64", "start_position"),
        ("int64", "commit_position"),
        ("string", "ingress_endpoints"),
    ),
}
# Each method with what it takes and returns, and whether these are streams.
METHODS: dict[str, tuple[str, bool, str, bool]] = {
    "Session": ("FrameRun", True, "FrameRun", True),
    "ReadLog": ("LogRange", False, "FrameRun", True),
    "Status": ("StatusQuery", False, "MemberStatus", False),
}


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="cluster.proto", package="cluster", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (kind, field) in enumerate(fields, 1):
            message.field.add(
                name=field,
                number=number,
                type=getattr(_FIELD, f"TYPE_{kind.upper()}"),
                label=_FIELD.LABEL_OPTIONAL,
            )
    service = file.service.add(name="Frames")
    for name, (taken, takes_stream, returned, returns_stream) in METHODS.items():
        service.method.add(
            name=name,
            input_type=f".cluster.{taken}",
            output_type=f".cluster.{returned}",
            client_streaming=takes_stream,
            server_streaming=returns_stream,
        )
    return file


_pool = descriptor_pool.Default()  # the one that reflection describes
_pool.Add(_file())
_CLASSES: dict[str, Any] = {
    name: message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"cluster.{name}")) for name in MESSAGES
}


class Gateway(Protocol):
    """What a gateway serves, as bytes."""

    def session(
        self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[bytes]: ...

    async def send_log(
        self,
        request: link.LogRequest,
        context: grpc.aio.ServicerContext,
        write: Callable[[bytes], Awaitable[None]],
    ) -> None: ...

    async def look(
        self, request: link.StatusRequest, context: grpc.aio.ServicerContext
    ) -> link.LogStatus: ...


def frames_handlers(gateway: Gateway) -> grpc.GenericRpcHandler:
    """What answers to the service's methods."""
    frames = _Frames(gateway)
    makers = {
        "Session": grpc.stream_stream_rpc_method_handler(frames.session, **_codec("Session")),
        "ReadLog": grpc.unary_stream_rpc_method_handler(frames.read_log, **_codec("ReadLog")),
        "Status": grpc.unary_unary_rpc_method_handler(frames.status, **_codec("Status")),
    }
    return grpc.method_handlers_generic_handler(FRAMES_SERVICE, makers)


def _codec(method: str) -> dict[str, Any]:
    """Requests come as bytes: gRPC calls one that it cannot parse INTERNAL, as a fault of the member."""
    return {"response_serializer": _CLASSES[METHODS[method][2]].SerializeToString}


def _parsed(name: str, data: bytes) -> Any:
    """Raises RemoteProtocolError."""
    try:
        return _CLASSES[name].FromString(data)
    except DecodeError:
        raise RemoteProtocolError(f"{len(data)} bytes that are no cluster.{name}") from None


async def _request(name: str, data: bytes, context: grpc.aio.ServicerContext) -> Any:
    """The request, or the end of the call with INVALID_ARGUMENT."""
    try:
        return _parsed(name, data)
    except RemoteProtocolError as error:
        await abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))


class _Frames:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def session(
        self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[Any]:
        run = _CLASSES["FrameRun"]
        async for frames in self._gateway.session(_frames_of(requests), context):
            yield run(frames=frames)

    async def read_log(self, data: bytes, context: grpc.aio.ServicerContext) -> None:
        request = await _request("LogRange", data, context)
        run = _CLASSES["FrameRun"]
        await self._gateway.send_log(
            link.LogRequest(0, request.from_position, request.to_position, request.max_bytes),
            context,
            lambda frames: context.write(run(frames=frames)),
        )

    async def status(self, data: bytes, context: grpc.aio.ServicerContext) -> Any:
        await _request("StatusQuery", data, context)
        status = await self._gateway.look(link.StatusRequest(0), context)
        names = [field for _, field in MESSAGES["MemberStatus"]]
        return _CLASSES["MemberStatus"](**{name: getattr(status, name) for name in names})


async def _frames_of(requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for data in requests:
        yield _parsed("FrameRun", data).frames
