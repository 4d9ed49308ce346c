"""How one member stands, and what opens clients of members' logs for whoever asks."""

import os
from collections.abc import Callable
from contextlib import closing

from cluster.protocol import link
from cluster.transport.credentials import CredentialsSupplier, supplier_of
from cluster.transport.endpoint import Endpoint, adopt_endpoints, parse_endpoint
from cluster.transport.log_client import LogClient, Unreachable, open_log_client
from cluster.transport.tls import TlsFiles, tls_in

TIMEOUT_S = 5.0  # of one request to one member

OpenClient = Callable[[Endpoint], LogClient]


def log_client_opener(
    timeout_s: float, tls: TlsFiles | None = None, credentials: bytes | CredentialsSupplier | None = None
) -> OpenClient:
    """Opens clients with these, or with what the environment names. Raises ConfigurationError."""
    tls = tls_in(os.environ) if tls is None else tls
    shown = supplier_of(credentials).encoded_credentials
    return lambda endpoint: open_log_client(endpoint, timeout_s, tls, credentials=shown)


def member_status(
    endpoint: Endpoint | str,
    timeout_s: float = 2.0,
    tls: TlsFiles | None = None,
    credentials: bytes | CredentialsSupplier | None = None,
    position: int | None = None,
) -> link.LogStatus:
    """How one member stands; TLS and credentials as ``RemoteLog``. Raises ClusterError.

    With a ``position`` it says in which leadership term the log is there, too.
    """
    if isinstance(endpoint, str):
        endpoint = parse_endpoint(endpoint)
    with closing(log_client_opener(timeout_s, tls, credentials)(endpoint)) as client:
        if position is None:
            return client.status()
        for answer in client.read(position, position, 1):
            if isinstance(answer, link.LogStatus):
                return answer
    raise Unreachable(f"{endpoint}: the stream ended without a status")


def adopt_reported(known: dict[int, Endpoint], status: link.LogStatus) -> list[int]:
    """Take over where the others are, but for Unix sockets; returns the ids that are new or changed."""
    reported = (status.ingress_endpoints, status.tcp_endpoints)
    return [member_id for endpoints in reported for member_id in adopt_endpoints(known, endpoints)]
