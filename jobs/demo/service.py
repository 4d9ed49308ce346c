"""The state machine of the demo: it expects each flight at its scheduled arrival.

Every member runs it on the same Log, so every member knows the same flights in the air.
"""

from typing import Any

import numpy as np

from cluster import Cluster, ClusteredService, SessionMessageBatch
from jobs.demo.flights import HEADER, MAGIC


class FlightService(ClusteredService):
    """Sets a timer for each flight's arrival and confirms by the message's first 16 bytes."""

    def on_start(self, cluster: Cluster, snapshot_image: Any | None) -> None:
        self._cluster = cluster
        self.in_the_air = 0
        for state in snapshot_image or ():
            self.in_the_air = int.from_bytes(state, "little", signed=True)

    def on_take_snapshot(self, snapshot_publication: Any) -> None:
        snapshot_publication.offer(self.in_the_air.to_bytes(8, "little", signed=True))

    def on_session_messages(self, batch: SessionMessageBatch) -> None:
        flights = np.flatnonzero(batch.lengths >= HEADER.itemsize)
        places = batch.offsets[flights, None] + np.arange(HEADER.itemsize)
        headers = batch.buffer[places].view(HEADER)[:, 0]
        is_flight = headers["magic"] == MAGIC
        flights, headers = flights[is_flight], headers[is_flight]
        for row, deadline in zip(headers["row"].tolist(), headers["deadline"].tolist()):
            while not self._cluster.schedule_timer(row, deadline):
                self._cluster.idle_strategy().idle()
        self.in_the_air += len(flights)
        if len(flights):
            self._cluster.offer_batch(
                batch.session_ids[flights],
                batch.offsets[flights],
                np.full(len(flights), HEADER.itemsize),
                batch.buffer,
                batch.timestamps[flights],
            )

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self.in_the_air -= 1
