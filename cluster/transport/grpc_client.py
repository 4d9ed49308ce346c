"""A session over gRPC, as a socket: one bidirectional stream of bytes, pumped by gRPC's own threads.

The caller gets one end of a socket pair and treats it like any other connection, with its back pressure
and its end-of-file; whatever waits in the pair goes out as one message.

    Connection <-> socket pair <-> requests (gRPC's consumer thread)  -> stream
                               <-> responses (a thread of ours)       <- stream
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial

from cluster.errors import ConfigurationError, RemoteProtocolError
from cluster.transport.endpoint import Endpoint
from cluster.transport.forks import check_grpc, keep_for_ever, leave_to_parent, refuse_grpc
from cluster.transport.frame_splitter import FrameSplitter
from cluster.transport.grpc_core import grpc
from cluster.transport.grpc_credentials import diagnose_call, open_channel
from cluster.transport.grpc_service import MESSAGE_BYTES_MAX, SESSION_METHOD
from cluster.transport.sockets import SOCKET_BUFFER_BYTES, Explanation
from cluster.transport.tls import TlsFiles


class SessionStream:
    """One Session stream; ``sock`` is the caller's end of it."""

    def __init__(self, sock: socket.socket, theirs: socket.socket) -> None:
        self.sock = sock
        self.failure: Explanation = "", None  # known before the end-of-file is
        self._theirs = theirs
        self.of_grpc: tuple[object, ...] = ()  # what carries it, and belongs to this process alone
        leave_to_parent(self)

    def on_forked(self, why: str) -> None:
        """As ``forks`` says."""
        if self.of_grpc:
            keep_for_ever(self.of_grpc)
            refuse_grpc()
        self._theirs.close()

    def fail(self, why: str, incompatibility: type[RemoteProtocolError] | None = None) -> None:
        """End it: the caller learns why, and then that its end of the pair is at its end."""
        self.failure = why, incompatibility
        self.of_grpc = ()
        with contextlib.suppress(OSError):
            self._theirs.shutdown(socket.SHUT_RDWR)
        self._theirs.close()

    def explain(self) -> Explanation:
        """Why gRPC ended the stream, empty when it ended well or goes on, and what of it lasts."""
        return self.failure


def open_session(endpoint: Endpoint, tls: TlsFiles | None) -> SessionStream:
    """Start a Session stream to the gateway at ``endpoint``; a failure shows as end-of-file.

    Raises ConfigurationError where ``check_grpc`` does.
    """
    check_grpc()
    ours, theirs = socket.socketpair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
    stream = SessionStream(ours, theirs)
    try:
        channel = open_channel(endpoint, tls)
        call = channel.stream_stream(SESSION_METHOD)(_requests(theirs))
        stream.of_grpc = channel, call
        threading.Thread(
            target=_pump_responses,
            args=(channel, call, theirs, stream, partial(diagnose_call, endpoint, tls)),
            name=f"grpc-session-{endpoint}",
            daemon=True,
        ).start()
    except (ConfigurationError, RuntimeError) as error:  # files that are being replaced; no more threads
        stream.fail(str(error))
    return stream


def _requests(sock: socket.socket) -> Iterator[bytes]:
    splitter = FrameSplitter()
    with contextlib.suppress(OSError):
        while data := sock.recv(MESSAGE_BYTES_MAX):
            if frames := splitter.split(data):
                yield frames


def _pump_responses(
    channel: grpc.Channel,
    call: Iterator[bytes],
    sock: socket.socket,
    stream: SessionStream,
    diagnose: Callable[[grpc.RpcError], Explanation],
) -> None:
    # The call ends with RpcError when the gateway is not there or went away; a broken pair says that
    # our own side closed. Either way both ends learn of it by end-of-file.
    failure: Explanation = "", None
    try:
        with contextlib.suppress(OSError):
            for data in call:
                sock.sendall(data)
    except grpc.RpcError as error:
        failure = "gRPC has ended the stream", None
        with contextlib.suppress(Exception):  # what cannot be found out: no thread, no memory
            failure = diagnose(error)
    except Exception as error:
        failure = f"{type(error).__name__}: {error}", None
    finally:
        channel.close()
        stream.fail(*failure)
