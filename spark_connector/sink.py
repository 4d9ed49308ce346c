"""The sink: every row of a task is one ingress message, in the rows' order, through one session.

Spark runs ``write()`` whole for every attempt of a task, and makes a new writer for every micro-batch,
so all state is in here for the length of one call. ``write()`` returns when the cluster has acknowledged each
of its rows as committed; the client in it follows a change of leader by itself. A task that runs again sends
all of its rows again.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from cluster.errors import ClientClosed, ClusterError, LocalProtocolError, TimedOut
from spark_connector.options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from cluster.client import ClusterClient
    from cluster.client.context import ClientSettings

OFFER_BYTES = 256 * 1024  # of payload in one offer: a part of what may be unacknowledged
POLL_S = 0.01

# Spark's own names of what it gives the tasks of a streaming query.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
BATCHES_AHEAD = 2


@dataclass(frozen=True, slots=True)
class RowsCommitted(WriterCommitMessage):
    """What a task brought into the log. ``committed_position`` is after its last row, -1 without rows."""

    rows: int
    committed_position: int


class _ClusterWriter:
    """What the writers for streams and for batches have in common: everything but their names."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsCommitted:
        """Send the task's rows, and return when all of them are committed.

        Raises LocalProtocolError for a row that cannot be sent: rows before it may be in the log by then.
        Whatever the cluster's error is, it names the task.
        """
        try:
            with _Ahead(iterator) as batches, _Sender(self._options) as sender:
                while (batch := batches.next(sender.poll)) is not None:
                    sender.send(batch)
                return sender.finish()
        except ClusterError as error:
            raise type(error)(f"{_task_name()}: {error}") from error

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int = -1) -> None:
        """Nothing is left to do: the rows are in the log."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int = -1) -> None:
        """Nothing can be undone: what the cluster committed stays in the log."""


class ClusterStreamWriter(_ClusterWriter, DataSourceStreamArrowWriter):
    """Of ``df.writeStream.format("cluster")``."""


class ClusterBatchWriter(_ClusterWriter, DataSourceArrowWriter):
    """Of ``df.write.format("cluster")``."""


def _task_name() -> str:
    """Which task this is: its partition and attempt, and the batch and query that it belongs to, if any."""
    context = TaskContext.get()
    if context is None:
        return "outside a task"
    task = f"partition {context.partitionId()}, attempt {context.attemptNumber()}"
    query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    return task if query_id is None else f"batch {batch_id} of query {query_id}, {task}"


class _Sender:
    """One task's session, opened with the first row."""

    def __init__(self, options: SinkOptions) -> None:
        self._endpoints = options.endpoints
        self._tls = options.tls
        self._credentials = options.credentials
        self._timeout_s = options.commit_timeout_ms / 1000
        self._client: ClusterClient | None = None
        self._rows = 0  # of the task, that were handed to a session
        self._committed_position = -1
        self._progress = 0, 0.0  # rows acknowledged, and when that was news

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            self._client.close()

    def send(self, batch: pa.RecordBatch) -> None:
        """Offer all rows of a batch, waiting where the cluster takes no more for now."""
        if batch.num_rows == 0:
            return
        payloads = batch.column(0)
        self._check_present(payloads)  # before a session is opened for rows that cannot be sent
        client = self._session()
        self._check_lengths(payloads, client.max_payload_length)
        rows = max(1, batch.num_rows * OFFER_BYTES // max(payloads.nbytes, 1))
        for row in range(0, batch.num_rows, rows):
            piece = payloads.slice(row, rows)
            while client.offer_batch(piece) < 0:
                self._turn(client)
            self._rows += len(piece)

    def poll(self) -> None:
        """Keep the session alive while there is nothing to send."""
        client = self._client
        if client is not None:
            client.poll_egress()
            if client.acknowledged == client.offered:
                self._progress = client.acknowledged, time.monotonic()  # who owes nothing is not late

    def finish(self) -> RowsCommitted:
        """Wait until all rows are committed."""
        if self._client is not None:
            self._await_committed(self._client)
        return RowsCommitted(self._rows, self._committed_position)

    def _session(self) -> ClusterClient:
        from cluster.client import ClusterClient

        if self._client is None:
            settings: ClientSettings = {
                "message_timeout_s": self._timeout_s,
                "new_leader_timeout_s": self._timeout_s,
            }
            if self._tls is not None:
                settings["tls"] = self._tls
            if self._credentials is not None:
                settings["credentials"] = self._credentials
            self._client = ClusterClient.connect(self._endpoints, **settings)
            self._progress = 0, time.monotonic()
        return self._client

    def _await_committed(self, client: ClusterClient) -> None:
        while client.acknowledged < client.offered:
            self._turn(client)
        self._committed_position = client.committed_position

    def _turn(self, client: ClusterClient) -> None:
        """Let the client work. Raises ClientClosed or TimedOut when rows cannot be brought in any more."""
        if not client.is_closed:
            client.wait(POLL_S)
            client.poll_egress()
        if client.is_closed:
            raise ClientClosed(
                f"session {client.cluster_session_id} ended ({client.why_closed}) with "
                f"{client.offered - client.acknowledged} of {client.offered} rows not known to be committed"
            )
        acknowledged, since = self._progress
        if client.acknowledged > acknowledged:
            self._progress = client.acknowledged, time.monotonic()
        elif time.monotonic() - since > self._timeout_s:
            raise TimedOut(
                f"no row was committed for {self._timeout_s:g} s (option commitTimeoutMs); "
                f"{client.offered - client.acknowledged} of {client.offered} rows are not"
            )

    def _check_present(self, payloads: pa.Array) -> None:
        """Raise LocalProtocolError for the first row that is NULL."""
        import pyarrow.compute as pc

        if payloads.null_count:
            row = pc.index(payloads.is_null(), True).as_py()
            raise LocalProtocolError(f"row {self._rows + row} of the task has no payload (NULL)")

    def _check_lengths(self, payloads: pa.Array, length_max: int) -> None:
        """Raise LocalProtocolError for the first of the longest rows when it is longer than the log takes."""
        import pyarrow.compute as pc

        lengths = pc.binary_length(payloads)
        longest = pc.max(lengths).as_py()
        if longest > length_max:
            row = pc.index(lengths, longest).as_py()
            raise LocalProtocolError(
                f"row {self._rows + row} of the task has a payload of {longest} bytes; "
                f"the cluster's log takes at most {length_max}"
            )


class _Ahead:
    """Fetches a task's batches in a thread, so that the session is kept alive while Spark computes them."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._fetched: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(BATCHES_AHEAD)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._fetch, args=(batches,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()

    def next(self, poll: Callable[[], None]) -> pa.RecordBatch | None:
        """The next batch, None after the last; calls ``poll`` again and again until it is there."""
        while True:
            try:
                fetched = self._fetched.get(timeout=POLL_S)
            except queue.Empty:
                poll()
                continue
            if isinstance(fetched, BaseException):
                raise fetched
            return fetched

    def _fetch(self, batches: Iterator[pa.RecordBatch]) -> None:
        try:
            for batch in batches:
                if not self._put(batch):
                    return
            self._put(None)
        except BaseException as error:
            self._put(error)

    def _put(self, fetched: pa.RecordBatch | BaseException | None) -> bool:
        """Hand it over; False when nobody waits for it any more."""
        while not self._is_over.is_set():
            try:
                self._fetched.put(fetched, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False
