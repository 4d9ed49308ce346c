"""TLS as gRPC takes it: at least TLS 1.2 with gRPC's own list of ciphers, files as everywhere."""

import errno
import os

from cluster.errors import TlsFailed
from cluster.transport.endpoint import Endpoint
from cluster.transport.grpc_core import grpc
from cluster.transport.grpc_service import CHANNEL_OPTIONS
from cluster.transport.member_tls import ServerTls
from cluster.transport.sockets import Explanation
from cluster.transport.tls import TlsFiles
from cluster.transport.tls_socket import diagnose, who_listens


def server_credentials(tls: ServerTls) -> grpc.ServerCredentials:
    """Of one who listens; each handshake goes by the files that were read last."""
    shown = _configuration(tls)
    current = tls.pem

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        """Called in gRPC's threads, one at a time; None: as before."""
        nonlocal current
        if tls.pem is current:
            return None
        current = tls.pem
        return _configuration(tls)

    return grpc.dynamic_ssl_server_credentials(shown, fetch, require_client_authentication=tls.asks_clients)


def _configuration(tls: ServerTls) -> grpc.ServerCertificateConfiguration:
    pem = tls.pem
    return grpc.ssl_server_certificate_configuration([(pem["key"], pem["certificate"])], pem["ca"])


def open_channel(endpoint: Endpoint, files: TlsFiles | None) -> grpc.Channel:
    """A client's channel. Raises ConfigurationError for files that cannot be read."""
    if files is None:
        return grpc.insecure_channel(endpoint.target, options=CHANNEL_OPTIONS)
    credentials = grpc.ssl_channel_credentials(files.read("ca"), files.read("key"), files.read("certificate"))
    return grpc.secure_channel(endpoint.target, credentials, options=CHANNEL_OPTIONS)


def diagnose_call(endpoint: Endpoint, files: TlsFiles | None, error: grpc.RpcError) -> Explanation:
    """Why a call could not be made, and the error where no other call can be, which gRPC does not say."""
    if not isinstance(error, grpc.Call):
        return str(error), None
    details = " ".join((error.details() or "").rpartition("last error: ")[2].split())
    text = f"{error.code().name}: {details}"
    if error.code() is not grpc.StatusCode.UNAVAILABLE:
        return text, None
    if "refused" in details:  # nobody listens there
        return os.strerror(errno.ECONNREFUSED), None
    if tls_failure := diagnose(endpoint, files):
        return tls_failure, TlsFailed
    why, incompatibility = ("", None) if files is not None else who_listens(endpoint)
    return why or text, incompatibility
