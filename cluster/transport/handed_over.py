"""A connection that its owner gives to another part of the process."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.transport.tls import TlsSession


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A connection that its owner gave away: the socket, and what was received on it and not taken.

    ``tls`` is the session that its bytes go through, None where they go in the clear.
    """

    sock: socket.socket
    received: bytes
    certificate_name: str | None = None
    tls: TlsSession | None = None
