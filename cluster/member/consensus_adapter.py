"""Frames of other members: log bytes as runs, reports and heartbeats as numbers, the rest as messages.

AppendPosition and CommitPosition come in every turn of a busy cluster and are not made into objects, unless
an election is to see them.
"""

from typing import TYPE_CHECKING

from cluster.archive.files import Buffer
from cluster.errors import RemoteProtocolError
from cluster.log.runs import headers
from cluster.member.frames import APPEND_POSITION, BLOCK, COMMIT_POSITION
from cluster.protocol import decode, streams
from cluster.protocol.consensus import AppendPosition, CommitPosition
from cluster.protocol.frame import HEADER_LENGTH, header_at
from cluster.protocol.sbe import kind_at

if TYPE_CHECKING:
    from cluster.member.agent import ConsensusModuleAgent

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
            header = header_at(buffer, start)
            if header.stream_id == streams.LOG:
                start = self._on_log_frames(member_id, buffer, start, end)
                continue
            length = header.frame_length
            if length < BLOCK:
                agent.on_error(RemoteProtocolError(f"member {member_id}: a message of {length} bytes"))
                return
            kind = kind_at(buffer, start + HEADER_LENGTH)
            is_whole = length >= _POSITION_LENGTH_MIN
            if agent.leading is not None and kind == AppendPosition.KIND and is_whole:
                term_id, position, _, flags = APPEND_POSITION.unpack_from(buffer, start + BLOCK)
                agent.leading.on_append_position(member_id, term_id, position, flags)
            elif agent.following is not None and kind == CommitPosition.KIND and is_whole:
                term_id, position, _ = COMMIT_POSITION.unpack_from(buffer, start + BLOCK)
                agent.following.on_commit_position(member_id, term_id, position)
            else:
                try:
                    message = decode(buffer, start + HEADER_LENGTH, length - HEADER_LENGTH)
                except RemoteProtocolError as error:
                    agent.on_error(error)
                else:
                    if message is not None:
                        agent.messages.on_message(member_id, message)
            start += header.aligned_length

    def _on_log_frames(self, member_id: int, buffer: Buffer, start: int, end: int) -> int:
        """Give the run to the subscription; step over it when it belongs to an earlier one."""
        taken = self._agent.messages.on_log_frames(member_id, buffer, start, end)
        if taken > start:
            return taken
        others = (offset for offset, header in headers(buffer, start, end) if header.stream_id != streams.LOG)
        return next(others, end)
