"""What processes say to one another in a simulated cluster, each message by its name and its telling fields.

Whoever watches sees the bytes that sockets take, and the queues between a module and its services. Nobody
who is watched knows of it: a history goes the same way with and without.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

from cluster.protocol import NULL_VALUE, decode, streams
from cluster.protocol.enums import Role
from cluster.protocol.frame import HEADER_LENGTH, TYPE_DATA, align, header_at
from cluster.protocol.sbe import HEADER_LENGTH as MESSAGE_HEADER_LENGTH
from cluster.protocol.sbe import Message
from cluster.protocol.session import SessionMessageHeader
from cluster.service.channel import ServiceChannel
from cluster.testing.world import Process

SHOWN_PAYLOAD = 40  # bytes
SHOWN_TEXT = 80  # characters of a field

# Fields that say nothing of what goes on.
_QUIET = {
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
_TIMERS = frozenset(("TimerEvent", "ScheduleTimer", "CancelTimer"))  # a timer's correlation id is its name


class Happening(NamedTuple):
    """One line of what went on: a message, or what somebody did (``receiver`` is empty)."""

    time_ns: int
    sender: str
    receiver: str
    text: str
    is_held: bool = False  # the path was cut when it was sent

    @property
    def name(self) -> str:
        """Of a message, its type; of what somebody did, the first word."""
        return self.text.removeprefix("Log: ").partition(" ")[0]


class Wire:
    """Everything that was said, in the order of sending."""

    def __init__(self) -> None:
        self.said: list[Happening] = []
        self._unread: dict[int, bytearray] = {}  # by pipe: bytes of a frame that is not whole

    def on_bytes(
        self, number: int, sender: Process, receiver: Process, data: bytes, time_ns: int, is_held: bool
    ) -> None:
        """A socket has taken bytes for the pipe with this number."""
        unread = self._unread.setdefault(number, bytearray())
        unread += data
        start = 0
        while start + HEADER_LENGTH <= len(unread):
            header = header_at(unread, start)
            if header.stream_id == streams.ENVELOPE:  # its content is frames, too
                start += HEADER_LENGTH
                continue
            end = start + align(header.frame_length)
            if end > len(unread):
                break
            if header.type == TYPE_DATA:
                frame = bytes(unread[start + HEADER_LENGTH : start + header.frame_length])
                if text := _readable(frame, header.stream_id):
                    self.said.append(Happening(time_ns, sender.name, receiver.name, text, is_held))
            start = end
        del unread[:start]

    def watch(self, channel: ServiceChannel, service_id: int, member: Process) -> None:
        """Note what the module of a member and its service say to each other, too."""
        service = service_name(service_id, member)
        send, join, offer = channel.send_to_service, channel.join_log, channel.offer_to_consensus_module

        def note(sender: str, receiver: str, message: bytes) -> None:
            if text := _readable(message, streams.SERVICE):
                self.said.append(Happening(member.now_ns, sender, receiver, text))

        def send_to_service(message: bytes) -> None:
            note(member.name, service, message)
            send(message)

        def join_log(message: bytes, log: Any) -> None:
            note(member.name, service, message)
            join(message, log)

        def offer_to_consensus_module(message: bytes, log_position: int = 0) -> bool:
            note(service, member.name, message)
            return offer(message, log_position)

        watched: Any = channel  # these three are its alone
        watched.send_to_service = send_to_service
        watched.join_log = join_log
        watched.offer_to_consensus_module = offer_to_consensus_module

    def watch_callbacks(self, service: Any, service_id: int, member: Process) -> None:
        """Note each callback of a service when it begins."""
        name = service_name(service_id, member)

        def watched(callback: Callable[..., Any], describe: Callable[..., str]) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                text = f"{_in_aerons_case(callback.__name__)} {describe(*arguments)}".rstrip()
                self.said.append(Happening(member.now_ns, name, "", text))
                return callback(*arguments)

            return call

        for callback_name, describe in _CALLBACKS.items():
            if callback := getattr(service, callback_name, None):
                setattr(service, callback_name, watched(callback, describe))


def service_name(service_id: int, member: Process) -> str:
    """How a member's service is called."""
    return f"service {service_id} of {member.name}"


_CALLBACKS: dict[str, Callable[..., str]] = {
    "on_start": lambda cluster, snapshot_image: "" if snapshot_image is None else "from a snapshot",
    "on_session_open": lambda session, timestamp: f"clusterSessionId={session.id}",
    "on_session_close": lambda session, timestamp, reason: f"clusterSessionId={session.id} {reason.name}",
    "on_session_message": lambda session, timestamp, buffer: _payload(bytes(buffer)),
    "on_timer_event": lambda correlation_id, timestamp: f"correlationId={correlation_id}",
    "on_take_snapshot": lambda snapshot_publication: "",
    "on_role_change": lambda new_role: new_role.name,
    "on_new_leadership_term_event": lambda event: f"leadershipTermId={event.leadership_term_id}",
    "on_terminate": lambda cluster: "",
}


def _payload(payload: bytes) -> str:
    return repr(payload[:SHOWN_PAYLOAD])[1:]


def _readable(data: bytes, stream_id: int) -> str:
    """A message by its name with its telling fields; empty for what is none."""
    message = decode(data) if len(data) >= MESSAGE_HEADER_LENGTH else None
    if message is None:
        return ""
    told = [(name, value) for name, value in message.as_dict().items() if _tells(message, name, value)]
    told.sort(key=lambda field: field[0] != "vote" and not isinstance(field[1], IntEnum))  # decisions first
    fields = (f"{_in_aerons_case(name)}={_shown(name, value)}" for name, value in told)
    words = [type(message).__name__, *fields]
    if isinstance(message, SessionMessageHeader):
        words.append(_payload(data[SessionMessageHeader.ENCODED_LENGTH :]))
    return ("Log: " if stream_id == streams.LOG else "") + " ".join(words)


def _tells(message: Message, name: str, value: Any) -> bool:
    if name == "correlation_id" and type(message).__name__ in _TIMERS:
        return True
    if name == "cluster_session_id" and value == NULL_VALUE:
        return False
    return name not in _QUIET and value not in (None, "", b"", ())


def _shown(name: str, value: Any) -> str:
    if name == "role":
        return Role(value).name
    shown = getattr(value, "name", None) or str(value)
    return shown if len(shown) <= SHOWN_TEXT else shown[:SHOWN_TEXT] + "…"


def _in_aerons_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)
