"""The service that is built in: sends each message back to its sender."""

from typing import Any

from cluster.service.cluster import Cluster
from cluster.service.clustered_service import ClusteredService
from cluster.service.message_batch import SessionMessageBatch


class EchoService(ClusteredService):
    """Answers each message with its own payload, a batch at a time; keeps no state."""

    def on_start(self, cluster: Cluster, snapshot_image: Any | None) -> None:
        self._cluster = cluster

    def on_session_messages(self, batch: SessionMessageBatch) -> None:
        self._cluster.offer_batch(batch.session_ids, batch.offsets, batch.lengths, batch.buffer)
