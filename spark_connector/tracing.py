"""OpenTelemetry spans of the micro-batches that read traced messages; extra ``[otel]``."""

import json
from datetime import datetime
from itertools import islice
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from cluster.client.tracing import Tracing
from cluster.errors import ConfigurationError
from spark_connector.offsets import Offset

SPANS_MAX = 100  # of one batch


class BatchTracing(StreamingQueryListener):
    """``spark.streams.addListener(BatchTracing(Tracing("payments")))``, in the driver.

    A batch is a span in the trace of each message that it read, from its trigger to its commit. Of the first
    batch of a query Spark does not say where it begins.
    """

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        begin_ns = int(datetime.fromisoformat(progress["timestamp"]).timestamp() * 1e9)
        end_ns = begin_ns + int(progress["durationMs"]["triggerExecution"]) * 1_000_000
        of = {"query": progress["name"] or str(progress["id"]), "batch": progress["batchId"]}
        for source in progress["sources"]:
            begin, end = _position(source["startOffset"]), _position(source["endOffset"])
            if begin is not None and end is not None:
                for place in islice(self._tracing.places(begin, end), SPANS_MAX):
                    self._tracing.add("cluster.batch", place, begin_ns, end_ns, **of)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass


def _position(offset: Any) -> int | None:
    """None of another source's, and before the first batch."""
    try:
        return Offset.from_json(json.loads(offset) if isinstance(offset, str) else offset).position
    except (ConfigurationError, ValueError):
        return None
