"""A reader's end: requests for the log and for status, answered with frames; blocking, over any medium.

    with open_log_client(endpoint, timeout_s=5) as client:
        client.status()
        client.control(request, timeout_s=40)
        for item in client.read(from_position, to_position, max_bytes):
            ...                     LogStatus, then runs of whole messages (uint8 arrays), then EndOfStream
        client.read_recording(7)    RecordingStatus, then runs of a snapshot's frames, then EndOfStream
        client.read_events(request) EventLines, then EndOfStream

``timeout_s`` bounds how long a member may be silent, not how long a stream may last.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from cluster.errors import (
    AuthenticationRejected,
    ClientClosed,
    ClusterError,
    ConfigurationError,
    RemoteProtocolError,
    TlsFailed,
)
from cluster.log.entry_filter import restored
from cluster.log.scan import last_message_end
from cluster.protocol import Message, decode, link, streams
from cluster.protocol.frame import HEADER_LENGTH, align
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.forks import check_grpc, keep_for_ever, leave_to_parent, refuse_grpc
from cluster.transport.frame_splitter import FrameSplitter
from cluster.transport.grpc_service import CONTROL_METHOD, CREDENTIALS_KEY, READ_LOG_METHOD, STATUS_METHOD
from cluster.transport.message_frames import decode_first, each_frame, link_frame
from cluster.transport.names import connect_within
from cluster.transport.sockets import FRAME_LENGTH_MAX, reason_of
from cluster.transport.tls import TlsFiles, describe_failure
from cluster.transport.tls_socket import wrap

if TYPE_CHECKING:
    from cluster.transport.grpc_core import grpc

RECEIVE_BYTES = 1024 * 1024
FRAMED_LENGTH_MAX = 4 * FRAME_LENGTH_MAX  # of Aeron's longest message in the shortest frames
STATUS_THREADS_MAX = 16
_RECORDED = (streams.LOG, streams.SERVICE_SNAPSHOT, streams.CONSENSUS_MODULE_SNAPSHOT)

_WHOLE = link.LogStatus | link.RecordingStatus | link.EventLines | link.EndOfStream  # a frame each
Answer = link.LogStatus | link.EndOfStream | np.ndarray
RecordingAnswer = link.RecordingStatus | link.EndOfStream | np.ndarray
EventsAnswer = link.EventLines | link.EndOfStream
Kind = TypeVar("Kind", link.LogStatus, link.ControlOutcome)


class Unreachable(ClusterError):
    """A member did not answer, or its answer broke off: another one may."""

    code = "CLUSTER_UNREACHABLE"
    fix = "Check that the members run, and that their endpoints can be reached from here."


class LogClient(ABC):
    """Raises Unreachable, AuthenticationRejected, RemoteProtocolError, TlsFailed, ConfigurationError."""

    @abstractmethod
    def status(self) -> link.LogStatus: ...

    @abstractmethod
    def control(self, request: link.ControlRequest, timeout_s: float) -> link.ControlOutcome:
        """What came of it; the member may be silent as long as it is at work."""

    def read(
        self, from_position: int, to_position: int, max_bytes: int, wanted: tuple[link.Wanted, ...] = ()
    ) -> Iterator[Answer]:
        """What is not ``wanted`` may come as padding, from members that know of it."""
        return self._stream(link.LogRequest(0, from_position, to_position, max_bytes, wanted))

    def read_recording(self, recording_id: int) -> Iterator[RecordingAnswer]:
        return self._stream(link.RecordingRequest(0, recording_id))

    def read_events(self, request: link.EventsRequest) -> Iterator[EventsAnswer]:
        return self._stream(request)

    @abstractmethod
    def _stream(self, request: Message) -> Iterator[Any]:
        """What a request for a stream is answered with."""

    @abstractmethod
    def close(self) -> None: ...


def open_log_client(
    endpoint: Endpoint,
    timeout_s: float,
    tls: TlsFiles | None = None,
    *,
    credentials: Callable[[], bytes] = lambda: b"",
) -> LogClient:
    """Of the member at ``endpoint``, to which nothing is sent yet; ``ipc:`` speaks no TLS."""
    kind = _GrpcLogClient if endpoint.medium is Medium.GRPC else _SocketLogClient
    return kind(endpoint, timeout_s, tls, credentials)


def statuses(clients: dict[int, LogClient]) -> dict[int, link.LogStatus | ClusterError]:
    """Ask all members at once; the time is that of the slowest, at most its time-out."""
    if not clients:
        return {}
    with ThreadPoolExecutor(min(len(clients), STATUS_THREADS_MAX), "log-status") as pool:
        return dict(zip(clients, pool.map(_status, clients.values()), strict=True))


def _status(client: LogClient) -> link.LogStatus | ClusterError:
    try:
        return client.status()
    except ClusterError as error:
        return error


def _answers(endpoint: Endpoint, data: bytes) -> Iterator[Any]:
    """What a run of frames holds: runs of a recording's frames stay together."""
    buffer = np.frombuffer(data, np.uint8)
    begin = 0
    for stream_id, offset, length in each_frame(buffer, 0, len(buffer)):
        if stream_id in _RECORDED:
            continue
        if begin < offset - HEADER_LENGTH:
            yield buffer[begin : offset - HEADER_LENGTH]
        begin = align(offset + length)
        message: Message | None = decode(buffer, offset, length) if stream_id == streams.LINK else None
        if isinstance(message, _WHOLE):
            yield message
        elif isinstance(message, link.ThinnedBlock):
            yield _restored(endpoint, message)
        elif isinstance(message, link.LinkError):
            raise _refusal(endpoint, message)
    if begin < len(buffer):
        yield buffer[begin:]


