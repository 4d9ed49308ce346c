"""Where a member is reached, written as text.

    host:port          gRPC, the default of clients
    tcp:host:port      our frames over TCP
    ipc:/path/of.sock  our frames over a Unix socket on this host

and lists of them with the member's id, as AeronCluster's ingress endpoints are written:
``0=127.0.0.1:9000,1=127.0.0.1:9010,2=127.0.0.1:9020``. The ids may be left out of a whole list; the members
name them, and over gRPC and TCP also the members that are not in it. An IPv6 host stands in brackets.
"""

import contextlib
import os
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from cluster.errors import ConfigurationError

# sun_path holds 108 bytes with its terminator.
UNIX_PATH_BYTES_MAX = 107
PORT_MAX = 65_535
LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})

# Where a client finds the members by default, and how its other variables begin.
ENDPOINTS_VARIABLE = "CLUSTER_ENDPOINTS"
CLIENT_VARIABLE_PREFIX = "CLUSTER_CLIENT_"

_WITH_ID = re.compile(r"([0-9]+)=(.*)", re.DOTALL)


class Medium(StrEnum):
    """What carries the frames."""

    GRPC = "grpc"
    TCP = "tcp"
    IPC = "ipc"
    AERON = "aeron"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address. ``path`` is of ``ipc:``, and the consensus endpoints of ``aeron:``, a comma list.

    ``host`` and ``port`` are of the other two.
    """

    medium: Medium
    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"{self.medium}:{self.path}"
        prefix = "tcp:" if self.medium is Medium.TCP else ""
        return prefix + self.target

    @property
    def family(self) -> socket.AddressFamily:
        """The socket family of a path or an address; a host name stands for any (``names.py``)."""
        if self.medium is Medium.IPC:
            return socket.AF_UNIX
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET

    @contextlib.contextmanager
    def address(self) -> Iterator[tuple[str, int] | str]:
        """As sockets take it; a long path through its folder's descriptor. Raises OSError."""
        if self.medium is not Medium.IPC:
            yield self.host, self.port
        elif len(os.fsencode(self.path)) <= UNIX_PATH_BYTES_MAX:
            yield self.path
        else:
            folder, name = os.path.split(self.path)
            fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                yield f"/proc/self/fd/{fd}/{name}"
            finally:
                os.close(fd)

    @property
    def target(self) -> str:
        """The address as gRPC takes it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


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
        raise ConfigurationError(f"endpoint {text!r}: an IPv6 address goes in brackets, as in [::1]:9000")
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

    Of a list without ids the first endpoint gets -1, the second -2 and so on, until its member says who it
    is. ``ConfigurationError`` for an empty list, one of both kinds, an id that is no number, or one that
    is given twice (AeronCluster.Context: ingress endpoints).
    """
    endpoints: dict[int, Endpoint] = {}
    items = [part.strip() for part in text.split(",") if part.strip()]
    has_ids = any(map(_WITH_ID.match, items))
    for index, item in enumerate(items):
        found = _WITH_ID.match(item)
        if found is None and (has_ids or ("=" in item and not item.startswith("ipc:"))):
            raise ConfigurationError(
                f"endpoints: {item!r} is not memberId=endpoint, as in 0=127.0.0.1:9000; "
                "a list has the id of every member or of none"
            )
        member_id, endpoint_text = (int(found[1]), found[2]) if found else (-1 - index, item)
        if member_id in endpoints:
            raise ConfigurationError(f"endpoints: member {member_id} is given twice in {text!r}")
        endpoints[member_id] = parse_endpoint(endpoint_text)
    if not endpoints:
        raise ConfigurationError("endpoints: the list is empty; expected host:9000,… or 0=host:9000,1=…")
    return endpoints


def format_endpoints(endpoints: Mapping[int, Endpoint]) -> str:
    """Write member id -> endpoint as ``parse_endpoints`` reads it."""
    return ",".join(
        f"{member_id}={endpoint}" if member_id >= 0 else str(endpoint)
        for member_id, endpoint in endpoints.items()
    )


def adopt_endpoints(known: dict[int, Endpoint], reported: str) -> list[int]:
    """Take over what a member reports of its cluster's endpoints; returns the ids that are new or changed.

    Only those of a medium that is in use: the list that members share names the default medium, and who
    chose ``tcp:`` or ``ipc:`` keeps to it. An endpoint without an id gives way to the same one with its id.
    What cannot be read is passed over.
    """
    try:
        endpoints = parse_endpoints(reported) if reported else {}
    except ConfigurationError:
        return []
    media = {endpoint.medium for endpoint in known.values()}
    changed = [
        member_id
        for member_id, endpoint in endpoints.items()
        if member_id >= 0 and endpoint.medium in media and known.get(member_id) != endpoint
    ]
    for member_id in changed:
        known[member_id] = endpoints[member_id]
    for unnamed in [member_id for member_id in known if member_id < 0]:
        if known[unnamed] in endpoints.values():
            del known[unnamed]
    return changed


def describe_member(member_id: int, endpoint: Endpoint) -> str:
    """How messages to people call a member: by its id, or by its endpoint as long as its id is not known."""
    return f"member {member_id}" if member_id >= 0 else str(endpoint)
