"""Queries that fail before they begin, because Spark's Python process was not up in time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# Spark's words for a Python process that was not up within ten seconds. No setting changes that, and a busy
# machine may need more. Nothing has been read then, and the query may simply be started again.
NOT_UP = "Python worker failed to connect back"
STARTS = 3
LOOK_EVERY_S = 0.1


def came_up_too_late(query: StreamingQuery, error: Exception) -> bool:
    """Whether ``query`` failed with ``error`` before it did anything, for want of its Python process."""
    return NOT_UP in str(error) and not query.recentProgress


def start_query(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query, up to three times if Python comes up too late. Raises StreamingQueryException."""
    pause = threading.Event()
    for starts_left in reversed(range(STARTS)):
        query = writer.start()
        while query.isActive and not query.recentProgress:
            pause.wait(LOOK_EVERY_S)
        failure = query.exception()
        if failure is None:
            break
        if not starts_left or not came_up_too_late(query, failure):
            raise failure
    return query
