"""gRPC for clients, as a thread of the member's process that the member does not know.

It reaches the member only through connections of its client port, and reads the log from the files. Each
Session stream is one connection, made within the process, so that the name in a client's certificate comes
with it:

    client -- gRPC stream --> gateway -- socket pair --> member's ClientPort
           <-- egress --------        <-----------------

A message on a stream holds whole frames. One that does not ends that stream with INVALID_ARGUMENT, and
nothing of it reaches the member.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, get_args

from cluster.errors import ClusterError, ConfigurationError, RemoteProtocolError
from cluster.protocol import Message, decode, link
from cluster.protocol.frame import HEADER_LENGTH
from cluster.protocol.shares import Taken
from cluster.transport.bounds import DEFAULT_BOUNDS, Bounds
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.frame_splitter import FrameSplitter, check_whole
from cluster.transport.frames_service import FRAMES_SERVICE, frames_handlers
from cluster.transport.grpc_core import grpc
from cluster.transport.grpc_credentials import server_credentials
from cluster.transport.grpc_guard import ResetGuard, abort, address_of
from cluster.transport.grpc_service import CHANNEL_OPTIONS, CREDENTIALS_KEY, MESSAGE_BYTES_MAX, SERVICE
from cluster.transport.handed_over import HandedOver
from cluster.transport.listener import bind_first
from cluster.transport.log_server import (
    Administrator,
    Ask,
    Control,
    Events,
    LogServer,
    OpenLog,
    ReaderIdentity,
    RequestRefused,
    StreamRequest,
)
from cluster.transport.member_tls import ServerTls
from cluster.transport.message_frames import link_frame
from cluster.transport.names import Names
from cluster.transport.sockets import SOCKET_BUFFER_BYTES

READER_THREADS = 2
STOP_GRACE_S = 0.2
MS = 1_000_000
SERVER_OPTIONS = (
    *CHANNEL_OPTIONS,
    ("grpc.so_reuseport", 0),  # or a second process would take half of the connections, silently
    ("grpc.max_metadata_size", 8 * 1024),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
)


STATUS_OF_REFUSAL = {
    link.LinkErrorCode.REFUSED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    link.LinkErrorCode.INVALID_ARGUMENT: grpc.StatusCode.INVALID_ARGUMENT,
    link.LinkErrorCode.OUT_OF_RANGE: grpc.StatusCode.OUT_OF_RANGE,
    link.LinkErrorCode.UNAUTHORISED: grpc.StatusCode.PERMISSION_DENIED,
    link.LinkErrorCode.FAILED: grpc.StatusCode.FAILED_PRECONDITION,
}


class GrpcGateway:
    """A gRPC server in a thread; ``start`` and ``stop`` are called from another."""

    def __init__(
        self,
        listen: Endpoint,
        connect: Callable[[str | None, str], socket.socket],
        open_log: OpenLog,
        message_length_max: int,
        bounds: Bounds = DEFAULT_BOUNDS,
        on_error: Callable[[ClusterError], None] = lambda error: None,
        tls: ServerTls | None = None,
        ask: Ask | None = None,
        control: Control | None = None,
        events: Events = lambda _: iter(()),
    ) -> None:
        """Serve at ``listen`` what the member and its log's files have.

        ``connect`` makes a connection to the member for a client whose certificate has the given name; it
        raises OSError. ``open_log`` opens the log for one reader; it is called in worker threads.
        ``on_error`` hears, in the gateway's thread, of who was refused or cut off at a bound.
        With ``tls`` nothing else is spoken.
        """
        assert listen.medium is Medium.GRPC
        self._listen = listen
        self._connect = connect
        self._frame_length_max = HEADER_LENGTH + message_length_max
        self._executor = ThreadPoolExecutor(READER_THREADS, "log-reader")
        self.log = LogServer(open_log, self._executor, bounds, on_error, ask, control, events)
        self._on_error = on_error
        self._tls = tls
        self._bounds = bounds
        self._hosts = Taken()  # sessions' streams of each
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="grpc-gateway", daemon=True)
        self._server: grpc.aio.Server | None = None
        self._is_started = threading.Event()
        self._readers: set[asyncio.Task[None]] = set()
        self._error: Exception | None = None  # that it could not start for
        self.port = listen.port

    def start(self) -> Endpoint:
        """Listen, and return where (the port that was given, when 0 was asked for); PortInUse if taken."""
        self._thread.start()
        self._is_started.wait()
        if self._error is not None:
            raise self._error
        return Endpoint(Medium.GRPC, self._listen.host, self.port)

    def stop(self) -> None:
        """End all streams and the thread; what a stream still has to say is given a moment."""
        if not self._is_started.is_set():
            return
        if self._error is None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()  # which closes the loop by itself where it could not start

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._listen_on_port())
        except Exception as error:  # ``start`` waits for it
            self._error = error
        self._is_started.set()
        if self._error is None:
            self._loop.run_forever()
            assert self._server is not None
            self._loop.run_until_complete(self._server.stop(STOP_GRACE_S))
            for reader in self._readers:
                reader.cancel()
            ending = asyncio.all_tasks(self._loop)  # calls that were cancelled close what they have open
            if ending:
                self._loop.run_until_complete(asyncio.wait(ending, timeout=STOP_GRACE_S))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self.log.close()
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._loop.close()

    async def _listen_on_port(self) -> None:
        bounds = self._bounds
        options = (
            *SERVER_OPTIONS,
            ("grpc.max_allowed_incoming_connections", bounds.connections_max + bounds.readers_max),
            ("grpc.max_concurrent_streams", bounds.connections_max + bounds.readers_max),  # of a connection
            ("grpc.server_handshake_timeout_ms", bounds.session_open_timeout_ns // MS),
            ("grpc.max_connection_idle_ms", bounds.session_open_timeout_ns // MS),  # without a call
        )
        server = grpc.aio.server(interceptors=(ResetGuard(self._report),), options=options)
        server.add_generic_rpc_handlers((_handlers(self), frames_handlers(self)))
        _add_standard_services(server, self.log)
        # Before gRPC writes its own words to standard error about what the address does not allow.
        bind_first(self._listen, Names(), partial(socket.socket, type=socket.SOCK_STREAM)).close()
        try:
            if self._tls is None:
                self.port = server.add_insecure_port(self._listen.target)
            else:
                self.port = server.add_secure_port(self._listen.target, server_credentials(self._tls))
        except RuntimeError as error:
            raise ConfigurationError(f"{self._listen}: cannot listen there: {error}") from None
        await server.start()
        self._server = server

    def _report(self, text: str) -> None:
        self._on_error(RemoteProtocolError(text))

    def adopt(self, reader: HandedOver) -> None:
        """Serve a reader that came to the member's own port. Called from the member's thread."""
        self._loop.call_soon_threadsafe(self._adopt, reader)

    def _adopt(self, reader: HandedOver) -> None:
        task = self._loop.create_task(self.log.serve(reader))
        self._readers.add(task)
        task.add_done_callback(self._readers.discard)

    # -- what is served --

    async def session(
        self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[bytes]:
        """Pass frames both ways until either end is done."""
        host, count = self._hosts.count_at(address_of(context))
        if count >= self._bounds.address_connections_max:
            text = f"{count} sessions of {host} (address_connections_max)"
            self._report(text)
            await abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        with self._hosts.by(host):
            async for frames in self._session(requests, context):
                yield frames

    async def _session(
        self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        try:
            sock = self._connect(_certificate_name(context), address_of(context))
        except OSError as error:
            await abort(context, grpc.StatusCode.UNAVAILABLE, f"the member does not answer: {error.strerror}")
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
        pump = loop.create_task(self._pump_requests(requests, sock))
        splitter = FrameSplitter()
        try:
            with contextlib.suppress(ConnectionError):
                while data := await loop.sock_recv(sock, MESSAGE_BYTES_MAX):
                    if frames := splitter.split(data):
                        yield frames
            if pump.done() and not pump.cancelled() and (failure := pump.exception()) is not None:
                await abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(failure))
        finally:
            pump.cancel()
            with contextlib.suppress(asyncio.CancelledError, RemoteProtocolError):
                await pump
            sock.close()

    async def _pump_requests(self, requests: AsyncIterator[bytes], sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            async for data in requests:
                check_whole(data, self._frame_length_max)
                await loop.sock_sendall(sock, data)
        except ConnectionError:
            return  # the member closed the connection: the other direction has reported it
        finally:
            # The client is done, or sent what is no frame: the member sees an end-of-file, and answers it.
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)

    async def read_log(self, request: bytes, context: grpc.aio.ServicerContext) -> None:
        """Stream the log, a snapshot or events from the member's files, as fast as the reader takes it."""
        message = await _decode(request, context, *get_args(StreamRequest))
        await self.send_log(message, context, context.write)

    async def send_log(
        self,
        request: StreamRequest,
        context: grpc.aio.ServicerContext,
        write: Callable[[bytes], Awaitable[None]],
    ) -> None:
        """The same for a request that was read, by ``write``."""
        try:
            with self.log.admitted(address_of(context)):
                await self.log.check(_identity(context), request)
                async with contextlib.aclosing(self.log.answers_to(request)) as answers:
                    async for data in answers:
                        await self.log.in_time(write(data))
        except RequestRefused as error:
            await abort(context, STATUS_OF_REFUSAL[error.link_code], str(error))

    async def status(self, request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        """Report how the member stands."""
        message = await _decode(request, context, link.StatusRequest)
        status = await self.look(message, context)
        return link_frame(status.replace(correlation_id=message.correlation_id))

    async def look(self, request: link.StatusRequest, context: grpc.aio.ServicerContext) -> link.LogStatus:
        """The same for a request that was read."""
        try:
            await self.log.check(_identity(context), request)
            return await self.log.look()
        except RequestRefused as error:
            await abort(context, STATUS_OF_REFUSAL[error.link_code], str(error))
        except ClusterError as error:
            await abort(context, grpc.StatusCode.UNAVAILABLE, str(error))

    async def control(self, request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        """Do what an administrator asks for, and say what came of it."""
        message = await _decode(request, context, link.ControlRequest)
        try:
            with self.log.admitted(address_of(context)):
                identity = _identity(context)
                principal = await self.log.check(identity, message)
                return await self.log.control(message, Administrator(identity.peer, principal, Medium.GRPC))
        except RequestRefused as error:
            await abort(context, STATUS_OF_REFUSAL[error.link_code], str(error))


def _handlers(gateway: GrpcGateway) -> grpc.GenericRpcHandler:
    """Method names to the gateway's coroutines; requests and responses are bytes as they came."""
    makers = {
        "Session": grpc.stream_stream_rpc_method_handler(gateway.session),
        "ReadLog": grpc.unary_stream_rpc_method_handler(gateway.read_log),
        "Status": grpc.unary_unary_rpc_method_handler(gateway.status),
        "Control": grpc.unary_unary_rpc_method_handler(gateway.control),
    }
    return grpc.method_handlers_generic_handler(SERVICE, makers)


def _identity(context: grpc.aio.ServicerContext) -> ReaderIdentity:
    metadata = dict(context.invocation_metadata() or ())
    credentials = metadata.get(CREDENTIALS_KEY, b"")
    return ReaderIdentity(address_of(context), _certificate_name(context), bytes(credentials))


def _certificate_name(context: grpc.aio.ServicerContext) -> str | None:
    """The common name in the certificate that the client has shown; None when it has shown none."""
    names = context.auth_context().get("x509_common_name", ())
    return names[0].decode(errors="replace") if names else None


async def _decode(data: bytes, context: grpc.aio.ServicerContext, *kinds: type[Message]) -> Any:
    """The request, of one of these kinds, or the end of the call with INVALID_ARGUMENT."""
    try:
        message = decode(data)
        if not isinstance(message, kinds):
            names = " or ".join(kind.__name__ for kind in kinds)
            raise RemoteProtocolError(f"expected {names}, got {type(message).__name__}")
    except RemoteProtocolError as error:
        await abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
    return message


def _add_standard_services(server: grpc.aio.Server, log: LogServer) -> None:
    from grpc_health.v1 import health, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection

    from cluster.transport.member_health import MemberHealth

    health_pb2_grpc.add_HealthServicer_to_server(
        MemberHealth(log.look, ("", SERVICE, FRAMES_SERVICE)), server
    )
    names = (SERVICE, FRAMES_SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
