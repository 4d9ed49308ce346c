"""One task's rows into a real Aeron Cluster, which acknowledges nothing: its log says what is committed.

When the driver plans, it reads which lanes the log has (``plan``). A task gets that with its writer, and
finds the sessions of its earlier attempts by it (``cluster/aeron/lane_writer.py``). When all tasks are done,
the driver registers the batch.
"""

import secrets
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Self

import pyarrow as pa

from cluster.aeron.aeron_cluster import AeronCluster
from cluster.aeron.aeron_log import AeronLog
from cluster.aeron.lane_index import LaneAlias, LaneIndex
from cluster.aeron.lane_log import begin_of, lane_entries, planned_index
from cluster.aeron.lane_writer import LaneState, LaneWriter
from cluster.errors import LocalProtocolError, TimedOut
from cluster.protocol.frame import message_length_max
from cluster.protocol.lane import Lane
from cluster.protocol.session import SessionMessageHeader
from cluster.transport.clock import monotonic_ns
from cluster.transport.credentials import supplier_of
from spark_connector.options.cluster_options import SinkOptions
from spark_connector.sink.sending import OFFER_BYTES, check_lengths, check_present

WINDOW_BYTES = 8 * OFFER_BYTES  # of payload that is not in the log yet
IDLE_S = 0.001


def open_log(options: SinkOptions) -> AeronLog:
    """The log that the rows go into. Raises MediaDriverError, and TimedOut when no member answers."""
    assert options.consensus_endpoints is not None
    return AeronLog(options.consensus_endpoints, aeron_dir=options.aeron_dir, credentials=options.credentials)


def plan(options: SinkOptions) -> LaneIndex:
    """Which lanes the log has by now. Raises as ``open_log``."""
    with closing(open_log(options)) as log:
        return planned_index(log)


def register(options: SinkOptions, lane: Lane, planned_at: int, written_to: int) -> None:
    """Have it in the log that the lane's batch is complete: planned at one position, written to another."""
    alias = LaneAlias(replace(lane, partitions=0, rows=0), _unique(), planned_at)
    with ExitStack() as opened:
        log = opened.enter_context(closing(open_log(options)))
        attempt = opened.enter_context(closing(_Attempt(options, log, alias, max(planned_at, written_to))))
        while attempt.writer.state is LaneState.OPENING:
            attempt.turn()


def _unique() -> str:
    return secrets.token_hex(8)


class _Attempt:
    """The writer of a lane that is given no longer than ``commitTimeoutMs`` for its next step."""

    def __init__(self, options: SinkOptions, log: AeronLog, alias: LaneAlias, begin: int) -> None:
        self._timeout_s = options.commit_timeout_ms / 1000
        connect = partial(
            AeronCluster.connect,
            log.ingress_endpoints(),
            aeron_dir=options.aeron_dir,
            credentials=supplier_of(options.credentials),
            timeout_s=self._timeout_s,
        )
        entries = lane_entries(log, alias.lane, begin)
        self.writer = LaneWriter(alias, lambda text: connect(alias=text), entries, monotonic_ns)
        self._reached = -1, 0
        self._since = 0.0

    def turn(self) -> None:
        """Let the writer work, and wait where it has nothing to do. Raises TimedOut, and as ``do_work``."""
        writer = self.writer
        if not writer.do_work():
            time.sleep(IDLE_S)
        now, reached = time.monotonic(), (writer.steps, writer.unsettled)
        if reached != self._reached:
            self._reached, self._since = reached, now
        elif writer.owes and now - self._since > self._timeout_s:
            raise TimedOut(
                f"nothing was committed for {self._timeout_s:g} s (option commitTimeoutMs): "
                f"{writer.state.value}; {writer.unsettled} rows are on their way"
            )

    def close(self) -> None:
        self.writer.close()


class AeronSender:
    """As ``Sender``. Its session is opened with the first row: a task without rows leaves no trace."""

    def __init__(self, options: SinkOptions, lane: Lane | None, index: LaneIndex) -> None:
        """``index`` is what the log had of lanes when the batch was planned."""
        self._options = options
        self._lane = lane
        self._index = index
        self._attempt: _Attempt | None = None
        self._rows = 0
        self._length_max = 0
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def send(self, batch: pa.RecordBatch) -> None:
        """Offer those rows of a batch that are not in the log, waiting where too many are on their way."""
        if batch.num_rows == 0:
            return
        payloads = batch.column(0)
        check_present(payloads, self._rows)
        self._attempt = attempt = self._attempt or self._open()
        check_lengths(payloads, self._rows, self._length_max)
        window = max(1, len(payloads) * WINDOW_BYTES // max(payloads.nbytes, 1))
        for payload in payloads.cast(pa.large_binary()).to_pylist():
            attempt.writer.give(payload)
            while attempt.writer.unsettled >= window:
                attempt.turn()
        attempt.turn()
        self._rows += len(payloads)

    def poll(self) -> None:
        """Let the session do what is due while there is nothing to send."""
        if self._attempt is not None:
            self._attempt.turn()

    def finish(self) -> tuple[int, int]:
        """Wait until all rows are committed; return how many, and the log position after the last, or -1.

        Raises LocalProtocolError where earlier attempts have others in the log, unless ``checkOrder`` is off.
        """
        if self._attempt is None:
            return 0, -1
        writer = self._attempt.writer
        while writer.unsettled:
            self._attempt.turn()
        if writer.extra_rows and self._options.check_order:
            raise LocalProtocolError(
                f"the log has {writer.extra_rows} rows of batch {writer.lane.batch} of lane {writer.lane} "
                "that are none of the task; expected the same rows when it runs again"
            )
        return self._rows, writer.end_position

    def _open(self) -> _Attempt:
        log = self._opened.enter_context(closing(open_log(self._options)))
        self._length_max = message_length_max(log.term_length) - SessionMessageHeader.ENCODED_LENGTH
        if self._lane is None:
            lane, begin = Lane(f"at-least-once/{_unique()}", 0, 0), self._index.end
        else:
            lane = self._lane
            begin = begin_of(log, lane, self._index, self._options.aeron_search_max)
        attempt = _Attempt(self._options, log, LaneAlias(lane, _unique()), begin)
        self._opened.enter_context(closing(attempt))
        while attempt.writer.state is not LaneState.WRITING:  # what is in the log is known before the rows
            attempt.turn()
        return attempt
