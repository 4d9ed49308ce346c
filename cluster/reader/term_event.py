"""What the entry that begins a leadership term says about the log: whose it is, and its unit of time."""

from __future__ import annotations

from cluster.errors import RemoteProtocolError
from cluster.protocol import decode
from cluster.protocol.enums import ClusterTimeUnit
from cluster.protocol.frame import HEADER_LENGTH, header_at
from cluster.protocol.log import NewLeadershipTermEvent


def term_event(frame: bytes) -> NewLeadershipTermEvent | None:
    """The event in the frame at the begin of ``frame``, if it is one."""
    length = header_at(frame).frame_length
    try:
        message = decode(frame, HEADER_LENGTH, max(length - HEADER_LENGTH, 0))
    except RemoteProtocolError:
        return None
    return message if isinstance(message, NewLeadershipTermEvent) else None


def time_unit_by(timestamp: int) -> ClusterTimeUnit:
    """What a timestamp of these days is in, by how large it is."""
    if timestamp < 10**14:
        return ClusterTimeUnit.MILLIS
    return ClusterTimeUnit.MICROS if timestamp < 10**17 else ClusterTimeUnit.NANOS
