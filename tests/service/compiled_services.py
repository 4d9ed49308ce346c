"""Services with a compiled callback, for tests here and of compiled turns."""

from __future__ import annotations

from typing import Any

import numpy as np

from cluster import NO_ANSWER, NOT_TAKEN, ClusteredService

KEYS = 256
ASKS_PYTHON, SAYS_NOTHING, RAISES, TOO_LONG, BELOW = b"?_!>-"


class Counter(ClusteredService):
    """Counts messages by their first byte, and answers: the count, then the rest of the message.

    Python takes those that begin with ``?``: it answers all counts in one text, and sets a timer.
    """

    max_answer_length = 40

    def __init__(self) -> None:
        self.state = np.zeros(KEYS, np.int64)

    def on_start(self, cluster: Any, snapshot_image: Any) -> None:
        self.cluster = cluster
        for record in snapshot_image or ():
            self.state[:] = np.frombuffer(record, np.int64)

    def on_take_snapshot(self, snapshot_publication: Any) -> None:
        snapshot_publication.offer(self.state.tobytes())

    @staticmethod
    def on_session_message_compiled(
        state: np.ndarray,
        session_id: int,
        timestamp: int,
        position: int,
        payload: np.ndarray,
        answer: np.ndarray,
    ) -> int:
        if payload.size == 0 or payload[0] == ASKS_PYTHON or session_id < 0:
            return NOT_TAKEN
        if payload[0] == RAISES:
            state[RAISES] += 1  # too early, as one should not: it shows how often it was called
            raise ValueError("it was told to")
        state[payload[0]] += 1
        if payload[0] == SAYS_NOTHING:
            return NO_ANSWER
        if payload[0] == TOO_LONG:
            return answer.size + 1
        if payload[0] == BELOW:
            return -7
        length = min(payload.size - 1, answer.size - 8)
        answer[:8] = np.frombuffer(state[payload[0] : payload[0] + 1], np.uint8)
        answer[8 : 8 + length] = payload[1 : 1 + length]
        return 8 + length

    def on_session_message(self, session: Any, timestamp: int, buffer: memoryview) -> None:
        self.state[ASKS_PYTHON] += 1
        if session is not None:
            session.offer(b"%d in all" % self.state.sum())
            self.cluster.schedule_timer(1, timestamp + 1)

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self.state[0] += 1
