"""What processes say to one another in a simulated cluster, each message by name and the fields that matter.

Whoever watches sees the bytes that sockets take, and the queues between a module and its services. Nobody
who is watched knows of it: a history goes the same way with and without.
"""

from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from cluster.node.message_trace import watch_channel
from cluster.protocol import streams
from cluster.protocol.readable import in_aerons_case, messages_in, payload_text, readable_message
from cluster.service.channel import ServiceChannel
from cluster.testing.world import Process, Trace


class Happening(NamedTuple):
    """One line of what went on: a message, or what somebody did (``receiver`` is empty)."""

    time_ns: int
    sender: str
    receiver: str
    text: str
    is_cut: bool = False  # the path was cut when it was sent
    number: int = -1  # of a message, among those that were sent
    events: int = 0  # of the trace, before it

    @property
    def name(self) -> str:
        """Of a message, its type; of what somebody did, the first word."""
        return self.text.removeprefix("Log: ").partition(" ")[0]


class Wire:
    """Everything that was said, in the order of sending."""

    def __init__(self, trace: Trace) -> None:
        """``trace`` keeps all its events."""
        self._trace = trace
        self.said: list[Happening] = []
        self.heard_ns: dict[int, int] = {}  # when messages were read, by their numbers
        self._unread: dict[int, bytearray] = {}  # by pipe: bytes of a frame that is not whole
        self._unheard: dict[int, deque[tuple[int, int]]] = {}  # by pipe: where each message ends, its number
        self._sent: Counter[int] = Counter()  # by pipe: bytes of whole frames
        self._read: Counter[int] = Counter()  # by pipe: bytes

    def on_bytes(
        self, number: int, sender: Process, receiver: Process, data: bytes, time_ns: int, is_cut: bool
    ) -> None:
        """A socket has taken bytes for the pipe with this number."""
        unread = self._unread.setdefault(number, bytearray())
        unread += data
        end = 0
        for text, frame_end in messages_in(bytes(unread), payload_text):
            end = frame_end
            if text:
                ends = self._unheard.setdefault(number, deque())
                ends.append((self._sent[number] + end, len(self.said)))
                self._say(Happening(time_ns, sender.name, receiver.name, text, is_cut))
        self._sent[number] += end
        del unread[:end]

    def on_read(self, number: int, length: int, time_ns: int) -> None:
        """So many bytes of a pipe were read."""
        self._read[number] += length
        ends = self._unheard.get(number, ())
        while ends and ends[0][0] <= self._read[number]:
            self.heard_ns[ends.popleft()[1]] = time_ns

    def happenings(self) -> list[Happening]:
        """All that was said, and the events of the trace, by time and as they came about."""
        taken = [
            Happening(now_ns, who, "", what, events=i + 1)
            for i, (now_ns, who, what) in enumerate(self._trace.events)
        ]
        return sorted([*taken, *self.said], key=lambda happening: (happening.time_ns, happening.events))

    def note(self, process: Process, what: str, name: str = "") -> None:
        """Something that a process, or a part of it by this name, does."""
        self._say(Happening(process.now_ns, name or process.name, "", what))

    def _say(self, happening: Happening) -> None:
        number = len(self.said) if happening.receiver else -1
        self.said.append(happening._replace(number=number, events=len(self._trace.events)))

    def watch(self, channel: ServiceChannel, service_id: int, member: Process) -> None:
        """Note what the module of a member and its service say to each other, too."""
        service = service_name(service_id, member)

        def note(is_to_service: bool, message: bytes) -> None:
            if text := readable_message(message, streams.SERVICE, payload_text):
                ends = (member.name, service) if is_to_service else (service, member.name)
                self.heard_ns[len(self.said)] = member.now_ns
                self._say(Happening(member.now_ns, *ends, text))

        watch_channel(channel, note)

    def watch_callbacks(self, service: Any, service_id: int, member: Process) -> None:
        """Note each callback of a service when it begins."""
        name = service_name(service_id, member)

        def watched(callback: Callable[..., Any], describe: Callable[..., str]) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                text = f"{in_aerons_case(callback.__name__)} {describe(*arguments)}".rstrip()
                self.note(member, text, name)
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
    "on_session_message": lambda session, timestamp, buffer: payload_text(bytes(buffer)),
    "on_timer_event": lambda correlation_id, timestamp: f"correlationId={correlation_id}",
    "on_take_snapshot": lambda snapshot_publication: "",
    "on_role_change": lambda new_role: new_role.name,
    "on_new_leadership_term_event": lambda event: f"leadershipTermId={event.leadership_term_id}",
    "on_terminate": lambda cluster: "",
}