def _restored(endpoint: Endpoint, block: link.ThinnedBlock) -> np.ndarray:
    if not 0 <= block.length <= FRAME_LENGTH_MAX:
        raise RemoteProtocolError(f"{endpoint}: a thinned block of {block.length} bytes")
    return restored(np.frombuffer(block.frames, np.uint8), block.length)


def _refusal(endpoint: Endpoint, error: link.LinkError) -> ClusterError:
    is_unauthorised = error.code is link.LinkErrorCode.UNAUTHORISED
    return (AuthenticationRejected if is_unauthorised else Unreachable)(f"{endpoint}: {error.text}")


def _first_in(endpoint: Endpoint, data: bytes) -> Message | None:
    try:
        return decode_first(np.frombuffer(data, np.uint8), 0, len(data))[0]
    except RemoteProtocolError as error:
        raise RemoteProtocolError(f"{endpoint}: {error}") from None


def _only(kind: type[Kind], endpoint: Endpoint, data: bytes) -> Kind:
    """The one message that a request is answered with."""
    message = _first_in(endpoint, data)
    if isinstance(message, kind):
        return message
    if isinstance(message, link.LinkError):
        raise _refusal(endpoint, message)
    raise RemoteProtocolError(f"{endpoint}: answered with something else than a {kind.__name__}")


