"""The sink: every row of a task is one ingress message, in the rows' order, through one session.

Spark runs ``write()`` whole for every attempt of a task, and makes a new writer for every micro-batch,
so all state is in here for the length of one call. ``write()`` returns when the cluster has acknowledged each
of its rows as committed; the client in it follows a change of leader by itself (``sending.py``).

Each row is in the log once. A task's session holds the lane of its partition (``task.py``), whose rows the
cluster counts. An attempt that runs again skips those that are in (``known_rows.py``). One that Spark gave up
loses the lane to it. The driver registers a batch when all of its tasks are done: from then on nothing of it
is sent. At least once means without a lane: every attempt sends all of its rows.

A real Aeron Cluster counts no rows and acknowledges none. There a task reads in the log which of its lane's
rows are in (``aeron_sending.py``), from a place on that follows from what the driver has read of the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from cluster.errors import BatchRegistered, ClusterError, ConfigurationError
from cluster.protocol.lane import REGISTRATION, Lane
from spark_connector.options.cluster_options import AT_LEAST_ONCE, EXACTLY_ONCE, SinkOptions
from spark_connector.sink.sending import Ahead, Sender, open_session
from spark_connector.task import add_task_name, lane_of_batch, lane_of_stream, spare_imports_to_the_collector

if TYPE_CHECKING:
    import pyarrow as pa

    from cluster.aeron.lane_index import LaneIndex
    from spark_connector.sink.aeron_sending import AeronSender


@dataclass(frozen=True, slots=True)
class RowsCommitted(WriterCommitMessage):
    """What a task has in the log. ``committed_position`` is after its last row, -1 without rows.

    ``application``: whose lane it wrote, empty without one. ``is_registered``: the batch was in the log as a
    whole before, and the task's rows were not looked at. ``planned_at``: how far the log of a real Aeron
    Cluster was committed when the batch was planned.
    """

    rows: int
    committed_position: int
    application: str = ""
    is_registered: bool = False
    planned_at: int = 0


class _ClusterWriter:
    """What the writers for streams and for batches have in common."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self._index: LaneIndex | None = None  # of a real Aeron Cluster

    def __getstate__(self) -> dict[str, Any]:
        """The driver sends the writer to its tasks, with what they have to know of a real cluster's log.

        To commit Spark makes a writer of its own, which needs none of that. Raises MediaDriverError, and
        TimedOut when no member answers.
        """
        if self.options.consensus_endpoints is not None and self._index is None:
            from spark_connector.sink.aeron_sending import plan

            self._index = plan(self.options)
        return self.__dict__

    def lane(self) -> Lane | None:
        """Of the task that runs; None where at least once was asked for."""
        raise NotImplementedError

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsCommitted:
        """Send those of the task's rows that are not in the log, and return when all of them are committed.

        Raises LocalProtocolError for a row that cannot be sent, or is another than when the task ran before:
        rows before it may be in the log by then. Whatever the cluster's error is, it names the task.
        """
        try:
            lane = self.lane()
            application = "" if lane is None else lane.application
            planned_at = 0 if self._index is None else self._index.end
            try:
                rows, position = self._send(iterator, lane)
                return RowsCommitted(rows, position, application, planned_at=planned_at)
            except BatchRegistered:
                return RowsCommitted(0, -1, application, is_registered=True, planned_at=planned_at)
        except ClusterError as error:
            add_task_name(error)
            raise

    def _send(self, iterator: Iterator[pa.RecordBatch], lane: Lane | None) -> tuple[int, int]:
        with Ahead(iterator) as batches, self._sender(lane) as sender:
            try:
                while (batch := batches.next(sender.poll)) is not None:
                    sender.send(batch)
                return sender.finish()
            except BatchRegistered:
                while batches.next(sender.poll) is not None:
                    pass  # a worker that has not read its input to the end is of no more use to Spark
                raise

    def _sender(self, lane: Lane | None) -> Sender | AeronSender:
        if self._index is None:
            return Sender(self.options, lane)
        from spark_connector.sink.aeron_sending import AeronSender

        return AeronSender(self.options, lane, self._index)

    def register(
        self, messages: Sequence[WriterCommitMessage | None], batch: int, *, is_empty_reported: bool = False
    ) -> None:
        """Let the cluster know that the batch is in the log as a whole, in so many partitions.

        A batch without rows has no lane. To register it adds to a log that the query may read itself, and is
        done where ``is_empty_reported``.
        Raises ClusterError where the batch was registered in another number of partitions, or the log has
        other rows than these tasks: one of them had some when it ran before, and now has none.
        """
        tasks = [message for message in messages if isinstance(message, RowsCommitted)]
        application = next(
            (task.application for task in tasks if task.rows or task.is_registered or is_empty_reported), ""
        )
        if application:
            rows = sum(task.rows for task in tasks)
            lane = Lane(application, REGISTRATION, batch, partitions=len(messages), rows=rows)
            self._open_registration(lane, tasks)
            spare_imports_to_the_collector()

    def _open_registration(self, lane: Lane, tasks: list[RowsCommitted]) -> None:
        if self.options.consensus_endpoints is not None:
            from spark_connector.sink.aeron_sending import register

            planned_at = min(task.planned_at for task in tasks)
            register(self.options, lane, planned_at, max(task.committed_position for task in tasks))
            return
        try:
            open_session(self.options, lane).close()
        except BatchRegistered:
            pass  # by an earlier driver

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int = -1) -> None:
        """Nothing can be undone: what the cluster committed stays in the log; the next attempt finds it."""


class ClusterStreamWriter(_ClusterWriter, DataSourceStreamArrowWriter):
    """Of ``df.writeStream.format("cluster")``: its batches are known by query and number."""

    def __init__(self, options: SinkOptions) -> None:
        """Raises ConfigurationError for options of a batch write."""
        super().__init__(options)
        if options.txn_app_id is not None:
            raise ConfigurationError(
                f"option txnAppId is {options.txn_app_id!r}; expected of batch writes only: "
                "a stream is known by its checkpoint"
            )

    def lane(self) -> Lane | None:
        if self.options.delivery_mode == AT_LEAST_ONCE:
            return None
        return lane_of_stream(is_known=self.options.fail_on_unknown_query)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """The first batch also without rows: from then on the cluster knows the query."""
        self.register(messages, batchId, is_empty_reported=batchId == 0)


class ClusterBatchWriter(_ClusterWriter, DataSourceArrowWriter):
    """Of ``df.write.format("cluster")``: known by ``txnAppId`` and ``txnVersion``, or not at all."""

    def __init__(self, options: SinkOptions) -> None:
        """Raises ConfigurationError for exactly once of a write that has no name."""
        super().__init__(options)
        if options.delivery_mode == EXACTLY_ONCE and options.txn_app_id is None:
            raise ConfigurationError(
                "option deliveryMode is exactly-once; expected txnAppId and txnVersion with it, by which a "
                "batch write is known when it is made again"
            )

    def lane(self) -> Lane | None:
        application, version = self.options.txn_app_id, self.options.txn_version
        return None if application is None or version is None else lane_of_batch(application, version)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self.options.txn_version is not None:
            self.register(messages, self.options.txn_version)
