"""Token buckets, a batch of messages at a time.

A message is ``KEY COST``; the answer is ``yes`` or ``no``. Each key has a bucket of ``CAPACITY`` tokens,
which fills by ``RATE`` a second of cluster time. Requests come in runs, as columns, and so do the answers.

Run it: ``cluster up --service examples.rate_limiter:RateLimiter``
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cluster import Cluster, ClusteredService, ExclusivePublication, SessionMessageBatch

CAPACITY = 100
RATE = 10  # tokens a second
UNIT = 1_000  # parts of a token, so that whole milliseconds fill whole parts: no floating point in a state

ANSWERS = np.frombuffer(b"noyes", np.uint8)
NO, YES = (0, 2), (2, 3)  # offset and length


class RateLimiter(ClusteredService):
    """State: per key how full its bucket was, and when."""

    def on_start(self, cluster: Cluster, snapshot_image: Iterable[bytes] | None) -> None:
        self._cluster = cluster
        self._buckets: dict[bytes, tuple[int, int]] = {}  # parts of tokens, cluster time in milliseconds
        for record in snapshot_image or ():
            parts, time, key = record.split(b" ", 2)
            self._buckets[key] = int(parts), int(time)

    def on_session_messages(self, batch: SessionMessageBatch) -> None:
        answers = [
            self._take(bytes(payload), timestamp)
            for payload, timestamp in zip(batch.payloads(), batch.timestamps.tolist())
        ]
        offsets, lengths = np.array(answers, np.int64).reshape(-1, 2).T.copy()
        self._cluster.offer_batch(batch.session_ids, offsets, lengths, ANSWERS)

    def _take(self, payload: bytes, now: int) -> tuple[int, int]:
        key, _, cost_text = payload.rpartition(b" ")
        if not cost_text.isdigit() or len(cost_text) > 9:
            return NO
        parts, then = self._buckets.get(key, (CAPACITY * UNIT, now))
        parts = min(CAPACITY * UNIT, parts + (now - then) * RATE)
        cost = int(cost_text) * UNIT
        answer = YES if cost <= parts else NO
        self._buckets[key] = parts - cost if answer is YES else parts, now
        return answer

    def on_take_snapshot(self, snapshot_publication: ExclusivePublication) -> None:
        for key in sorted(self._buckets):
            snapshot_publication.offer(b"%d %d " % self._buckets[key], key)
