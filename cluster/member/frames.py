"""Frames that are sent in every turn, packed once and patched; and where a frame's fields lie."""

import struct

import numpy as np

from cluster.archive.files import Buffer
from cluster.protocol import streams
from cluster.protocol.consensus import AppendPosition, CommitPosition
from cluster.protocol.frame import FRAME_ALIGNMENT, HEADER_LENGTH, frame
from cluster.protocol.link import CommitAck, RecordingBlock
from cluster.protocol.sbe import Message

SBE_HEADER_LENGTH = 8
BLOCK = HEADER_LENGTH + SBE_HEADER_LENGTH  # of a message in a frame of its own

FRAME_LENGTH = struct.Struct("<i")
STREAM_ID_OFFSET = 16
STREAM_ID = struct.Struct("<i")
TEMPLATE_AND_SCHEMA_OFFSET = HEADER_LENGTH + 2
TEMPLATE_AND_SCHEMA = struct.Struct("<HH")
TWO_LONGS = struct.Struct("<qq")
APPEND_POSITION = struct.Struct("<qqiB")
COMMIT_POSITION = struct.Struct("<qqi")
_COMMIT_ACK = struct.Struct("<qqqq")
_TWO_LONGS_AND_LENGTH = TWO_LONGS.size + 4
_BLOCK_PADDING = bytes(-(BLOCK + _TWO_LONGS_AND_LENGTH) % FRAME_ALIGNMENT)  # frames are aligned themselves


def consensus_frame(message: Message) -> bytes:
    """One message of schema 111 between members."""
    return frame(message.encode(), session_id=0, stream_id=streams.CONSENSUS)


def link_frame(message: Message) -> bytes:
    """One of our own messages."""
    return frame(message.encode(), session_id=0, stream_id=streams.LINK)


def egress_frame(message: Message) -> bytes:
    """One message of schema 111 to a client."""
    return frame(message.encode(), session_id=0, stream_id=streams.EGRESS)


class AppendPositionFrame:
    """A follower's report; flags NONE."""

    __slots__ = ("_frame",)

    def __init__(self, member_id: int) -> None:
        self._frame = bytearray(consensus_frame(AppendPosition(0, 0, member_id, 0)))

    def of(self, leadership_term_id: int, log_position: int) -> bytearray:
        """The frame, valid until the next call."""
        TWO_LONGS.pack_into(self._frame, BLOCK, leadership_term_id, log_position)
        return self._frame


class CommitPositionFrame:
    """A leader's heartbeat."""

    __slots__ = ("_frame",)

    def __init__(self, member_id: int) -> None:
        self._frame = bytearray(consensus_frame(CommitPosition(0, 0, member_id)))

    def of(self, leadership_term_id: int, log_position: int) -> bytearray:
        """The frame, valid until the next call."""
        TWO_LONGS.pack_into(self._frame, BLOCK, leadership_term_id, log_position)
        return self._frame


class RecordingBlockFrame:
    """A RecordingBlock around frames that are not copied for it; all of one length are packed once."""

    __slots__ = ("_head", "_length")

    def __init__(self) -> None:
        self._head = bytearray()
        self._length = -1

    def around(self, correlation_id: int, position: int, frames: np.ndarray) -> tuple[Buffer, ...]:
        """The buffers to send; the first is valid until the next call."""
        if len(frames) != self._length:
            whole = link_frame(RecordingBlock(0, 0, bytes(len(frames))))
            self._length = len(frames)
            self._head = bytearray(whole[: BLOCK + _TWO_LONGS_AND_LENGTH])
            assert len(whole) == len(self._head) + len(frames) + len(_BLOCK_PADDING)
        TWO_LONGS.pack_into(self._head, BLOCK, correlation_id, position)
        return self._head, frames, _BLOCK_PADDING


class CommitAckFrame:
    """What a client is told of its committed messages."""

    __slots__ = ("_frame",)

    def __init__(self) -> None:
        self._frame = link_frame(CommitAck(0, 0, 0, 0))

    def of(self, session_id: int, leadership_term_id: int, messages: int, position: int) -> bytearray:
        """A frame of its own."""
        ack = bytearray(self._frame)
        _COMMIT_ACK.pack_into(ack, BLOCK, session_id, leadership_term_id, messages, position)
        return ack
