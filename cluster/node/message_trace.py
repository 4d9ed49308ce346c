"""What a member, its clients, the other members and its services say to each other, as lines of ``node.log``.

They are written while the log's level is debug: by ``log_level``, or from SIGUSR1 on. Only then the member's
media pass through here, and Python takes all turns. Payloads and credentials are not written.
"""

from collections.abc import Callable
from typing import Any

from cluster.node.life import MemberLife
from cluster.node.node_log import NodeLog
from cluster.protocol import streams
from cluster.protocol.readable import messages_in, payload_length, readable_message
from cluster.service.channel import ServiceChannel
from cluster.transport.bounds import SECOND_NS

WRITTEN_PER_SECOND_MAX = 1_000  # messages


class MessageTrace:
    """Writes the messages of one life after the other, while ``life`` is not None."""

    def __init__(self, log: NodeLog, member_id: int, clock_ns: Callable[[], int]) -> None:
        self.life: MemberLife | None = None
        self._log = log
        self._member = f"member {member_id}"
        self._clock_ns = clock_ns
        self._second_ns = clock_ns()  # when the present second began
        self._written = 0  # in that second
        self._left_out = 0  # bytes

    def follow(self, life: MemberLife) -> None:
        """Watch this life, or none while the log does not want it."""
        wanted = life if self._log.is_debugging else None
        if wanted is self.life:
            return
        if self.life is not None:
            self._watch_media(self.life, is_watched=False)
        self.life = wanted
        if wanted is not None:
            self._watch_media(wanted, is_watched=True)

    def _watch_media(self, life: MemberLife, *, is_watched: bool) -> None:
        for media, kind in ((life.links, "member"), (life.clients, "client")):
            if is_watched:
                self._watch(media, kind)
            else:
                _let_go(media, "send", "poll")
        for service in life.services:
            if is_watched:
                self._watch_service(service.channel, service.name)
            else:
                unwatch_channel(service.channel)

    def _watch(self, media: Any, kind: str) -> None:
        send, poll = media.send, media.poll

        def watched_send(peer: int, *buffers: Any) -> int:
            if self._has_room(sum(memoryview(buffer).nbytes for buffer in buffers)):
                self._note(self._member, f"{kind} {peer}", b"".join(map(bytes, buffers)))
            result: int = send(peer, *buffers)
            return result

        heard = _Heard(lambda peer, frames: self._note(f"{kind} {peer}", self._member, frames))

        def watched_poll(handler: Any) -> int:
            heard.handler = handler
            work: int = poll(heard)
            return work

        media.send, media.poll = watched_send, watched_poll

    def _watch_service(self, channel: ServiceChannel, name: str) -> None:
        def note(is_to_service: bool, message: bytes) -> None:
            ends = (self._member, name) if is_to_service else (name, self._member)
            if self._has_room(len(message)):
                self._write(*ends, readable_message(message, streams.SERVICE, payload_length))

        watch_channel(channel, note)

    def _note(self, sender: str, receiver: str, frames: bytes) -> None:
        begin = 0
        for text, end in messages_in(frames, payload_length):
            if not self._has_room(len(frames) - begin):
                return
            self._write(sender, receiver, text)
            begin = end

    def _has_room(self, length: int) -> bool:
        """Whether one more may be written in this second; else so many bytes are not."""
        now_ns = self._clock_ns()
        if now_ns - self._second_ns >= SECOND_NS:
            if self._left_out:
                self._log.debug("messages were left out", bytes=self._left_out, most=WRITTEN_PER_SECOND_MAX)
            self._second_ns, self._written, self._left_out = now_ns, 0, 0
        if self._written < WRITTEN_PER_SECOND_MAX:
            return True
        self._left_out += length
        return False

    def _write(self, sender: str, receiver: str, text: str) -> None:
        if text:
            self._written += 1
            self._log.debug(text, **{"from": sender, "to": receiver})


class _Heard:
    """A handler of links or clients; what comes is noted once, however often it is offered to it."""

    def __init__(self, note: Callable[[int, bytes], None]) -> None:
        self.handler: Any = None
        self._note = note
        self._noted: dict[int, int] = {}  # bytes that a client's handler has not taken, by connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self.handler, name)

    def on_frames(self, peer: int, buffer: Any, start: int, end: int) -> int | None:
        self._note(peer, bytes(buffer[start + self._noted.pop(peer, 0) : end]))
        taken: int | None = self.handler.on_frames(peer, buffer, start, end)
        if taken is not None and taken < end:
            self._noted[peer] = end - taken
        return taken

    def on_disconnect(self, peer: int) -> None:
        self._noted.pop(peer, None)
        self.handler.on_disconnect(peer)


def watch_channel(channel: ServiceChannel, note: Callable[[bool, bytes], None]) -> None:
    """Have all messages between a module and its service noted: whether to the service, and the bytes."""
    send, join, offer = channel.send_to_service, channel.join_log, channel.offer_to_consensus_module

    def send_to_service(message: bytes) -> None:
        note(True, message)
        send(message)

    def join_log(message: bytes, log: Any) -> None:
        note(True, message)
        join(message, log)

    def offer_to_consensus_module(message: bytes, log_position: int = 0) -> bool:
        note(False, message)
        return offer(message, log_position)

    watched: Any = channel  # these three are its alone
    watched.send_to_service = send_to_service
    watched.join_log = join_log
    watched.offer_to_consensus_module = offer_to_consensus_module


def unwatch_channel(channel: ServiceChannel) -> None:
    """Undo ``watch_channel``."""
    _let_go(channel, "send_to_service", "join_log", "offer_to_consensus_module")


def _let_go(watched: object, *names: str) -> None:
    for name in names:
        delattr(watched, name)
