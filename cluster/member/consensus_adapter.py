"""Frames of other members: log bytes as runs, reports and heartbeats as numbers, the rest as messages.

AppendPosition and CommitPosition come in every turn of a busy cluster and are not made into objects, unless
an election is to see them.
"""

from typing import TYPE_CHECKING

from cluster.archive.files import Buffer
from cluster.errors import RemoteProtocolError
from cluster.member.frames import (
    APPEND_POSITION,
    BLOCK,
    COMMIT_POSITION,
    FRAME_LENGTH,
    STREAM_ID,
    STREAM_ID_OFFSET,
    TEMPLATE_AND_SCHEMA,
    TEMPLATE_AND_SCHEMA_OFFSET,
)
from cluster.protocol import CLUSTER, decode, streams
from cluster.protocol.consensus import AppendPosition, CommitPosition
from cluster.protocol.frame import HEADER_LENGTH, align

if TYPE_CHECKING:
    from cluster.member.agent import ConsensusModuleAgent

_APPEND_POSITION = (AppendPosition.TEMPLATE_ID, CLUSTER.id)
_COMMIT_POSITION = (CommitPosition.TEMPLATE_ID, CLUSTER.id)
_MESSAGE_LENGTH_MIN = HEADER_LENGTH + 8
_POSITION_LENGTH_MIN = BLOCK + COMMIT_POSITION.size  # flags of an AppendPosition may lack: padding is zeros


class ConsensusAdapter:
    """What ``Links.poll`` calls."""

    def __init__(self, agent: "ConsensusModuleAgent") -> None:
        self._agent = agent

    def on_link_up(self, member_id: int, incarnation: int) -> None:
        self._agent.on_link_up(member_id)

    def on_link_down(self, member_id: int) -> None:
        self._agent.on_link_down(member_id)

    def on_member_gone(self, member_id: int) -> None:
        self._agent.on_member_gone(member_id)

    def on_frames(self, member_id: int, buffer: Buffer, start: int, end: int) -> None:
        agent = self._agent
        while start < end:
            (stream_id,) = STREAM_ID.unpack_from(buffer, start + STREAM_ID_OFFSET)
            if stream_id == streams.LOG:
                start = self._on_log_frames(member_id, buffer, start, end)
                continue
            (frame_length,) = FRAME_LENGTH.unpack_from(buffer, start)
            if frame_length < _MESSAGE_LENGTH_MIN:
                agent.on_error(RemoteProtocolError(f"member {member_id}: a message of {frame_length} bytes"))
                return
            kind = TEMPLATE_AND_SCHEMA.unpack_from(buffer, start + TEMPLATE_AND_SCHEMA_OFFSET)
            is_whole = frame_length >= _POSITION_LENGTH_MIN
            if agent.leading is not None and kind == _APPEND_POSITION and is_whole:
                term_id, position, _, flags = APPEND_POSITION.unpack_from(buffer, start + BLOCK)
                agent.leading.on_append_position(member_id, term_id, position, flags)
            elif agent.following is not None and kind == _COMMIT_POSITION and is_whole:
                term_id, position, _ = COMMIT_POSITION.unpack_from(buffer, start + BLOCK)
                agent.following.on_commit_position(member_id, term_id, position)
            else:
                try:
                    message = decode(buffer, start + HEADER_LENGTH, frame_length - HEADER_LENGTH)
                except RemoteProtocolError as error:
                    agent.on_error(error)
                else:
                    if message is not None:
                        agent.messages.on_message(member_id, message)
            start += align(frame_length)

    def _on_log_frames(self, member_id: int, buffer: Buffer, start: int, end: int) -> int:
        """Give the run to the subscription; step over it when it belongs to an earlier one."""
        taken = self._agent.messages.on_log_frames(member_id, buffer, start, end)
        if taken > start:
            return taken
        while start < end:
            (stream_id,) = STREAM_ID.unpack_from(buffer, start + STREAM_ID_OFFSET)
            if stream_id != streams.LOG:
                break
            (frame_length,) = FRAME_LENGTH.unpack_from(buffer, start)
            start += align(frame_length)
        return start
