"""What those who follow a log share: where they are, and how much is read for one message."""

from collections.abc import Callable

import numpy as np
import pytest

from cluster.archive.log_cursor import LogCursor
from cluster.errors import LogDamaged
from cluster.log.session_table import SessionTable
from cluster.member.log.adapter import LogAdapter
from cluster.protocol.frame import FLAG_BEGIN, FLAG_END, frame
from cluster.service.bounded_log_adapter import BoundedLogAdapter

FRAME_LENGTH = 1408


def fragment(flags: int) -> bytes:
    return frame(bytes(FRAME_LENGTH - 32), session_id=1, stream_id=100, flags=flags)


class Log:
    """A log of the bytes that it is given, without an end where they repeat."""

    def __init__(self, head: bytes, repeated: bytes = b"") -> None:
        self._head = head
        self._repeated = repeated

    def read(self, position: int, max_length: int, out: np.ndarray | None = None) -> np.ndarray:
        times = -(-(position + max_length) // len(self._repeated)) if self._repeated else 0
        return np.frombuffer(
            (self._head + self._repeated * times)[position : position + max_length], np.uint8
        )


class Service:
    is_reading = True

    def on_messages(self, batch: object) -> None:
        raise AssertionError("nothing is whole")

    def on_entry(self, message: object, position: int) -> None:
        raise AssertionError("nothing is whole")


class Module:
    def on_log_message(self, message: bytes, log_position: int) -> bool:
        raise AssertionError("nothing is whole")


Follower = tuple[Callable[[int], int], Callable[[], int]]


def a_member(log: Log) -> Follower:
    adapter = LogAdapter(Module(), SessionTable())
    return lambda limit: adapter.poll(log, limit), lambda: adapter.position


def a_service(log: Log) -> Follower:
    adapter = BoundedLogAdapter(Service(), 16, FRAME_LENGTH, 64 * 1024)
    adapter.join(log, 1 << 62)
    return adapter.poll, lambda: adapter.position


@pytest.mark.parametrize("a_follower", [a_member, a_service])
def test_a_message_without_an_end_is_damage_and_not_read_for_ever(
    a_follower: Callable[[Log], Follower],
) -> None:
    poll, position = a_follower(Log(fragment(FLAG_BEGIN), fragment(0)))
    with pytest.raises(LogDamaged, match="position 0: a message without an end"):
        for _ in range(10):
            poll(1 << 40)
    assert position() == 0


@pytest.mark.parametrize("a_follower", [a_member, a_service])
def test_the_position_does_not_move_back_while_a_message_is_not_whole(
    a_follower: Callable[[Log], Follower],
) -> None:
    poll, position = a_follower(Log(fragment(FLAG_BEGIN) + 3 * fragment(0) + fragment(FLAG_END)))
    seen = [0]
    for frames in (1, 2, 2, 4, 4, 4):
        poll(frames * FRAME_LENGTH)
        seen.append(position())
    assert seen == sorted(seen)
    assert seen[-1] == 4 * FRAME_LENGTH


def test_a_chunk_grows_until_a_message_fits() -> None:
    cursor = LogCursor(64, message_length_max=128)
    log = Log(bytes(1024))
    lengths = []
    with pytest.raises(LogDamaged):
        while True:
            begin, data = cursor.read(log, 1024)
            lengths.append(len(data))
            cursor.end_chunk(begin, begin, begin + len(data), 1024)
    assert lengths == [64, 128, 256, 512]
