"""A connection to one member of the simulated cluster: says what it is told to, and notes what it hears."""

from __future__ import annotations

from typing import Any

from cluster.protocol import Message, decode, streams
from cluster.protocol.frame import HEADER_LENGTH, align, frame
from cluster.protocol.link import SessionResume
from cluster.protocol.resume import with_resume_hash
from cluster.protocol.session import SessionConnectRequest

TOKEN = b"0123456789abcdef"


class Stranger:
    """A connection to one member that says what it is told to; ``heard`` is all that came back."""

    def __init__(self, member: Any) -> None:
        self.heard: list[Message | None] = []
        self.is_closed = False
        self.connection = member.dial(self._on_frames, self._on_closed)

    def _on_frames(self, frames: bytes) -> None:
        offset = 0
        while offset < len(frames):
            length = int.from_bytes(frames[offset : offset + 4], "little")
            self.heard.append(decode(frames, offset + HEADER_LENGTH, length - HEADER_LENGTH))
            offset += align(length)

    def _on_closed(self) -> None:
        self.is_closed = True

    def says(self, message: Message) -> None:
        stream_id = streams.LINK if isinstance(message, SessionResume) else streams.INGRESS
        self.connection.send(frame(message.encode(), session_id=0, stream_id=stream_id))

    def connects(
        self,
        correlation_id: int = 7,
        version: int = 3 << 8,
        credentials: bytes = b"",
        channel: str = with_resume_hash("aeron:ipc", TOKEN),
    ) -> None:
        self.says(SessionConnectRequest(correlation_id, 102, version, channel, credentials))

    def of_type(self, kind: type[Message]) -> list[Message]:
        return [message for message in self.heard if isinstance(message, kind)]
