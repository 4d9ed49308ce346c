"""A counter by key, called from Python and in compiled code: what the benchmark ``services`` compares."""

from __future__ import annotations

from typing import Any

import numpy as np

from cluster import NOT_TAKEN, ClusteredService

KEYS = 1 << 16


class PythonCounter(ClusteredService):
    """Counts messages by their first two bytes, and answers each with the count of its key."""

    max_answer_length = 8

    def __init__(self) -> None:
        self.state = np.zeros(KEYS, np.int64)

    def on_start(self, cluster: Any, snapshot_image: Any) -> None:
        for record in snapshot_image or ():
            self.state[:] = np.frombuffer(record, np.int64)

    def on_take_snapshot(self, snapshot_publication: Any) -> None:
        snapshot_publication.offer(self.state.tobytes())

    def on_session_message(self, session: Any, timestamp: int, buffer: memoryview) -> None:
        if session is None or len(buffer) < 2:
            return
        key = buffer[0] << 8 | buffer[1]
        count = int(self.state[key]) + 1
        self.state[key] = count
        session.offer(count.to_bytes(8, "little"))


class CompiledCounter(PythonCounter):
    """The same in compiled code."""

    @staticmethod
    def on_session_message_compiled(
        state: np.ndarray,
        session_id: int,
        timestamp: int,
        position: int,
        payload: np.ndarray,
        answer: np.ndarray,
    ) -> int:
        if payload.size < 2:
            return NOT_TAKEN
        key = int(payload[0]) << 8 | int(payload[1])
        state[key] += 1
        answer.view(np.int64)[0] = state[key]
        return 8