class _GrpcLogClient(LogClient):
    def __init__(
        self, endpoint: Endpoint, timeout_s: float, tls: TlsFiles | None, credentials: Callable[[], bytes]
    ) -> None:
        check_grpc()
        self._endpoint = endpoint
        self._tls = tls
        self._timeout_s = timeout_s
        self._credentials = credentials
        self._channel: grpc.Channel | None = None
        self._why_forked = ""
        self._calls: set[Any] = set()
        leave_to_parent(self)

    def on_forked(self, why: str) -> None:
        """As ``forks`` says."""
        self._why_forked = why
        keep_for_ever((self._channel, *self._calls))
        if self._calls:
            refuse_grpc()
        self._channel = None

    def _check_not_forked(self) -> None:
        if self._why_forked:
            raise _forked(self._endpoint, self._why_forked)

    def _connected(self) -> grpc.Channel:
        self._check_not_forked()
        if self._channel is None:
            # Loading gRPC takes longer than a whole request over a socket.
            from cluster.transport.grpc_credentials import open_channel

            self._channel = open_channel(self._endpoint, self._tls)
        return self._channel

    def status(self) -> link.LogStatus:
        data = self._call(STATUS_METHOD, link.StatusRequest(0), self._timeout_s)
        return _only(link.LogStatus, self._endpoint, data)

    def control(self, request: link.ControlRequest, timeout_s: float) -> link.ControlOutcome:
        return _only(link.ControlOutcome, self._endpoint, self._call(CONTROL_METHOD, request, timeout_s))

    def _call(self, method: str, request: Message, timeout_s: float) -> bytes:
        channel = self._connected()
        from cluster.transport.grpc_core import grpc

        try:
            call = channel.unary_unary(method)
            data: bytes = call(request.encode(), timeout=timeout_s, metadata=self._metadata())
        except grpc.RpcError as error:
            raise self._failure(error) from None
        return data

    def _stream(self, request: Message) -> Iterator[Any]:
        channel = self._connected()
        from cluster.transport.grpc_core import grpc

        call = channel.unary_stream(READ_LOG_METHOD)(request.encode(), metadata=self._metadata())
        self._calls.add(call)
        silence = _Silence(self._timeout_s, call.cancel)
        try:
            while (data := silence.bounded(next, call, None)) is not None:
                yield from _answers(self._endpoint, data)
                self._check_not_forked()
        except grpc.RpcError as error:
            if silence.was_too_long:
                raise Unreachable(f"{self._endpoint}: silent for {self._timeout_s:g} s") from None
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise ConfigurationError(f"{self._endpoint}: {error.details()}") from None
            raise self._failure(error) from None
        finally:
            if not self._why_forked:
                silence.close()
                call.cancel()
                self._calls.discard(call)

    def _metadata(self) -> tuple[tuple[str, bytes], ...]:
        credentials = self._credentials()
        return ((CREDENTIALS_KEY, credentials),) if credentials else ()

    def _failure(self, error: grpc.RpcError) -> ClusterError:
        from cluster.transport.grpc_core import grpc

        if error.code() is grpc.StatusCode.PERMISSION_DENIED:
            return AuthenticationRejected(f"{self._endpoint}: {error.details()}")
        from cluster.transport.grpc_credentials import diagnose_call

        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return Unreachable(f"{self._endpoint}: silent for {self._timeout_s:g} s")
        why, incompatibility = diagnose_call(self._endpoint, self._tls, error)
        if incompatibility is TlsFailed:
            return TlsFailed(why)
        return (incompatibility or Unreachable)(f"{self._endpoint}: {why}")

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


class _Silence:
    """Ends a stream from which nothing comes: gRPC knows deadlines of whole calls only, and its keep-alive
    takes more than a minute to give up a process that is stopped.
    """

    def __init__(self, timeout_s: float, end: Callable[[], object]) -> None:
        self.was_too_long = False
        self._timeout_s = timeout_s
        self._end = end
        self._waits_since: float | None = None
        self._is_over = threading.Event()
        threading.Thread(target=self._watch, name="log-silence", daemon=True).start()

    def bounded(self, wait: Callable[..., Any], *arguments: Any) -> Any:
        """Call ``wait``; the stream is ended when that takes too long. What the reader does in between is
        its own time.
        """
        self._waits_since = time.monotonic()
        try:
            return wait(*arguments)
        finally:
            self._waits_since = None

    def _watch(self) -> None:
        while not self._is_over.wait(self._timeout_s / 4):
            since = self._waits_since
            if since is not None and time.monotonic() - since > self._timeout_s:
                self.was_too_long = True
                self._end()
                return

    def close(self) -> None:
        self._is_over.set()


