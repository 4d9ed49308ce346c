"""A callback in compiled code: what it takes, what Python takes, and what is said of one that is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import config, njit

from cluster import NO_ANSWER, NOT_TAKEN, AgentTermination, ClusteredService
from cluster.log.message_columns import NUMBERS
from cluster.protocol.link import ServiceFailed
from cluster.protocol.service import ScheduleTimer
from cluster.service.compiled_callback import CompiledCallback
from cluster.service.service_loader import _wrong_method
from tests.service.compiled_services import Counter
from tests.service.harness import Container, a_follower, a_leader, errors_of

PAYLOADS = [b"a1", b"b", b"?", b"_", b"a2", b"", b"!", b"a3", b">", b"-", b"b4", b"?"]


def counted(count: int, rest: bytes = b"") -> bytes:
    return count.to_bytes(8, "little") + rest


def given(service: Any, payloads: list[bytes], **settings: Any) -> Container:
    """A leader whose session 1 has sent these messages, each at a time of its own."""
    container = a_leader(service, **settings)
    container.log.opened(1)
    for row, payload in enumerate(payloads):
        container.log.message(1, payload, timestamp=100 + row)
    return container


def test_each_message_has_its_answer_in_the_order_of_the_log_whoever_takes_it():
    container = given(service := Counter(), [b"a1", b"b", b"?", b"_", b"a2", b"?"]).commit()

    assert container.answers() == [
        (1, 100, counted(1, b"1")),
        (1, 101, counted(1)),
        (1, 102, b"3 in all"),
        (1, 104, counted(2, b"2")),
        (1, 105, b"6 in all"),
    ]
    assert service.state[list(b"ab?_")].tolist() == [2, 1, 2, 1]
    assert [message.deadline for message in container.sent if isinstance(message, ScheduleTimer)] == [
        103,
        106,
    ]


@pytest.mark.parametrize("fragment_limit", [1, 2, 3, 7, 100])
def test_state_answers_and_errors_do_not_depend_on_how_the_log_is_cut(fragment_limit):
    container = given(service := Counter(), PAYLOADS, log_fragment_limit=fragment_limit)
    errors = errors_of(container)

    assert [str(error.__cause__) for error in errors] == [
        "it was told to",
        "Counter.on_session_message_compiled returned 41: expected the length of an answer, 0 to 40 "
        "(max_answer_length), NO_ANSWER or NOT_TAKEN",
        "Counter.on_session_message_compiled returned -7: expected the length of an answer, 0 to 40 "
        "(max_answer_length), NO_ANSWER or NOT_TAKEN",
    ]
    assert service.state[list(b"ab?_!>-")].tolist() == [3, 2, 3, 1, 2, 1, 1]
    assert [payload for _, _, payload in container.answers()] == [
        counted(1, b"1"),
        counted(1),
        b"3 in all",
        counted(2, b"2"),
        b"6 in all",
        counted(3, b"3"),
        counted(2, b"4"),
        b"13 in all",
    ]


def test_an_error_has_the_line_that_raised_and_is_told_to_the_client_whose_message_it_was():
    container = given(Counter(), [b"a", b"!"])
    (error,) = errors_of(container)

    assert isinstance(error.__cause__, ValueError)
    assert error.callback == "on_session_message_compiled"
    assert "compiled_services.py:" in str(error)
    (failed,) = (message for message in container.sent if isinstance(message, ServiceFailed))
    assert failed.cluster_session_id == 1
    assert "raised ValueError in on_session_message_compiled" in failed.detail


def test_a_follower_has_the_state_and_answers_nobody():
    container = a_follower(service := Counter())
    container.log.opened(1)
    container.log.message(1, b"a")
    container.commit()

    assert service.state[ord("a")] == 1
    assert container.answers() == []


def test_the_message_of_a_service_has_a_negative_session():
    container = given(service := Counter(), [])
    container.log.message(-1, b"a")
    container.commit()

    assert service.state[list(b"a?")].tolist() == [0, 1], "not taken: Python had it"


class Half(Counter):
    """Writes one byte of an answer, and answers with more; or what the message says, or too much."""

    max_answer_length = 64 * 1024

    @staticmethod
    def on_session_message_compiled(state, session_id, timestamp, position, payload, answer):
        if payload.size == 2:
            return int(payload[0]) - 48
        state[0] += 1
        if payload.size == 1:
            answer[:] = payload[0]
        return answer.size + (payload.size > 2)


def test_answers_that_fill_their_buffer_all_come_and_have_nothing_of_each_other():
    container = given(Half(), [b"1.", *[b"x", b"", b"y"] * 5], max_message_length=1 << 20).commit()

    answers = [payload for _, _, payload in container.answers()]
    assert answers[0] == b"\0" and answers[1:] == [b"x" * 65_536, bytes(65_536), b"y" * 65_536] * 5


def test_an_answer_may_be_empty_and_what_was_refused_is_not_called_again(monkeypatch):
    again, numbers, returned_for, take = [], [], CompiledCallback.returned_for, CompiledCallback.take

    def asked_again(compiled, message, number):
        again.append(take(compiled, message, np.zeros(1, np.int64), 0))
        return returned_for(compiled, message, number)

    def noted(compiled, *given):
        end = take(compiled, *given)
        numbers.extend(compiled.answers.words[NUMBERS * compiled.answers.rows :][: compiled.answers.count])
        return end

    monkeypatch.setattr(CompiledCallback, "returned_for", asked_again)
    monkeypatch.setattr(CompiledCallback, "take", noted)
    container = given(service := Half(), [b"/.", b"0.", b"too much"], max_message_length=1 << 20)
    assert len(errors_of(container)) == 1

    assert container.answers() == [(1, 101, b"")] and numbers == [2], "the first has none"
    assert again == [0] and service.state[0] == 1, "as where a compiled turn was the first"


def test_a_state_that_is_replaced_is_taken_and_one_of_another_shape_is_an_error():
    container = given(service := Counter(), [b"a"]).commit()
    service.state = np.full_like(service.state, 10)
    container.log.message(1, b"a")
    container.commit()
    assert container.answers()[-1][2] == counted(11)

    service.state = np.zeros(3, np.int64)
    container.log.message(1, b"a")
    (error,) = errors_of(container)
    assert "Counter.state is not of the dtype and shape any more" in str(error)


class Book(ClusteredService):
    """A structured state of two dimensions, and a function that is compiled already."""

    max_answer_length = 0

    def __init__(self) -> None:
        self.state = np.zeros((2, 3), [("bids", "<i4"), ("last", "<f8")])

    @staticmethod
    @njit
    def on_session_message_compiled(state, session_id, timestamp, position, payload, answer):
        level = state[payload[0] & 1, payload[1] % 3]
        level["bids"] += 1
        level["last"] = timestamp / 2
        return NO_ANSWER


def test_a_state_may_be_a_structured_array_of_more_than_one_dimension():
    container = given(service := Book(), [b"1\x02", b"0\x01", b"1\x02"]).commit()

    assert service.state["bids"].tolist() == [[0, 1, 0], [0, 0, 2]]
    assert service.state["last"][1, 2] == 51.0
    assert container.answers() == []


def start_failure(**parts: Any) -> str:
    """What a service says that differs from ``Counter`` in these attributes, when it cannot start."""
    container = Container(type("Wrong", (Counter,), parts)())
    with pytest.raises(AgentTermination) as raised:
        container.start()
    return str(raised.value)


@pytest.mark.parametrize(
    ("state", "what"),
    [
        (None, "a NoneType"),
        ([1, 2], "a list"),
        (np.zeros(4)[::2], "an array that is not writable, not contiguous"),
        (np.zeros((), np.int64), "without a dimension"),
        (np.zeros(2, object), "an array of Python objects"),
    ],
)
def test_a_state_that_cannot_be_taken_is_said_at_the_start(state, what):
    told = start_failure(__init__=lambda self: setattr(self, "state", state))
    assert told.startswith("service 0 failed to start: Wrong.state is ")
    assert what in told


@pytest.mark.parametrize("length", [-1, 65_537, 1.5, None])
def test_a_length_of_answers_that_cannot_be_is_said_at_the_start(length):
    told = start_failure(max_answer_length=length)
    assert told.endswith(f"Wrong.max_answer_length is {length!r}: expected 0 to 65536 (bytes)")


def _half(state, session_id, timestamp, position, payload, answer):
    return 0.5


def _nothing_now_and_then(state, session_id, timestamp, position, payload, answer):
    if position > 99:
        return 1
    return None


def _a_dictionary_of_anything(state, session_id, timestamp, position, payload, answer):
    return {1: "a", "b": payload}["b"]


def _into_the_log(state, session_id, timestamp, position, payload, answer):
    payload[0] = 1
    return NOT_TAKEN


if not config.DISABLE_JIT:  # else nothing is compiled

    @pytest.mark.parametrize(
        ("function", "what"),
        [
            (_half, "returns float64: expected an integer on every way out of it"),
            (_nothing_now_and_then, "returns OptionalType(int64): expected an integer"),
            (_a_dictionary_of_anything, "does not compile: "),
            (_into_the_log, "does not compile: "),
        ],
    )
    def test_a_function_that_cannot_be_taken_is_said_at_the_start_in_one_line(function, what):
        told = start_failure(on_session_message_compiled=staticmethod(function))
        assert f"service 0 failed to start: Wrong.on_session_message_compiled {what}" in told
        assert len(told.splitlines()) == 1


def test_an_index_outside_of_the_state_is_an_error_of_that_message():
    class Outside(Counter):
        @staticmethod
        def on_session_message_compiled(state, session_id, timestamp, position, payload, answer):
            state[1000 * (int(payload[0]) - 97)] += 1
            return NO_ANSWER

    container = given(service := Outside(), [b"a", b"b", b"a"])
    (error,) = errors_of(container)
    assert isinstance(error.__cause__, IndexError)
    assert service.state[0] == 2


def test_a_callback_that_is_no_static_method_is_refused_when_it_is_loaded():
    def method(self, state, session_id, timestamp, position, payload, answer): ...

    assert _wrong_method(Counter(), "on_session_message_compiled") == ""
    assert _wrong_method(Book(), "on_session_message_compiled") == ""
    wrong = _wrong_method(
        type("Wrong", (Counter,), {"on_session_message_compiled": staticmethod(method)})(),
        "on_session_message_compiled",
    )
    assert wrong.startswith(
        "is called with (state, session_id, timestamp, position, payload, answer): missing"
    )
