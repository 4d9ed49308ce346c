"""``on_session_message_compiled`` of a service: compiled for its state, and called by address.

Compiled turns call it (``member/busy/serving.py``), and Python's turns by the same words. A message that it
does not take, or that it raises for, ends the call: the agent sees that message alone.
"""

import math
from functools import cache
from typing import Any

import numpy as np
from numba import cfunc, config, from_dtype, njit, types
from numba.core.errors import NumbaError

from cluster.errors import ConfigurationError
from cluster.log.calls import PLAIN, viewer
from cluster.log.memory import BYTES, BYTES_OUT, I64
from cluster.log.message_calls import (
    ANSWER_BYTES,
    ANSWER_BYTES_LENGTH,
    ANSWER_LENGTH_MAX,
    ANSWERED,
    ANSWERS,
    ANSWERS_MAX,
    CALL_WORDS,
    LENGTHS_OF,
    NO_ANSWER,
    NUMBERS_OF,
    OFFSETS_OF,
    POSITIONS_OF,
    RAISED,
    REFUSED_POSITION,
    RETURNED,
    SESSION_IDS_OF,
    STATE,
    STATUS,
    TAKEN,
    TIMESTAMPS_OF,
    call_rows_of_batch,
    take_rows,
    words_of_call,
)
from cluster.log.message_columns import LENGTHS, NUMBERS, OFFSETS, SESSION_IDS, TIMESTAMPS, MessageColumns
from cluster.service.message_batch import SessionMessageBatch

NAME = "on_session_message_compiled"
ANSWER_ROWS = 4096
ANSWERS_LENGTH = 256 * 1024
LONGEST_ANSWER = 64 * 1024  # an answer's frame fits what compiled turns send at once
NOWHERE = -1
REPORTED_LENGTH = 300  # of what the compiler says