class _SocketLogClient(LogClient):
    """Over ``tcp:`` and ``ipc:``, where the member hands readers' connections to its log server."""

    def __init__(
        self, endpoint: Endpoint, timeout_s: float, tls: TlsFiles | None, credentials: Callable[[], bytes]
    ) -> None:
        tls = tls if endpoint.medium is Medium.TCP else None
        self._open = partial(_Exchange, endpoint, timeout_s, tls, credentials)
        self._endpoint = endpoint
        self._idle: _Exchange | None = None  # kept from one status to the next

    def status(self) -> link.LogStatus:
        exchange, self._idle = self._idle, None
        if exchange is not None:
            with contextlib.suppress(Unreachable):  # the member has closed what was idle for long
                return self._ask(exchange)
        return self._ask(self._open())

    def _ask(self, exchange: _Exchange) -> link.LogStatus:
        try:
            exchange.send(link.StatusRequest(0))
            status = _only(link.LogStatus, self._endpoint, exchange.receive())
        except BaseException:
            exchange.close()
            raise
        self._idle = exchange
        return status

    def control(self, request: link.ControlRequest, timeout_s: float) -> link.ControlOutcome:
        with contextlib.closing(self._open()) as exchange:
            exchange.send(request)
            return _only(link.ControlOutcome, self._endpoint, exchange.receive(timeout_s))

    def _stream(self, request: Message) -> Iterator[Any]:
        rest = np.empty(0, np.uint8)  # of a message: the socket does not cut frames where messages end
        with contextlib.closing(self._open()) as exchange:
            exchange.send(request)
            while True:
                for answer in _answers(self._endpoint, exchange.receive()):
                    if isinstance(answer, np.ndarray):
                        whole, rest = self._cut(np.concatenate((rest, answer)) if len(rest) else answer)
                        if len(whole):
                            yield whole
                        continue
                    is_end = isinstance(answer, link.EndOfStream)
                    if is_end and len(rest):
                        raise RemoteProtocolError(f"{self._endpoint}: the answer ends amid a message")
                    yield answer
                    if is_end:
                        return

    def _cut(self, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Whole messages, and the rest. Raises RemoteProtocolError for a message that has no end."""
        end = last_message_end(frames, 0, len(frames))
        if len(frames) - end > FRAMED_LENGTH_MAX:
            raise RemoteProtocolError(
                f"{self._endpoint}: a message of more than {FRAMED_LENGTH_MAX} bytes in frames"
            )
        return frames[:end], frames[end:].copy()

    def close(self) -> None:
        if self._idle is not None:
            self._idle.close()
            self._idle = None


def _forked(endpoint: Endpoint, why: str) -> ClientClosed:
    return ClientClosed(f"the reader's connection to {endpoint} is closed: {why}")


class _Exchange:
    """One blocking connection that was greeted."""

    def __init__(
        self, endpoint: Endpoint, timeout_s: float, tls: TlsFiles | None, credentials: Callable[[], bytes]
    ) -> None:
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._splitter = FrameSplitter()
        self._why_forked = ""
        try:
            self._sock = connect_within(endpoint, timeout_s)
        except OSError as error:
            raise self._broken(error) from None
        try:
            if tls is not None:
                self._sock = wrap(self._sock, tls, endpoint)
            self.send(link.Hello(-1, -1, 0, link.LINK_PROTOCOL_VERSION, link.ConnectionKind.READER))
            reply = _first_in(endpoint, self.receive())
            if not isinstance(reply, link.HelloReply):
                raise RemoteProtocolError(f"{endpoint}: the first frame is not a HelloReply")
            if reply.code is link.LinkErrorCode.TLS_REQUIRED:
                raise TlsFailed(f"{endpoint}: {reply.detail}")
            if reply.code is not link.LinkErrorCode.OK:
                raise Unreachable(f"{endpoint}: {reply.detail}")
            if shown := credentials():
                self.send(link.ReaderCredentials(shown))
        except OSError as error:
            self.close()
            raise self._broken(error) from None
        except ClusterError:
            self.close()
            raise
        leave_to_parent(self)

    def on_forked(self, why: str) -> None:
        """As ``forks`` says."""
        self._why_forked = why
        self.close()

    def send(self, message: Message) -> None:
        try:
            self._sock.sendall(link_frame(message))
        except OSError as error:
            raise self._broken(error) from None

    def receive(self, timeout_s: float | None = None) -> bytes:
        """At least one whole frame, each part of it within the time-out."""
        if timeout_s is not None:
            self._timeout_s = timeout_s
            self._sock.settimeout(timeout_s)
        try:
            while data := self._sock.recv(RECEIVE_BYTES):
                if frames := self._splitter.split(data):
                    return frames
        except OSError as error:
            raise self._broken(error) from None
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"{self._endpoint}: {error}") from None
        raise Unreachable(f"{self._endpoint}: the member closed the connection")

    def _broken(self, error: OSError) -> ClusterError:
        if self._why_forked:
            return _forked(self._endpoint, self._why_forked)
        if isinstance(error, ssl.SSLError):
            return TlsFailed(describe_failure(error, str(self._endpoint), self._sock))
        silent = f"silent for {self._timeout_s:g} s"
        why = silent if isinstance(error, TimeoutError) else reason_of(error)
        return Unreachable(f"{self._endpoint}: {why}")

    def close(self) -> None:
        self._sock.close()
