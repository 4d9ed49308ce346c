"""Runs of session messages as columns, as a vectorised service takes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class SessionMessageBatch:
    """Consecutive messages of the log, as columns over one buffer of payloads.

    The arrays are read-only, and valid until the callback returns. ``session_ids`` is negative for messages
    that a service of the cluster sent (in Aeron: without a session).
    """

    session_ids: np.ndarray  # int64
    timestamps: np.ndarray  # int64, cluster time; the same on every member
    positions: np.ndarray  # int64, log position after each message
    offsets: np.ndarray  # int64, of each payload in buffer
    lengths: np.ndarray  # int64
    buffer: np.ndarray  # uint8

    def __len__(self) -> int:
        return len(self.session_ids)

    def row(self, index: int) -> SessionMessageBatch:
        """One message as a batch, without a copy."""
        rows = slice(index, index + 1)
        return SessionMessageBatch(
            self.session_ids[rows],
            self.timestamps[rows],
            self.positions[rows],
            self.offsets[rows],
            self.lengths[rows],
            self.buffer,
        )

    def payload(self, index: int) -> memoryview:
        """The payload of one message, without a copy."""
        offset = int(self.offsets[index])
        return self.buffer.data[offset : offset + int(self.lengths[index])]

    def payloads(self) -> Iterator[memoryview]:
        """All payloads in log order, without copies."""
        view = self.buffer.data
        for offset, length in zip(self.offsets.tolist(), self.lengths.tolist(), strict=True):
            yield view[offset : offset + length]
