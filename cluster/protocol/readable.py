"""Messages as people read them: each by its name with the fields that matter.

A simulated cluster that is watched and the ``node.log`` of a member say it in these words.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any, Final

from cluster.errors import RemoteProtocolError
from cluster.protocol import NULL_VALUE, decode, streams
from cluster.protocol.enums import Role
from cluster.protocol.frame import HEADER_LENGTH, TYPE_DATA, align, header_at
from cluster.protocol.sbe import HEADER_LENGTH as MESSAGE_HEADER_LENGTH
from cluster.protocol.sbe import Message
from cluster.protocol.session import SessionMessageHeader

SHOWN_PAYLOAD: Final = 40  # bytes
SHOWN_TEXT: Final = 80  # characters of a field

# Fields that say nothing of what goes on, or that nobody is to read.
_QUIET: Final = {
    *(
        "version",
        "protocol_version",
        "app_version",
        "client_info",
        "timestamp",
        "time_unit",
        "flags",
        "payload",
    ),
    *("response_stream_id", "response_channel", "log_session_id", "log_stream_id", "log_channel"),
    *("encoded_principal", "encoded_credentials", "encoded_challenge", "resume_token", "secret"),
    *("correlation_id", "relevant_id", "request_type", "leader_recording_id", "catchup_endpoint"),
    *("leader_heartbeat_timeout_ns", "message_length_max", "max_log_position", "is_standby"),
}
_TIMERS: Final = frozenset(("TimerEvent", "ScheduleTimer", "CancelTimer"))  # their correlation ids are names


def messages_in(frames: bytes | bytearray, payload: Callable[[bytes], str]) -> Iterator[tuple[str, int]]:
    """Each whole frame's message, "" for one that is none, and where the frame ends; envelopes are opened.

    ``payload`` says what is shown of a client's bytes.
    """
    start = 0
    while start + HEADER_LENGTH <= len(frames):
        header = header_at(frames, start)
        if header.stream_id == streams.ENVELOPE:  # its content is frames, too
            start += HEADER_LENGTH
            continue
        end = start + align(header.frame_length)
        if header.frame_length < HEADER_LENGTH or end > len(frames):
            return
        text = ""
        if header.type == TYPE_DATA:
            content = bytes(frames[start + HEADER_LENGTH : start + header.frame_length])
            text = readable_message(content, header.stream_id, payload)
        yield text, end
        start = end


def readable_message(data: bytes, stream_id: int, payload: Callable[[bytes], str]) -> str:
    """A message by its name with the fields that matter; empty for what is none."""
    try:
        message = decode(data) if len(data) >= MESSAGE_HEADER_LENGTH else None
    except RemoteProtocolError:
        message = None
    if message is None:
        return ""
    listed = [(name, value) for name, value in message.as_dict().items() if _reports(message, name, value)]
    listed.sort(key=lambda field: field[0] != "vote" and not isinstance(field[1], IntEnum))  # decisions first
    fields = (f"{in_aerons_case(name)}={_shown(name, value)}" for name, value in listed)
    words = [type(message).__name__, *fields]
    if isinstance(message, SessionMessageHeader):
        words.append(payload(data[SessionMessageHeader.ENCODED_LENGTH :]))
    return ("Log: " if stream_id == streams.LOG else "") + " ".join(words)


def payload_text(payload: bytes) -> str:
    """The first bytes of a payload."""
    return repr(payload[:SHOWN_PAYLOAD])[1:]


def payload_length(payload: bytes) -> str:
    """No more of a payload than its length."""
    return f"{len(payload)} bytes"


def _reports(message: Message, name: str, value: Any) -> bool:
    if name == "correlation_id" and type(message).__name__ in _TIMERS:
        return True
    if name == "cluster_session_id" and value == NULL_VALUE:
        return False
    return name not in _QUIET and value not in (None, "", b"", ())


def _shown(name: str, value: Any) -> str:
    if name == "role":
        return Role(value).name
    shown = payload_length(value) if isinstance(value, bytes) else getattr(value, "name", None) or str(value)
    return shown if len(shown) <= SHOWN_TEXT else shown[:SHOWN_TEXT] + "…"


def in_aerons_case(name: str) -> str:
    """A name in Python's spelling as Aeron spells it."""
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)
