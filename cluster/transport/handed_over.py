"""A connection that its owner gives to another part of the process."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.transport.tls import TlsSession


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A socket that was given away, what was received and not taken, and its TLS session, if any."""

    sock: socket.socket
    received: bytes
    certificate_name: str | None = None
    tls: TlsSession | None = None
