"""How far a query is in the log, reported to the cluster for its consumer group.

A report is a session that opens (cluster/protocol/consumer.py). A thread of its own makes them, so that no
trigger waits for one or fails with it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from cluster.errors import ClusterError
from spark_connector.log import warn

if TYPE_CHECKING:
    from spark_connector.options import SourceOptions

REPORT_INTERVAL_S = 5.0  # between two reports; each is two entries of the log
LAST_REPORT_S = 5.0  # how long a query that ends waits for its last one


class GroupReports:
    """Reports of one query; ``reached`` as often as one likes, ``close`` at its end."""

    def __init__(self, options: SourceOptions, interval_s: float = REPORT_INTERVAL_S) -> None:
        self._options = options
        self._interval_s = interval_s
        self._changed = threading.Condition()
        self._position: int | None = None  # not reported yet
        self._is_closed = False
        self._has_failed = False
        self._thread: threading.Thread | None = None

    def reached(self, position: int) -> None:
        """The query needs nothing before ``position`` any more."""
        with self._changed:
            self._position = position
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="consumer group", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Make the last report, if it takes no longer than ``LAST_REPORT_S``."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(LAST_REPORT_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._position is not None or self._is_closed)
                position, self._position = self._position, None
            if position is None:
                return
            self._report(position)
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed, self._interval_s)

    def _report(self, position: int) -> None:
        """The first failure of a row is told; the next report says more than the one that failed."""
        from cluster.client import ClusterClient
        from cluster.protocol.consumer import Consumer

        options = self._options
        assert options.endpoints is not None and options.consumer_group is not None
        consumer = Consumer(options.consumer_group, position)
        try:
            ClusterClient.connect(options.endpoints, consumer=consumer, **options.client_settings()).close()
            self._has_failed = False
        except ClusterError as error:
            if not self._has_failed:
                warn(f"consumer group {options.consumer_group} is not reported at {position}: {error}")
            self._has_failed = True
