"""Where a member is reached, written as text.

    host:port          gRPC, the default of clients
    tcp:host:port      our frames over TCP
    ipc:/path/of.sock  our frames over a Unix socket on this host

and lists of them with the member's id, as AeronCluster's ingress endpoints are written:
``0=127.0.0.1:9000,1=127.0.0.1:9010,2=127.0.0.1:9020``. An IPv6 host stands in brackets.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from cluster.errors import ConfigurationError

# sun_path holds 108 bytes with its terminator; longer paths are reached by an abstract name.
UNIX_PATH_BYTES_MAX = 107
PORT_MAX = 65_535


class Medium(StrEnum):
    """What carries the frames."""

    GRPC = "grpc"
    TCP = "tcp"
    IPC = "ipc"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address. ``path`` is of ``ipc:`` alone, ``host`` and ``port`` of the other two."""

    medium: Medium
    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.medium is Medium.IPC:
            return f"ipc:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        prefix = "tcp:" if self.medium is Medium.TCP else ""
        return f"{prefix}{host}:{self.port}"

    @property
    def family(self) -> socket.AddressFamily:
        """The socket family that this address needs."""
        if self.medium is Medium.IPC:
            return socket.AF_UNIX
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET

    @property
    def address(self) -> tuple[str, int] | str:
        """The address as ``socket.bind`` and ``socket.connect`` take it."""
        return unix_address(self.path) if self.medium is Medium.IPC else (self.host, self.port)

    @property
    def target(self) -> str:
        """The address as gRPC takes it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def unix_address(path: str) -> str:
    """Return the address of a Unix socket at ``path``.

    ``@name`` is Linux's abstract name space. A path that the kernel's structure cannot hold gets an
    abstract name made of its digest, so that both ends find it without agreeing on anything else.
    """
    if path.startswith("@"):
        return "\0" + path[1:]
    if len(path.encode()) <= UNIX_PATH_BYTES_MAX:
        return path
    return "\0cluster-" + hashlib.sha256(path.encode()).hexdigest()[:40]


def parse_endpoint(text: str) -> Endpoint:
    """Read one endpoint; ``ConfigurationError`` names the text and what is wrong with it."""
    text = text.strip()
    if text.startswith("ipc:"):
        path = text[len("ipc:") :]
        if not path:
            raise ConfigurationError(f"endpoint {text!r}: expected ipc:/path/of/a/socket")
        return Endpoint(Medium.IPC, path=path)
    medium = Medium.GRPC
    rest = text
    if text.startswith("tcp:"):
        medium, rest = Medium.TCP, text[len("tcp:") :]
    host, colon, port_text = rest.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if is_bracketed:
        host = host[1:-1]
    elif host.count(":") > 1:
        raise ConfigurationError(f"endpoint {text!r}: an IPv6 address stands in brackets, as in [::1]:9000")
    is_host = bool(host) and (is_bracketed or ":" not in host)
    if not colon or not is_host or not (port_text.isascii() and port_text.isdigit()):
        raise ConfigurationError(f"endpoint {text!r}: expected host:port, tcp:host:port or ipc:/path")
    try:
        host.encode("idna")
    except UnicodeError:
        raise ConfigurationError(f"endpoint {text!r}: {host!r} is no host name") from None
    port = int(port_text)
    if port > PORT_MAX:
        raise ConfigurationError(f"endpoint {text!r}: port {port} is above {PORT_MAX}")
    return Endpoint(medium, host=host, port=port)


def parse_endpoints(text: str) -> dict[int, Endpoint]:
    """Read ``memberId=endpoint,…`` into member id -> endpoint, in the order given.

    ``ConfigurationError`` for an empty list, an item without ``=``, a member id that is no number, or
    one that stands twice (AeronCluster.Context: ingress endpoints).
    """
    endpoints: dict[int, Endpoint] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        id_text, equals, endpoint_text = item.partition("=")
        if not equals or not (id_text.isascii() and id_text.isdigit()):
            raise ConfigurationError(f"endpoints: {item!r} is not memberId=endpoint, as in 0=127.0.0.1:9000")
        member_id = int(id_text)
        if member_id in endpoints:
            raise ConfigurationError(f"endpoints: member {member_id} stands twice in {text!r}")
        endpoints[member_id] = parse_endpoint(endpoint_text)
    if not endpoints:
        raise ConfigurationError("endpoints: the list is empty; expected 0=127.0.0.1:9000,1=…")
    return endpoints


def format_endpoints(endpoints: Mapping[int, Endpoint]) -> str:
    """Write member id -> endpoint as ``parse_endpoints`` reads it."""
    return ",".join(f"{member_id}={endpoint}" for member_id, endpoint in endpoints.items())
