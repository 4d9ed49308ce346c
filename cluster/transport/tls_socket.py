"""TLS over a blocking socket, of a reader's requests; and the cause of a refusal that gRPC reports."""

import socket
import ssl
from contextlib import suppress
from dataclasses import replace

from cluster.errors import RemoteProtocolError, TlsFailed
from cluster.protocol import link
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.frame_splitter import FrameSplitter
from cluster.transport.message_frames import link_frame
from cluster.transport.names import connect_within
from cluster.transport.other_protocols import spoken_by
from cluster.transport.sockets import Explanation
from cluster.transport.tls import TlsFiles, client_context, describe_failure

DIAGNOSIS_TIMEOUT_S = 2.0
PROBE_TIMEOUT_S = 1.0
HELLO = link.Hello(-1, -1, 0, link.LINK_PROTOCOL_VERSION, link.ConnectionKind.CLIENT)
UNCHECKED = "speaks TLS; expected a file of authorities to check it by (--tls-ca, tls=, tlsCaFile)"


def wrap(sock: socket.socket, files: TlsFiles, endpoint: Endpoint) -> ssl.SSLSocket:
    """Shake hands as a client of ``endpoint``. Raises TlsFailed, TimeoutError, ConfigurationError."""
    return _shake_hands(sock, client_context(files), endpoint)


def _shake_hands(sock: socket.socket, context: ssl.SSLContext, endpoint: Endpoint) -> ssl.SSLSocket:
    wrapped = context.wrap_socket(sock, server_hostname=endpoint.host, do_handshake_on_connect=False)
    try:
        wrapped.do_handshake()
    except TimeoutError:
        raise
    except OSError as error:
        raise TlsFailed(describe_failure(error, str(endpoint), wrapped)) from None
    return wrapped


def diagnose(endpoint: Endpoint, files: TlsFiles | None) -> str:
    """Why a gRPC client with ``files`` and who listens at ``endpoint`` cannot speak; empty: it is not TLS."""
    try:
        with connect_within(endpoint, DIAGNOSIS_TIMEOUT_S) as sock:
            if files is None:
                return f"{endpoint} {UNCHECKED}" if _speaks_tls(sock) else ""
            context = client_context(files)
            context.set_alpn_protocols(["h2"])
            with _shake_hands(sock, context, endpoint) as wrapped:
                return _refusal_of(wrapped, files, str(endpoint))
    except TlsFailed as error:
        return str(error)
    except OSError:
        return ""


def who_listens(endpoint: Endpoint) -> Explanation:
    """Why a gRPC client gets no answer at ``endpoint``, where that is not TLS; empty when it should.

    With the error of who speaks something else there, and will not answer to another call either.
    """
    try:
        with connect_within(endpoint, PROBE_TIMEOUT_S) as sock:
            sock.sendall(link_frame(HELLO))
            sock.settimeout(PROBE_TIMEOUT_S / 2)
            try:
                first = sock.recv(64)
            except TimeoutError:
                sock.sendall(b"\r\n\r\n")  # a server of HTTP waits for the end of a request
                first = sock.recv(64)
    except TimeoutError:
        return f"silent for {PROBE_TIMEOUT_S:g} s", None
    except OSError as error:
        return error.strerror or str(error), None
    if not first:
        return "the other side closed the connection; expected a member's gRPC endpoint", None
    if not (spoken := spoken_by(first)):
        with suppress(RemoteProtocolError):
            FrameSplitter().split(first)
            spoken = f"the other side speaks tcp:, use {replace(endpoint, medium=Medium.TCP)}"
    return ("", None) if not spoken or "gRPC" in spoken else (spoken, RemoteProtocolError)


def _refusal_of(wrapped: ssl.SSLSocket, files: TlsFiles, peer: str) -> str:
    """What the other side says to our certificate, which it sees last; a content one speaks first."""
    if wrapped.recv(1):
        return ""
    if files.certificate:
        return f"{peer} does not accept our certificate {files.certificate}"
    return f"{peer} asks for a client's certificate, and none was given"


def _speaks_tls(sock: socket.socket) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is said to it
    try:
        context.wrap_socket(sock).close()
    except OSError:
        return False
    return True
