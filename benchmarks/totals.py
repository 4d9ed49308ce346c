"""A vectorised service, compiled callback: what the benchmark ``services`` runs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from cluster import ClusteredService

SLOTS = 1 << 16


class Totals(ClusteredService):
    """Counts messages and adds up their first bytes by session; answers nothing."""

    def on_start(self, cluster: Any, snapshot_image: Any) -> None:
        self._totals = np.zeros((SLOTS, 2), np.int64)
        for record in snapshot_image or ():
            self._totals[:] = np.frombuffer(record, np.int64).reshape(SLOTS, 2)

    def on_session_messages(self, batch: Any) -> None:
        _add(self._totals, batch.session_ids, batch.offsets, batch.lengths, batch.buffer)

    def on_take_snapshot(self, snapshot_publication: Any) -> None:
        snapshot_publication.offer(self._totals.tobytes())


@njit("void(int64[:, ::1], int64[::1], int64[::1], int64[::1], uint8[::1])", cache=True)
def _add(
    totals: np.ndarray, sessions: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, data: np.ndarray
) -> None:
    for i in range(len(sessions)):
        slot = sessions[i] & (SLOTS - 1)
        totals[slot, 0] += 1
        for at in range(offsets[i], offsets[i] + min(lengths[i], 8)):
            totals[slot, 1] += data[at]
