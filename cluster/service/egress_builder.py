"""Answers given one at a time, gathered into the batches that the consensus module frames."""

from __future__ import annotations

import numpy as np

from cluster.service.channel import ServiceEgress


class EgressBuilder:
    """Rows that are gathered while one turn of a service lasts; ``build`` hands them over as columns."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, bytes, int, int]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, session_id: int, timestamp: int, payload: bytes, number: int, answer_id: int) -> None:
        """Add one answer, to the message of this number; ``answer_id`` is 0 to a session not supervised."""
        self._rows.append((session_id, timestamp, payload, number, answer_id))

    def build(self, leadership_term_id: int) -> ServiceEgress:
        """Everything appended since the last time, which is something, as one batch."""
        session_ids, timestamps, payloads, numbers, answer_ids = zip(*self._rows)
        self._rows.clear()
        lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
        # Through a bytearray: the kernel that frames answers takes writable arrays of at least one byte.
        buffer = bytearray().join(payloads) or bytearray(1)
        return ServiceEgress(
            leadership_term_id,
            np.array(session_ids, np.int64),
            np.array(timestamps, np.int64),
            np.cumsum(lengths) - lengths,
            lengths,
            np.frombuffer(buffer, np.uint8),
            np.array(numbers, np.int64),
            np.array(answer_ids, np.int64) if any(answer_ids) else None,
        )
