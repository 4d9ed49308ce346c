"""Single messages in frames of their own: what is rare on a connection, and not worth a kernel."""

from collections.abc import Iterator
from typing import Protocol

from cluster.errors import RemoteProtocolError
from cluster.log.runs import headers
from cluster.protocol import Message, decode, streams
from cluster.protocol.arrays import np
from cluster.protocol.frame import HEADER_LENGTH, align, frame
from cluster.transport.other_protocols import spoken_by


class Received(Protocol):
    """A connection that holds whole frames in ``buffer[start:end]``."""

    buffer: np.ndarray
    start: int
    end: int

    def release(self, consumed_end: int) -> None: ...


def message_frame(message: Message, stream_id: int) -> bytes:
    """One message in one frame of ``stream_id``, padded to the alignment."""
    return frame(message.encode(), session_id=0, stream_id=stream_id)


def link_frame(message: Message) -> bytes:
    """One of our own messages in one frame of the stream LINK."""
    return message_frame(message, streams.LINK)


def each_frame(buffer: np.ndarray, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (stream id, payload offset, payload length) of each frame of a run of whole frames."""
    for offset, header in headers(buffer, start, end):
        yield header.stream_id, offset + HEADER_LENGTH, header.frame_length - HEADER_LENGTH


def decode_first_frame(connection: Received) -> Message | None:
    """Decode and release the first frame; None of an unknown message. Raises RemoteProtocolError."""
    message, end = decode_first(connection.buffer, connection.start, connection.end)
    connection.release(end)
    return message


def decode_first(buffer: np.ndarray, start: int, end: int) -> tuple[Message | None, int]:
    """The message of the first of these whole frames (None: unknown), and the end of its frame.

    Raises RemoteProtocolError, which says what the other side speaks where that can be known.
    """
    stream_id, offset, length = next(each_frame(buffer, start, end))
    if stream_id != streams.LINK:
        of_another = f"the first frame is of stream {stream_id}, expected {streams.LINK}"
        raise RemoteProtocolError(spoken_by(bytes(buffer[start:offset])) or of_another)
    return decode(buffer, offset, length), align(offset + length)
