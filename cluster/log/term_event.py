"""The event that a leadership term's log begins with: which term it is, whose log, and its unit of time."""

from collections.abc import Callable

from cluster.errors import ClusterError
from cluster.log.runs import headers
from cluster.protocol import decode
from cluster.protocol.enums import ClusterTimeUnit
from cluster.protocol.frame import HEADER_LENGTH, TYPE_DATA
from cluster.protocol.log import NewLeadershipTermEvent
from cluster.protocol.sbe import Buffer


def first_term_event(read: Callable[[int], Buffer], position: int, end: int) -> NewLeadershipTermEvent | None:
    """The event that is the first message of the log in [position, end).

    ``read`` gives whole frames from a position on. Padding is stepped over: the event did not fit before it.
    None for another message, for none, and where it cannot be read: damage is found elsewhere.
    """
    try:
        while position < end:
            frames = read(position)
            for offset, header in headers(frames):
                if header.type == TYPE_DATA:
                    message = decode(frames, offset + HEADER_LENGTH, header.frame_length - HEADER_LENGTH)
                    return message if isinstance(message, NewLeadershipTermEvent) else None
            if not len(frames):
                return None
            position += len(frames)
    except (ClusterError, OSError):
        pass
    return None


def term_event_in(frame: Buffer) -> NewLeadershipTermEvent | None:
    """The event in the frame at the beginning of ``frame``, if it is one."""
    return first_term_event(lambda _: frame, 0, HEADER_LENGTH)


def time_unit_by(timestamp: int) -> ClusterTimeUnit:
    """What a timestamp of these days is in, by how large it is."""
    if timestamp < 10**14:
        return ClusterTimeUnit.MILLIS
    return ClusterTimeUnit.MICROS if timestamp < 10**17 else ClusterTimeUnit.NANOS
