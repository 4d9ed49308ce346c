"""Answers given one at a time, gathered into the batches that the consensus module frames."""

from __future__ import annotations

import numpy as np

from cluster.service.channel import ServiceEgress


class EgressBuilder:
    """Columns that grow while one turn of a service lasts; ``build`` hands them over and starts again."""

    __slots__ = ("_answer_ids", "_numbers", "_payloads", "_session_ids", "_timestamps")

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._payloads: list[bytes] = []
        self._session_ids: list[int] = []
        self._timestamps: list[int] = []
        self._answer_ids: list[int] = []
        self._numbers: list[int] = []

    def __len__(self) -> int:
        return len(self._session_ids)

    def append(self, session_id: int, timestamp: int, payload: bytes, number: int, answer_id: int) -> None:
        """Add one answer, to the message of this number; ``answer_id`` is 0 to a session not supervised."""
        self._session_ids.append(session_id)
        self._timestamps.append(timestamp)
        self._payloads.append(payload)
        self._answer_ids.append(answer_id)
        self._numbers.append(number)

    def build(self, leadership_term_id: int) -> ServiceEgress:
        """Everything appended since the last time, as one batch."""
        lengths = np.fromiter(map(len, self._payloads), np.int64, len(self._payloads))
        # Through a bytearray: the kernel that frames answers takes writable arrays of at least one byte.
        buffer = bytearray().join(self._payloads) or bytearray(1)
        batch = ServiceEgress(
            leadership_term_id,
            np.array(self._session_ids, np.int64),
            np.array(self._timestamps, np.int64),
            np.cumsum(lengths) - lengths,
            lengths,
            np.frombuffer(buffer, np.uint8),
            np.array(self._numbers, np.int64),
            np.array(self._answer_ids, np.int64) if any(self._answer_ids) else None,
        )
        self._clear()
        return batch
