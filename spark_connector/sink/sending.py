"""One task's session with the cluster: rows in, each acknowledged as committed."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Self

from cluster.errors import ClientClosed, LocalProtocolError, TimedOut
from cluster.protocol.lane import Lane
from spark_connector.address_space import check_address_space
from spark_connector.options.cluster_options import SinkOptions
from spark_connector.sink.known_rows import KnownRows, read_back
from spark_connector.task import spare_imports_to_the_collector

if TYPE_CHECKING:
    import pyarrow as pa

    from cluster.client import ClusterClient

OFFER_BYTES = 256 * 1024  # of payload in one offer: a part of what may be unacknowledged
POLL_S = 0.01
BATCHES_AHEAD = 2


def open_session(options: SinkOptions, lane: Lane | None) -> ClusterClient:
    """A session with the cluster. Raises what ``ClusterClient.connect`` does."""
    check_address_space()
    from cluster.client import ClusterClient

    timeout_s = options.commit_timeout_ms / 1000
    return ClusterClient.connect(
        options.endpoints,
        message_timeout_s=timeout_s,
        new_leader_timeout_s=timeout_s,
        lane=lane,
        **options.client_settings(),
    )


class Sender:
    """One task's session, opened with the first row: a task without rows leaves no trace in the log."""

    def __init__(self, options: SinkOptions, lane: Lane | None) -> None:
        self._options = options
        self._lane = lane
        self._timeout_s = options.commit_timeout_ms / 1000
        self._client: ClusterClient | None = None
        self._known: KnownRows | None = None  # of its lane
        self._rows = 0  # of the task, that are in the log or were handed to the session
        self._progress = 0, 0.0  # rows acknowledged, and when that was news

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.close()

    def send(self, batch: pa.RecordBatch) -> None:
        """Offer the rows of a batch that are not in the log, waiting where the cluster takes no more."""
        if batch.num_rows == 0:
            return
        payloads = batch.column(0)
        check_present(payloads, self._rows)  # before a session is opened for rows that cannot be sent
        client = self._session()
        check_lengths(payloads, self._rows, client.max_payload_length)
        unknown = payloads if self._known is None else self._known.skip(payloads)
        self._rows += len(payloads) - len(unknown)
        self._offer(client, unknown)

    def _offer(self, client: ClusterClient, payloads: pa.Array) -> None:
        self._excuse(client)  # a long comparison of known rows is no delay of these
        rows = max(1, len(payloads) * OFFER_BYTES // max(payloads.nbytes, 1))
        for row in range(0, len(payloads), rows):
            piece = payloads.slice(row, rows)
            while client.offer_batch(piece) < 0:
                self._turn(client)
            self._rows += len(piece)

    def poll(self) -> None:
        """Keep the session alive while there is nothing to send."""
        client = self._client
        if client is not None:
            client.poll_egress()
            self._excuse(client)

    def _excuse(self, client: ClusterClient) -> None:
        """A cluster that owes nothing is not late."""
        if client.acknowledged == client.offered:
            self._progress = client.acknowledged, time.monotonic()

    def finish(self) -> tuple[int, int]:
        """Wait until all rows are committed; return how many, and the log position after the last, or -1."""
        if self._known is not None:
            self._known.check_all_came()
        position = -1 if self._client is None else self._await_committed(self._client)
        spare_imports_to_the_collector()
        return self._rows, position if self._known is None else max(position, self._known.end_position)

    def _session(self) -> ClusterClient:
        if self._client is None:
            self._client = open_session(self._options, self._lane)
            self._progress = 0, time.monotonic()
            if self._lane is not None:
                standing = self._client.lane_standing
                assert standing is not None
                in_log = read_back(self._options, self._lane, standing) if self._options.check_order else None
                self._known = KnownRows(self._lane, standing, in_log)
        return self._client

    def _await_committed(self, client: ClusterClient) -> int:
        while client.acknowledged < client.offered:
            self._turn(client)
        return client.committed_position

    def _turn(self, client: ClusterClient) -> None:
        """Let the client work. Raises ClientClosed or TimedOut when rows cannot be sent any more."""
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


def check_present(payloads: pa.Array, first_row: int) -> None:
    """Raise LocalProtocolError for the first row that is NULL; ``first_row`` is the number of the first."""
    import pyarrow.compute as pc

    if payloads.null_count:
        row = pc.index(payloads.is_null(), True).as_py()
        raise LocalProtocolError(f"row {first_row + row} of the task has no payload (NULL)")


def check_lengths(payloads: pa.Array, first_row: int, length_max: int) -> None:
    """Raise LocalProtocolError for the first of the longest rows when it is longer than the log takes."""
    import pyarrow.compute as pc

    lengths = pc.binary_length(payloads)
    longest = pc.max(lengths).as_py()
    if longest > length_max:
        row = pc.index(lengths, longest).as_py()
        raise LocalProtocolError(
            f"row {first_row + row} of the task has a payload of {longest} bytes; "
            f"the cluster's log takes at most {length_max}"
        )


class Ahead:
    """Fetches a task's batches in a thread, so that the session is kept alive while Spark computes them."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._fetched: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(BATCHES_AHEAD)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._fetch, args=(batches,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
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
