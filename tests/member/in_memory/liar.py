"""A peer that says anything at all: every message between members, each field at values that nobody means."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from random import Random

from cluster.errors import LocalProtocolError
from cluster.protocol import streams
from cluster.protocol.frame import FRAME_ALIGNMENT, TERM_LENGTH_MIN, frame
from cluster.protocol.sbe import Message
from tests.member.in_memory.member import SimulatedMember
from tests.simulation.byzantine import UNKNOWN_MEMBER_ID, as_it_should_be

VALUES = (0, -1, 1, 31, 32, 2**31 - 1, 2**31, 2**62, 2**63 - 1, -(2**63))


def with_each_field_changed(message: Message, own_id: int) -> Iterator[Message]:
    """The message as it is, and with one field at each value that the field can hold."""
    yield message
    for field in type(message).layout().fields:
        right = getattr(message, field.name)
        values = {*VALUES, own_id, UNKNOWN_MEMBER_ID}
        if "position" in field.name:
            values |= {right - FRAME_ALIGNMENT, right + FRAME_ALIGNMENT}
        for value in sorted(values - {right}):
            if _fits(type(message), field.name, value):
                yield message.replace(**{field.name: value})


@cache
def _fits(kind: type[Message], name: str, value: int) -> bool:
    """Whether the field is wide enough for the value."""
    layout = kind.layout()
    values: dict[str, object] = {field.name: 0 for field in layout.fields}
    for part in layout.tail:
        values[part.name] = () if part.element is not None else "" if part.text else b""
    try:
        kind(**(values | {name: value})).encode()
    except LocalProtocolError:
        return False
    return True


def lies(
    kind: type[Message], victim: SimulatedMember, peer: SimulatedMember, random: Random
) -> list[Message]:
    """All that the peer can say with this kind of message, in the random's order."""
    said = list(with_each_field_changed(as_it_should_be(kind, victim, peer), victim.member_id))
    random.shuffle(said)
    return said


def lies_of_log(victim: SimulatedMember) -> Iterator[bytes]:
    """Frames of a log that is not the one that the victim has, each wrong in one thing."""
    recording = victim.recording
    position = 0 if recording is None else recording.append_position
    session_id = 0 if recording is None else recording.session_id
    right = {
        "session_id": session_id,
        "stream_id": streams.LOG,
        "term_id": position // TERM_LENGTH_MIN,
        "term_offset": position % TERM_LENGTH_MIN,
    }
    for name in right:
        for value in VALUES:
            if name != "stream_id" and value != right[name] and -(2**31) <= value < 2**31:
                yield frame(b"anything", **(right | {name: value}))


def tell(victim: SimulatedMember, peer: SimulatedMember, frames: bytes) -> bool:
    """Have the victim read this from the peer's link in its next turn; False while there is no link."""
    return victim.links is not None and victim.links.hear(peer.member_id, frames)
