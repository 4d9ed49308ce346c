"""The number of each message in its session: how many of the session a service has been given, and this one.

Members agree on it, because it follows from the log. A service's answer has it in its frame, so that a client
knows which of its messages is answered.
"""

import numpy as np
from numba import types

from cluster.log.kernel import kernel, routine
from cluster.log.memory import WORDS, WORDS_OUT
from cluster.log.session_table import APPENDED, SessionTable, find_slot

SESSIONS_AT_FIRST = 64


@routine
def number_messages(table, session_ids, numbers):  # type: ignore[no-untyped-def]
    """Count the messages, and give each its number; 0 in a session whose messages are not counted."""
    slot = -1
    for row in range(session_ids.size):
        if row == 0 or session_ids[row] != session_ids[row - 1]:
            slot = find_slot(table, session_ids[row])
        if slot >= 0:
            table[slot + APPENDED] += 1
            numbers[row] = table[slot + APPENDED]
        else:
            numbers[row] = 0


@routine
def take_back_messages(table, session_ids):  # type: ignore[no-untyped-def]
    """Count them no more: the service was not given them."""
    for row in range(session_ids.size):
        slot = find_slot(table, session_ids[row])
        if slot >= 0:
            table[slot + APPENDED] -= 1


@kernel(types.void(WORDS_OUT, WORDS, WORDS_OUT))
def _number(table, session_ids, numbers):  # type: ignore[no-untyped-def]
    number_messages(table, session_ids, numbers)


@kernel(types.void(WORDS_OUT, WORDS))
def _take_back(table, session_ids):  # type: ignore[no-untyped-def]
    take_back_messages(table, session_ids)


class MessageNumbers:
    """Counts the messages of each open session for one service.

    ``words`` is for kernels, and another array after an ``open``.
    """

    def __init__(self) -> None:
        self._table = SessionTable(SESSIONS_AT_FIRST)

    @property
    def words(self) -> np.ndarray:
        return self._table.words

    def open(self, session_id: int, count: int = 0) -> None:
        """Count from here on; the service has been given ``count`` messages of the session already."""
        if len(self._table) == self._table.max_sessions:
            self._grow()
        self._put(session_id, count)

    def _put(self, session_id: int, count: int) -> None:
        self._table.slots["appended"][self._table.open(session_id)] = count

    def _grow(self) -> None:
        before, self._table = self._table, SessionTable(2 * self._table.max_sessions)
        for slot in before.slots:
            self._put(int(slot["cluster_session_id"]), int(slot["appended"]))

    def close(self, session_id: int) -> None:
        """Forget the session, if its messages are counted."""
        if self._table.slot_of(session_id) >= 0:
            self._table.close(session_id)

    def count_of(self, session_id: int) -> int | None:
        """How many messages of the session the service has been given; None when that is not known."""
        slot = self._table.slot_of(session_id)
        return None if slot < 0 else int(self._table.slots["appended"][slot])

    def number(self, session_ids: np.ndarray) -> np.ndarray:
        """The numbers of messages that the service is given now; 0 where none is known."""
        numbers = np.empty(len(session_ids), np.int64)
        _number(self._table.words, session_ids, numbers)
        return numbers

    def take_back(self, session_ids: np.ndarray) -> None:
        """The service was not given these, the last that were numbered."""
        _take_back(self._table.words, session_ids)
