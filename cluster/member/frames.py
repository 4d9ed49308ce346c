"""Frames of messages between members and to clients; those of every turn are packed once and patched."""

import struct

import numpy as np

from cluster.archive.files import Buffer
from cluster.protocol import sbe, streams
from cluster.protocol.consensus import AppendPosition, CommitPosition
from cluster.protocol.frame import FRAME_ALIGNMENT, HEADER_LENGTH
from cluster.protocol.link import RecordingBlock
from cluster.protocol.sbe import Message
from cluster.transport.message_frames import link_frame, message_frame

BLOCK = HEADER_LENGTH + sbe.HEADER_LENGTH  # of a message in a frame of its own
APPEND_POSITION = AppendPosition.layout().block
COMMIT_POSITION = CommitPosition.layout().block
_RECORDING_BLOCK = RecordingBlock.layout().block
_FRAMES = HEADER_LENGTH + len(RecordingBlock(0, 0, b"").encode())  # of a RecordingBlock, which they end
_TERM_AND_POSITION = struct.Struct("<qq")
_PADDING = bytes(-_FRAMES % FRAME_ALIGNMENT)  # frames are aligned themselves


def consensus_frame(message: Message) -> bytes:
    """One message of schema 111 between members."""
    return message_frame(message, streams.CONSENSUS)


def egress_frame(message: Message) -> bytes:
    """One message of schema 111 to a client."""
    return message_frame(message, streams.EGRESS)


class PositionFrame:
    """A follower's report, or a leader's heartbeat: term and position are filled in."""

    __slots__ = ("_frame",)

    def __init__(self, message: AppendPosition | CommitPosition) -> None:
        self._frame = bytearray(consensus_frame(message))

    def of(self, leadership_term_id: int, log_position: int) -> bytearray:
        """The frame, valid until the next call."""
        _TERM_AND_POSITION.pack_into(self._frame, BLOCK, leadership_term_id, log_position)
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
            self._head = bytearray(whole[:_FRAMES])
            assert len(whole) == len(self._head) + len(frames) + len(_PADDING)
        _RECORDING_BLOCK.pack_into(self._head, BLOCK, correlation_id, position)
        return self._head, frames, _PADDING
