"""The client's half of a supervised session: what it takes, what it says, how it stops when it is held."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from cluster.client.answer_progress import SAY_BYTES, SAY_INTERVAL_NS, AnswerProgress
from cluster.client.egress_dispatch import EgressBatch
from cluster.client.retained_egress import RETAINED_BYTES_MAX, RetainedEgress
from cluster.client.session_conductor import ClientState, SessionConductor
from cluster.client.window import UnacknowledgedWindow
from cluster.protocol.link import TakenNumber
from cluster.protocol.session import answer_id_of


def take(progress: AnswerProgress, *answer_ids: int, length: int = 10) -> list[bool]:
    fresh = progress.take(list(answer_ids), [length] * len(answer_ids))
    return [row in fresh for row in range(len(answer_ids))]


def ids(service_id: int, *numbers: int) -> list[int]:
    return [answer_id_of(service_id, number) for number in numbers]


@pytest.mark.conformance("S-187")
def test_each_answer_is_taken_once_and_in_the_order_of_its_service():
    progress = AnswerProgress()

    assert take(progress, *ids(0, 1, 2), *ids(3, 1)) == [True, True, True]
    assert take(progress, *ids(0, 1, 2, 3), *ids(3, 1, 2)) == [False, False, True, False, True]

    assert progress.numbers == (TakenNumber(3, 0), TakenNumber(2, 3))
    assert not progress.fault


@pytest.mark.parametrize(
    ("answer_id", "fault"),
    [
        (answer_id_of(2, 5), "answers 2 to 4 of service 2 are lost"),
        (0, "the leader does not number its answers: it knows no supervised sessions"),
    ],
)
def test_what_cannot_be_an_answer_of_the_session_ends_it(answer_id, fault):
    progress = AnswerProgress()

    assert take(progress, *ids(2, 1), answer_id, *ids(2, 2)) == [True, False, False]
    assert progress.fault == fault


def test_the_leader_is_told_at_once_of_much_soon_of_little_and_of_nothing_not():
    progress = AnswerProgress()
    assert progress.rest_ns(100, is_paused=False) == 0, "it sends none before it is asked"
    progress.on_said(100)
    assert progress.rest_ns(100, is_paused=False) is None

    take(progress, *ids(0, 1))
    assert progress.rest_ns(100, is_paused=False) == SAY_INTERVAL_NS
    assert progress.rest_ns(100, is_paused=True) == 0
    take(progress, *ids(0, 2), length=SAY_BYTES)
    assert progress.rest_ns(100, is_paused=False) == 0


def test_a_client_that_is_left_alone_says_soon_what_it_has_taken_and_its_sign_of_life_in_time():
    conductor = SessionConductor.__new__(SessionConductor)
    conductor.state, conductor.window = (
        ClientState.CONNECTED,
        SimpleNamespace(is_flushed=True, is_paused=False),
    )
    conductor._world = SimpleNamespace(now_ns=lambda: 100)
    conductor.last_sent_ns, conductor._keep_alive_ns = 100, 60 * SAY_INTERVAL_NS
    conductor._taken = progress = AnswerProgress()
    progress.on_said(100)
    assert conductor.rest_s() == 60 * SAY_INTERVAL_NS / 1e9

    take(progress, *ids(0, 1))
    assert conductor.rest_s() == SAY_INTERVAL_NS / 1e9


class Socket:
    """Takes so many bytes at once."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.written = b""

    def write(self, buffer: memoryview) -> int:
        taken = bytes(buffer[: self.room])
        self.written += taken
        self.room -= len(taken)
        return len(taken)

    def want_writable(self) -> None:
        pass


@pytest.mark.conformance("S-187")
def test_a_window_that_pauses_ends_its_frame_and_goes_on_from_where_the_leader_is():
    window = UnacknowledgedWindow(1, 2, 64 * 1024)
    for number in range(4):
        window.offer(b"%d" % number * 100)
    frame_length = window.position // 4
    socket = Socket(frame_length + 10)
    window.flush(socket)

    window.is_paused = True
    assert not window.is_flushed, "a frame is half written"
    socket.room = 10 * frame_length
    assert window.flush(socket) == 0
    assert window.is_flushed
    assert len(socket.written) == 2 * frame_length
    window.offer(b"late")
    window.flush(socket)
    assert len(socket.written) == 2 * frame_length

    window.rewind(1, 2)
    socket.written = b""
    window.flush(socket)
    assert socket.written.startswith(bytes(window._segments[0].view[frame_length : 2 * frame_length]))
    assert len(socket.written) == window.position - frame_length


def test_answers_of_a_supervised_session_that_nobody_asks_for_hold_up_what_comes_and_are_not_dropped():
    held = RetainedEgress(is_for_listener=False, is_supervised=True)
    long = np.zeros(RETAINED_BYTES_MAX, np.uint8)
    batch = EgressBatch(1, np.zeros(1), np.zeros(1, np.int64), np.array([len(long)]), long)

    held.hold(batch)
    assert held.is_full
    held.hold(batch)

    assert held.answers.take_batch() is not None
    assert held.answers.take_batch() is not None
    assert not held.is_full
