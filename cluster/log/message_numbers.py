"""The number of each message in its session: how many of the session a service has been given, and this one.

Members agree on it, because it follows from the log. A service's answer has it in its frame, so that a client
knows which of its messages is answered. Answers to supervised sessions are numbered likewise: their ids.
"""

import numpy as np
from numba import types

from cluster.log.kernel import kernel, routine
from cluster.log.memory import I64, WORDS, WORDS_OUT
from cluster.log.session_table import ANSWERED, APPENDED, SUPERVISED, SessionTable, find_slot
from cluster.protocol.sbe import NULL_VALUE
from cluster.protocol.session import ANSWER_NUMBER_BITS

SESSIONS_AT_FIRST = 64


@routine
def number_messages(table, session_ids, numbers):  # type: ignore[no-untyped-def]
    """Count the messages, and give each its number; 0 in a session whose messages are not counted."""
    slot = -1
    for row in range(session_ids.size):
        if row == 0 or session_ids[row] != session_ids[row - 1]:
            slot = find_slot(table, session_ids[row])
        if slot >= 0 and table[slot + APPENDED] != NULL_VALUE:
            table[slot + APPENDED] += 1
            numbers[row] = table[slot + APPENDED]
        else:
            numbers[row] = 0


@routine
def take_back_messages(table, session_ids):  # type: ignore[no-untyped-def]
    """Count them no more: the service was not given them."""
    for row in range(session_ids.size):
        slot = find_slot(table, session_ids[row])
        if slot >= 0 and table[slot + APPENDED] != NULL_VALUE:
            table[slot + APPENDED] -= 1


@kernel(types.void(WORDS_OUT, WORDS, WORDS_OUT))
def _number(table, session_ids, numbers):  # type: ignore[no-untyped-def]
    number_messages(table, session_ids, numbers)


@kernel(types.void(WORDS_OUT, WORDS))
def _take_back(table, session_ids):  # type: ignore[no-untyped-def]
    take_back_messages(table, session_ids)


@kernel(types.void(WORDS_OUT, WORDS, I64, WORDS_OUT))
def number_answers(table, session_ids, service_id, answer_ids):  # type: ignore[no-untyped-def]
    """Count the answers to supervised sessions, and give each its id; 0 to others."""
    slot = -1
    for row in range(session_ids.size):
        if row == 0 or session_ids[row] != session_ids[row - 1]:
            slot = find_slot(table, session_ids[row])
        answer_ids[row] = 0
        if slot >= 0 and table[slot + SUPERVISED] != 0:
            table[slot + ANSWERED] += 1
            answer_ids[row] = service_id << ANSWER_NUMBER_BITS | table[slot + ANSWERED]


@routine
def take_back_answers(table, session_ids, answer_ids):  # type: ignore[no-untyped-def]
    """Count them no more: they are not given."""
    for row in range(session_ids.size):
        if answer_ids[row] != 0:
            table[find_slot(table, session_ids[row]) + ANSWERED] -= 1


@kernel(types.void(WORDS_OUT, WORDS, I64, WORDS_OUT))
def _next_answer_ids(table, session_ids, service_id, answer_ids):  # type: ignore[no-untyped-def]
    number_answers(table, session_ids, service_id, answer_ids)
    take_back_answers(table, session_ids, answer_ids)


class MessageNumbers:
    """Counts the messages of each open session for one service, and its answers to supervised ones.

    ``words`` is for kernels, and another array after an ``open``.
    """

    def __init__(self) -> None:
        self._table = SessionTable(SESSIONS_AT_FIRST)

    @property
    def words(self) -> np.ndarray:
        return self._table.words

    def open(
        self, session_id: int, count: int | None = 0, *, is_supervised: bool = False, answered: int = 0
    ) -> None:
        """Count from here on; the service has been given ``count`` messages of the session already.

        None: that is not known, and none is counted. ``answered``: so many answers has it given.
        """
        if len(self._table) == self._table.max_sessions:
            self._grow()
        slot = self._table.slots[self._table.open(session_id, is_supervised=is_supervised)]
        slot["appended"], slot["answered"] = NULL_VALUE if count is None else count, answered

    def _grow(self) -> None:
        before, self._table = self._table, SessionTable(2 * self._table.max_sessions)
        for slot in before.slots:
            session = self._table.slots[self._table.open(int(slot["cluster_session_id"]))]
            for name in ("appended", "answered", "supervised"):
                session[name] = slot[name]

    def close(self, session_id: int) -> None:
        """Forget the session, if it is open."""
        if self._table.slot_of(session_id) >= 0:
            self._table.close(session_id)

    def _slot(self, session_id: int) -> np.void:
        slot: np.void = self._table.slots[self._table.slot_of(session_id)]
        return slot

    def count_of(self, session_id: int) -> int | None:
        """How many messages of the session the service has been given; None when that is not known."""
        slot = self._table.slot_of(session_id)
        count = NULL_VALUE if slot < 0 else int(self._table.slots["appended"][slot])
        return None if count == NULL_VALUE else count

    def answered_of(self, session_id: int) -> int:
        """How many answers the service has given the open session, which is supervised."""
        return int(self._slot(session_id)["answered"])

    def count_answers(self, session_id: int, count: int) -> None:
        """The service has given the open session so many answers."""
        self._slot(session_id)["answered"] = count

    def number(self, session_ids: np.ndarray) -> np.ndarray:
        """The numbers of messages that the service is given now; 0 where none is known."""
        numbers = np.empty(len(session_ids), np.int64)
        _number(self._table.words, session_ids, numbers)
        return numbers

    def take_back(self, session_ids: np.ndarray) -> None:
        """The service was not given these, the last that were numbered."""
        _take_back(self._table.words, session_ids)

    def next_answer_ids(self, session_ids: np.ndarray, service_id: int) -> np.ndarray:
        """Ids of answers that the service is about to give; 0 where the session is not supervised."""
        answer_ids = np.empty(len(session_ids), np.int64)
        _next_answer_ids(self._table.words, session_ids, service_id, answer_ids)
        return answer_ids

    def on_answered(self, session_ids: np.ndarray, service_id: int) -> None:
        """The service has given an answer to each of these."""
        number_answers(self._table.words, session_ids, service_id, np.empty(len(session_ids), np.int64))
