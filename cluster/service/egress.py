"""Answers given one at a time, gathered into the batches that the consensus module frames."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cluster.errors import LocalProtocolError
from cluster.service.channel import EgressBatch
from cluster.service.client_session import Payload


class EgressBuilder:
    """Columns that grow while one turn of a service lasts; ``build`` hands them over and starts anew."""

    __slots__ = ("_buffer", "_lengths", "_offsets", "_session_ids", "_timestamps")

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._buffer = bytearray()  # a new one each time: what was built still refers to the old one
        self._session_ids: list[int] = []
        self._timestamps: list[int] = []
        self._offsets: list[int] = []
        self._lengths: list[int] = []

    def __len__(self) -> int:
        return len(self._session_ids)

    def append(self, session_id: int, timestamp: int, payload: Sequence[Payload], length_max: int) -> int:
        """Add one answer, copied, and return its length; LocalProtocolError above ``length_max``."""
        offset = len(self._buffer)
        for part in payload:
            self._buffer.extend(part)
        length = len(self._buffer) - offset
        if length > length_max:
            del self._buffer[offset:]
            raise LocalProtocolError(
                f"a message of {length} bytes is longer than the maximum of {length_max}"
            )
        self._session_ids.append(session_id)
        self._timestamps.append(timestamp)
        self._offsets.append(offset)
        self._lengths.append(length)
        return length

    def build(self, leadership_term_id: int) -> EgressBatch:
        """Everything appended since the last time, as one batch."""
        batch = EgressBatch(
            leadership_term_id,
            np.array(self._session_ids, np.int64),
            np.array(self._timestamps, np.int64),
            np.array(self._offsets, np.int64),
            np.array(self._lengths, np.int64),
            np.frombuffer(self._buffer or bytearray(1), np.uint8),
        )
        self._clear()
        return batch
