"""Frames of other members: log bytes as runs, reports and heartbeats as numbers, the rest as messages.

AppendPosition and CommitPosition come in every turn of a busy cluster and are not made into objects, unless
an election is to see them.
"""

from typing import Protocol

from cluster.archive.files import Buffer
from cluster.errors import RemoteProtocolError
from cluster.log.runs import headers
from cluster.member.frames import APPEND_POSITION, BLOCK, COMMIT_POSITION
from cluster.member.log.requests import LogRequests
from cluster.member.phase import Next, Phase
from cluster.member.reporter import Reporter
from cluster.member.unrelated import HEARD_OF_ALL, Unrelated
from cluster.protocol import decode, streams
from cluster.protocol.consensus import AppendPosition, CommitPosition
from cluster.protocol.frame import HEADER_LENGTH, header_at
from cluster.protocol.sbe import Message, kind_at

_POSITION_LENGTH_MIN = BLOCK + COMMIT_POSITION.size  # flags of an AppendPosition may lack: padding is zeros


class PeersHandler(Protocol):
    """The agent, as far as other members reach it."""

    phase: Phase

    def enter(self, step: Next | None) -> None: ...

    def on_message(self, member_id: int, message: Message) -> None: ...

    def on_link_up(self, member_id: int) -> None: ...

    def on_link_down(self, member_id: int) -> None: ...

    def on_member_gone(self, member_id: int) -> None: ...

    def on_unrelated(self) -> None: ...


class ConsensusAdapter:
    """What ``Links.poll`` calls."""

    def __init__(
        self, handler: PeersHandler, log_requests: LogRequests, unrelated: Unrelated, reporter: Reporter
    ) -> None:
        self._handler = handler
        self._log_requests = log_requests
        self._unrelated = unrelated
        self._reporter = reporter

    def on_link_up(self, member_id: int, incarnation: int) -> None:
        self._handler.on_link_up(member_id)

    def on_link_down(self, member_id: int) -> None:
        self._handler.on_link_down(member_id)

    def on_member_gone(self, member_id: int) -> None:
        self._handler.on_member_gone(member_id)

    def on_frames(self, member_id: int, buffer: Buffer, start: int, end: int) -> None:
        handler = self._handler
        while start < end:
            header = header_at(buffer, start)
            is_unrelated = member_id in self._unrelated
            if header.stream_id == streams.LOG and not is_unrelated:
                start = self._on_log_frames(member_id, buffer, start, end)
                continue
            length = header.frame_length
            if length < BLOCK:
                self._reporter.error(RemoteProtocolError(f"member {member_id}: a message of {length} bytes"))
                return
            kind = kind_at(buffer, start + HEADER_LENGTH)
            if is_unrelated and (header.stream_id == streams.LOG or kind not in HEARD_OF_ALL):
                start += header.aligned_length
                continue
            is_whole = length >= _POSITION_LENGTH_MIN
            phase = handler.phase
            if phase.takes_reports and kind == AppendPosition.KIND and is_whole:
                term_id, position, _, flags = APPEND_POSITION.unpack_from(buffer, start + BLOCK)
                handler.enter(phase.on_append_position(member_id, term_id, position, flags))
            elif phase.takes_commits and kind == CommitPosition.KIND and is_whole:
                term_id, position, _ = COMMIT_POSITION.unpack_from(buffer, start + BLOCK)
                handler.enter(phase.on_commit_position(member_id, term_id, position))
            else:
                try:
                    message = decode(buffer, start + HEADER_LENGTH, length - HEADER_LENGTH)
                except RemoteProtocolError as error:
                    self._reporter.error(error)
                else:
                    if message is not None:
                        handler.on_message(member_id, message)
                        if not is_unrelated and member_id in self._unrelated:
                            handler.on_unrelated()
                            return
            start += header.aligned_length

    def _on_log_frames(self, member_id: int, buffer: Buffer, start: int, end: int) -> int:
        """Give the run to the subscription; step over it when it belongs to an earlier one."""
        taken = start
        try:
            taken = self._log_requests.on_frames(member_id, buffer, start, end)
        except RemoteProtocolError as error:
            self._reporter.error(error)
            self._handler.enter(self._handler.phase.on_log_fault(error))
        if taken > start:
            return taken
        others = (offset for offset, header in headers(buffer, start, end) if header.stream_id != streams.LOG)
        return next(others, end)
