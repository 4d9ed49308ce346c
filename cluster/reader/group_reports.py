"""How far a reader is in the log, reported to the cluster for its consumer group.

A report is a session that opens (cluster/protocol/consumer.py). A thread of its own makes them, so that no
reader waits for one or fails with it.
"""

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from cluster.client.cluster_client import ClusterClient
from cluster.errors import ClusterError, TimedOut
from cluster.protocol.consumer import Consumer

REPORT_INTERVAL_S = 5.0  # between two reports; each is two entries of the log
REPEAT_INTERVAL_S = 3600.0  # between two of the same position: who has nothing new to say is not silent
LAST_REPORT_S = 5.0  # how long ``close`` waits for the last one


class GroupReports:
    """Reports of one reader; ``reached`` as often as one likes, ``close`` at its end.

    ``say`` gets a line for the first of several failures in a row: the next report says more than the one
    that failed. ``settings`` are those of ``ClusterClient.connect``.
    """

    def __init__(
        self,
        group: str,
        endpoints: str,
        say: Callable[[str], object],
        *,
        interval_s: float = REPORT_INTERVAL_S,
        **settings: Any,
    ) -> None:
        """Raises ConfigurationError for what is no name of a group."""
        self._group = Consumer(group, 0).group
        self._endpoints = endpoints
        self._say = say
        self._interval_s = interval_s
        self._settings = settings
        self._changed = threading.Condition()
        self._reporting = threading.Lock()
        self._position: int | None = None  # not reported yet
        self._reported: int | None = None  # last
        self._is_due = False
        self._is_closed = False
        self._failure: ClusterError | None = None  # of the last attempt
        self._thread: threading.Thread | None = None

    def reached(self, position: int) -> None:
        """Nothing before ``position`` is needed any more; reported soon."""
        with self._changed:
            self._position = position
            self._is_due = True
            self._changed.notify()
        self._start(position)

    def found(self, position: int) -> None:
        """The group is at ``position``, which a reader reported before this one."""
        self._reported = position
        self._start(position)

    def _start(self, position: int) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="consumer group", daemon=True)
            try:
                thread.start()
                self._thread = thread
            except RuntimeError as error:  # no more threads: the next call may find one
                self._fail(position, error)

    def report(self) -> None:
        """Report what was ``reached``, if that is new; returns when it is committed. Raises ClusterError."""
        with self._reporting:
            position = self._position
            if position is None:
                return
            self._send(position)
            with self._changed:
                self._failure, self._reported = None, position
                if self._position == position:
                    self._position = None

    def _send(self, position: int) -> None:
        consumer = Consumer(self._group, position)
        ClusterClient.connect(self._endpoints, consumer=consumer, **self._settings).close()

    def close(self) -> ClusterError | None:
        """Make the last report; why there is none, after ``LAST_REPORT_S`` at the latest."""
        with self._changed:
            self._is_closed = True
            self._is_due = self._position is not None
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(LAST_REPORT_S)
            if self._thread.is_alive() and self._position is not None:
                return TimedOut(f"consumer group {self._group} is not reported within {LAST_REPORT_S:g} s")
        return self._failure

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_due or self._is_closed, REPEAT_INTERVAL_S)
                is_due, self._is_due = self._is_due, False
                if self._is_closed and not is_due:
                    return
            if is_due or self._position is not None:
                self._try_report()
            else:
                self._repeat()
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed, self._interval_s)

    def _try_report(self) -> None:
        position = self._position
        try:
            self.report()
        except Exception as error:  # no thread, no memory, no descriptor: the next report may find them
            self._fail(position, error)

    def _repeat(self) -> None:
        """A failure shows in the next report. Where another reader has gone on, this one is refused."""
        with contextlib.suppress(Exception), self._reporting:
            if self._reported is not None:
                self._send(self._reported)

    def _fail(self, position: int | None, error: Exception) -> None:
        is_first = self._failure is None
        self._failure = error if isinstance(error, ClusterError) else ClusterError(f"{error!r}")
        if is_first:
            with contextlib.suppress(Exception):  # as where nobody reads a standard error any more
                self._say(f"consumer group {self._group} is not reported at {position}: {self._failure}")
