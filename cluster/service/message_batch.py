"""Runs of session messages as columns, as a vectorised service takes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class SessionMessageBatch:
    """Messages that follow each other in the log, as columns; the payloads lie in one buffer.

    The arrays are read-only to the service and hold until the callback returns. ``session_ids`` has
    negative values where a service of the cluster sent the message (Aeron: no session).
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
        """One message as a batch, not copied."""
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
        """The payload of one message, not copied."""
        offset = int(self.offsets[index])
        return self.buffer.data[offset : offset + int(self.lengths[index])]

    def payloads(self) -> Iterator[memoryview]:
        """All payloads in log order, not copied."""
        view = self.buffer.data
        for offset, length in zip(self.offsets.tolist(), self.lengths.tolist(), strict=True):
            yield view[offset : offset + length]