class CompiledCallback:
    """Calls the function for rows of a batch; ``answers`` has what the last call answered."""

    def __init__(self, service: Any) -> None:
        """The service has started: its state is there. Raises ConfigurationError that says what is wrong."""
        self._service = service
        self._name = f"{type(service).__name__}.{NAME}"
        self._function = getattr(service, NAME)
        self._length_max = service.max_answer_length
        if type(self._length_max) is not int or not 0 <= self._length_max <= LONGEST_ANSWER:
            raise ConfigurationError(
                f"{type(service).__name__}.max_answer_length is {self._length_max!r}: "
                f"expected 0 to {LONGEST_ANSWER} (bytes)"
            )
        self._state = self._checked_state()
        self._likeness = _likeness(self._state)
        self.answers = MessageColumns(ANSWER_ROWS)
        self.answers.buffer = np.zeros(max(ANSWERS_LENGTH, self._length_max), np.uint8)
        self.call = np.zeros(CALL_WORDS, np.int64)  # words, by log/message_calls.py
        self.call[STATE] = _address(self._state)
        self.call[ANSWERS], self.call[ANSWERS_MAX] = _address(self.answers.words), ANSWER_ROWS
        self.call[ANSWER_BYTES] = _address(self.answers.buffer)
        self.call[ANSWER_BYTES_LENGTH] = self.answers.buffer.size
        self.call[ANSWER_LENGTH_MAX] = self._length_max
        self.call[REFUSED_POSITION] = NOWHERE
        kind = self._state.dtype, self._state.shape
        self.address, self._compiled = _compile(self._function, self._name, *kind)

    def _checked_state(self) -> np.ndarray:
        state = getattr(self._service, "state", None)
        if not isinstance(state, np.ndarray):
            what = f"a {type(state).__name__}"
        elif state.ndim == 0 or not (state.flags.c_contiguous and state.flags.writeable):
            what = "an array that is not writable, not contiguous, or without a dimension"
        elif state.dtype.hasobject:
            what = f"an array of Python objects, {state.dtype}"
        else:
            return state
        raise ConfigurationError(
            f"{type(self._service).__name__}.state is {what} after on_start: "
            f"{NAME} takes a numpy array, of numbers or of a structured dtype, in C order"
        )

    def is_in_place(self) -> bool:
        """Take the state where it is now; False when it is no more of the kind that was compiled for."""
        state = getattr(self._service, "state", None)
        if state is self._state:
            return True
        if not isinstance(state, np.ndarray) or _likeness(state) != self._likeness:
            return False
        self._state = state
        self.call[STATE] = _address(state)
        return True

    def take(self, batch: SessionMessageBatch, numbers: np.ndarray, row: int) -> int:
        """Give it the rows from ``row`` on; returns the end of those that it took, with ``answers`` to them.

        ``numbers`` are those of the batch's messages in their sessions. ``is_refused`` says that it did not
        take the one behind them, which may have been in a compiled turn. Raises ValueError for a state that
        is not what it was.
        """
        call = self.call
        if call[REFUSED_POSITION] == batch.positions[row]:
            return row
        if not self.is_in_place():
            raise ValueError(
                f"{type(self._service).__name__}.state is not of the dtype and shape any more that it had "
                "after on_start"
            )
        for word, column in (
            (SESSION_IDS_OF, batch.session_ids),
            (TIMESTAMPS_OF, batch.timestamps),
            (POSITIONS_OF, batch.positions),
            (OFFSETS_OF, batch.offsets),
            (LENGTHS_OF, batch.lengths),
            (NUMBERS_OF, numbers),
        ):
            call[word] = _address(column)
        taken = call_rows_of_batch(self.address, call, batch.buffer, row, len(batch))
        self.answers.count = int(call[ANSWERED])
        return int(taken)

    @property
    def is_refused(self) -> bool:
        return bool(self.call[STATUS] != TAKEN)

    def returned_for(self, message: SessionMessageBatch, number: int) -> int:
        """What came of the one message that was refused: NOT_TAKEN, or as in ``take``.

        Where the function raised, it is called once more, as Python. Raises what that raises, and ValueError
        for what is no length of an answer.
        """
        call = self.call
        status, returned = int(call[STATUS]), int(call[RETURNED])
        call[STATUS], call[REFUSED_POSITION] = TAKEN, NOWHERE
        answer = self.answers.buffer[: self._length_max]
        if status == RAISED:
            answer[:] = 0
            payload = message.buffer[message.offsets[0] :][: message.lengths[0]]
            payload.flags.writeable = False
            returned = getattr(self._function, "py_func", self._function)(
                self._state,
                int(message.session_ids[0]),
                int(message.timestamps[0]),
                int(message.positions[0]),
                payload,
                answer,
            )
        if not isinstance(returned, int | np.integer) or not -2 <= returned <= self._length_max:
            raise ValueError(
                f"{self._name} returned {returned}: expected the length of an answer, 0 to "
                f"{self._length_max} (max_answer_length), NO_ANSWER or NOT_TAKEN"
            )
        self.answers.count = int(returned > NO_ANSWER)
        words, rows = self.answers.words, self.answers.rows
        for column, value in (
            (SESSION_IDS, message.session_ids[0]),
            (TIMESTAMPS, message.timestamps[0]),
            (OFFSETS, 0),
            (LENGTHS, returned),
            (NUMBERS, number),
        ):
            words[column * rows] = value
        return int(returned)


@cache
def _compile(function: Any, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> tuple[int, object]:
    """The loop over rows with the function in it: its address, and what keeps it for all lives."""
    is_plain = config.DISABLE_JIT  # type: ignore[attr-defined]
    view = viewer(dtype, types.Array(from_dtype(dtype), 1, "C"))
    size = math.prod(shape)
    if not is_plain:
        try:
            function = _compile_function(function, name, types.Array(from_dtype(dtype), len(shape), "C"))
        except NumbaError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise ConfigurationError(
                f"{name} does not compile: {' '.join(lines)[:REPORTED_LENGTH]}"
            ) from error

    def rows(address):  # type: ignore[no-untyped-def]
        call = words_of_call(address)
        return take_rows(function, view(call[STATE], size).reshape(shape), call)

    if is_plain:
        PLAIN[id(rows)] = rows
        return id(rows), rows
    compiled = cfunc(I64(I64))(rows)
    assert compiled.address is not None
    return compiled.address, compiled


def _compile_function(function: Any, name: str, state_type: types.Array) -> Any:
    """The function alone, so that what is wrong with it is reported of it."""
    if not hasattr(function, "py_func"):
        function = njit(boundscheck=True)(function)
    function.compile((state_type, I64, I64, I64, BYTES, BYTES_OUT))
    returned = function.nopython_signatures[0].return_type
    if not isinstance(returned, types.Integer):
        raise ConfigurationError(
            f"{name} returns {returned}: expected an integer on every way out of it, "
            "the length of the answer, NO_ANSWER or NOT_TAKEN"
        )
    return function


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def _likeness(state: np.ndarray) -> tuple[object, ...]:
    """What the function is compiled for."""
    return state.dtype, state.shape, state.flags.c_contiguous, state.flags.writeable
