"""What members in memory send to those who ask without a session."""

from cluster.protocol import decode
from cluster.protocol.frame import HEADER_LENGTH, align


def messages_in(data):
    """The messages of whole frames, one after the other."""
    offset = 0
    while offset < len(data):
        length = int.from_bytes(data[offset : offset + 4], "little")
        yield decode(data, offset + HEADER_LENGTH, length - HEADER_LENGTH)
        offset += align(length)
