"""The sink over several clusters: each row to the one that its key says, each once there.

A task has a session, and so a lane, with each cluster that it has rows for. What holds for one cluster holds
for each: an attempt that runs again skips what is in, a batch is registered with each that has some of it.

Other names would send keys elsewhere, where the rows of a batch that is repeated are not known. So each task
that has rows first registers the names of its batch with every cluster, and which of them that one has, as a
batch of an application of their own, in as many partitions as the checksum of that says. A cluster refuses
another number: other names, another cluster's name, or one cluster under two names, whose lanes would be one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from cluster.errors import BatchRegistered, ClusterError, ConfigurationError
from cluster.protocol.lane import REGISTRATION, Lane
from spark_connector.many_clusters.routing import Routing
from spark_connector.sink.sending import Ahead, Sender, open_session
from spark_connector.sink.writers import ClusterBatchWriter, ClusterStreamWriter, RowsCommitted
from spark_connector.task import add_task_name

if TYPE_CHECKING:
    import pyarrow as pa

OF_NAMES = "/clusters"  # after the application of a batch: that of its names

Messages = Sequence[WriterCommitMessage | None]


@dataclass(frozen=True, slots=True)
class RoutedRows(WriterCommitMessage):
    """What a task has in each log."""

    parts: dict[str, RowsCommitted]


class _ManyWriter:
    """What the writers for streams and for batches have in common."""

    def __init__(
        self, writers: Mapping[str, ClusterStreamWriter | ClusterBatchWriter], routing: Routing
    ) -> None:
        self._writers = dict(writers)
        self._routing = routing

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RoutedRows:
        """As the sink of one cluster. What is wrong names the cluster, if it is wrong with one."""
        name = ""
        try:
            with Ahead(iterator) as batches, ExitStack() as opened:
                tasks = {name: _Part(writer, opened) for name, writer in self._writers.items()}

                def poll() -> None:
                    nonlocal name
                    for polled, task in tasks.items():
                        name = polled
                        task.sender.poll()

                is_begun = False  # a task without rows leaves no trace in a log
                while (batch := batches.next(poll)) is not None:
                    if batch.num_rows and not is_begun:
                        is_begun = True
                        for name in self._writers:
                            self._register_names(name)
                    for name, rows in self._routing.split(batch):
                        tasks[name].send(rows)
                parts = {}
                for name, task in tasks.items():
                    parts[name] = task.finish()
                return RoutedRows(parts)
        except ClusterError as error:
            add_task_name(error, name or None)
            raise

    def _register_names(self, name: str) -> None:
        """With one cluster. Raises ConfigurationError where the batch was begun with others, or otherwise."""
        writer = self._writers[name]
        lane = writer.lane()
        if lane is None:
            return
        application, names = lane.application + OF_NAMES, ",".join(sorted(self._writers))
        checksum = zlib.crc32(f"{names}={name}".encode()) >> 1 or 1
        try:
            open_session(writer.options, Lane(application, REGISTRATION, lane.batch, checksum)).close()
        except BatchRegistered:
            pass  # by another task
        except ClusterError as error:
            if "was registered with" not in str(error):
                raise
            raise ConfigurationError(
                f"batch {lane.batch} of {lane.application} was begun with other clusters than {names}, or "
                "with this one under another name; expected a name for each cluster, and the same ones until "
                "the batch is complete, for its rows to go where they went"
            ) from None

    def _parts(self, messages: Messages) -> Iterator[tuple[str, list[RowsCommitted | None]]]:
        """What tasks have in each log, for its batch to be registered."""
        for name in self._writers:
            yield name, [m.parts[name] if isinstance(m, RoutedRows) else None for m in messages]

    def abort(self, messages: Messages, batchId: int = -1) -> None:
        """Nothing can be undone, as with one cluster."""


class _Part:
    """A task's rows for one cluster."""

    def __init__(self, writer: ClusterStreamWriter | ClusterBatchWriter, opened: ExitStack) -> None:
        lane = writer.lane()
        self.sender = opened.enter_context(Sender(writer.options, lane))
        self._application = "" if lane is None else lane.application
        self._is_registered = False

    def send(self, rows: pa.RecordBatch) -> None:
        if not self._is_registered:
            try:
                self.sender.send(rows)
            except BatchRegistered:
                self._is_registered = True

    def finish(self) -> RowsCommitted:
        if not self._is_registered:
            try:
                rows, position = self.sender.finish()
                return RowsCommitted(rows, position, self._application)
            except BatchRegistered:
                pass
        return RowsCommitted(0, -1, self._application, is_registered=True)


class ManyStreamWriter(_ManyWriter, DataSourceStreamArrowWriter):
    """Of a stream."""

    def commit(self, messages: Messages, batchId: int) -> None:
        for name, parts in self._parts(messages):
            self._writers[name].register(parts, batchId, is_empty_reported=batchId == 0)


class ManyBatchWriter(_ManyWriter, DataSourceArrowWriter):
    """Of a batch write."""

    def __init__(self, writers: Mapping[str, ClusterBatchWriter], routing: Routing) -> None:
        """Raises ConfigurationError for a ``txnAppId`` that is too long."""
        super().__init__(writers, routing)
        application = next(iter(writers.values())).options.txn_app_id
        try:
            Lane((application or "-") + OF_NAMES, REGISTRATION, 0)
        except ConfigurationError as error:
            raise ConfigurationError(
                f"option txnAppId is {application!r}: {error}; with several clusters {OF_NAMES!r} is added"
            ) from None

    def commit(self, messages: Messages) -> None:
        for name, parts in self._parts(messages):
            if (version := self._writers[name].options.txn_version) is not None:
                self._writers[name].register(parts, version)
