"""A stream of what a service does: each micro-batch of the log is given to it, in one task.

    |── before ──|── micro-batch ──|── micro-batch ──▶
    snapshot ────▶ state           ▶ state              kept by the process that ran the task

The state follows from the log. So nothing of it is in the checkpoint: a process that does not have it makes
it again, from the newest snapshot at or before the micro-batch and the log after that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from cluster.errors import ClusterError, LogPurged
from spark_connector.columns import record_batches
from spark_connector.log import forget_reader, warn
from spark_connector.offsets import Offset
from spark_connector.options.cluster_options import SourceOptions
from spark_connector.options.places import EARLIEST, LATEST
from spark_connector.replay.replay_begin import begins, check_begin, first_begin
from spark_connector.replay.replay_columns import STREAM_COLUMNS
from spark_connector.replay.service_replay import app_version_of, event_row, service_replay
from spark_connector.source.readers import ClusterStreamReader
from spark_connector.source.reading import LogRange, open_checked
from spark_connector.task import QUERY_ID

if TYPE_CHECKING:
    from cluster.reader import LogReader
    from cluster.reader.replayed_log import ReplayedLog
    from cluster.reader.snapshots import StoredSnapshot
    from cluster.service.replay import ServiceReplay

KEPT = 4  # services of a process; one that is not used for longest goes first


@dataclass(slots=True)
class KeptService:
    """A service that has been given the log up to ``position``."""

    replay: ServiceReplay
    log: ReplayedLog
    position: int


_kept: dict[tuple[object, ...], KeptService] = {}  # that used last is the last


class ServiceStreamReader(ClusterStreamReader):
    """The rows of a service that is given the log by micro-batches. Offsets are those of the log."""

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            offset = Offset.from_json(super().initialOffset())
            log, options = self._source_log(), self._options
            if options.start(LATEST).place == EARLIEST:
                offset = Offset(
                    offset.cluster, max(offset.position, first_begin(options, log.start_position))
                )
            else:
                check_begin(options, log.start_position, offset.position)
            self._initial = offset
        return self._initial.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One task: a service is given the log in order."""
        end_offset = Offset.from_json(end)
        begin, until = self.batch(start, end_offset)
        return [LogRange(end_offset.cluster, begin, until, begin)] if begin < until else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogRange)
        return record_batches(service_rows(self._options, partition), STREAM_COLUMNS, self._columns)


def service_rows(options: SourceOptions, part: LogRange) -> Iterator[dict[str, Any]]:
    """Give a part of the log to the service; the wanted rows. Raises ClusterError with the part."""
    try:
        reader = open_checked(options, None, part)
        wanted = (row for row in _rows(options, part, reader) if row["kind"] in options.kinds)
        for number, row in enumerate(wanted):
            yield {"beginPosition": part.start, "endPosition": part.end, "number": number, **row}
    except ClusterError as error:
        forget_reader(options)
        what = f"the replay of {options.service} from position {part.start} to {part.end} failed: {error}"
        if isinstance(error, LogPurged):
            raise LogPurged(what, error.start_position) from error
        raise ClusterError(what) from error


def _rows(options: SourceOptions, part: LogRange, reader: LogReader) -> Iterator[dict[str, Any]]:
    """Whatever ends this early, a failure or Spark, leaves no service that is somewhere within the part."""
    from cluster.service.replay import Saved

    context = TaskContext.get()
    query_id = None if context is None else context.getLocalProperty(QUERY_ID)
    key = os.getpid(), query_id, part.cluster, options
    kept = _kept.pop(key, None)
    if kept is None or kept.position != part.start:
        kept = _service_at(options, reader, part)
    kept.log.extend(reader, part.end)
    for event in kept.replay.run(part.end):
        if not isinstance(event, Saved):
            yield event_row(event)
    if "STATE" in options.kinds:
        for record in kept.replay.state():
            yield {"kind": "STATE", "position": part.end, "payload": record}
    kept.position = part.end
    _kept[key] = kept
    while len(_kept) > KEPT:
        del _kept[next(iter(_kept))]


def _service_at(options: SourceOptions, reader: LogReader, part: LogRange) -> KeptService:
    """The service as it is at the beginning of a part. Raises LogPurged when that cannot be made any more."""
    from cluster.reader.snapshots import UNREADABLE

    for snapshot in begins(options, reader.start_position, part.start):
        try:
            kept = _begun(options, reader, snapshot, part)
        except UNREADABLE as error:
            if snapshot is None:
                raise
            warn(f"the snapshot at position {snapshot.log_position} is passed over: {error}")
            continue
        for _ in kept.replay.run(part.start):
            pass  # rows of micro-batches before
        return kept
    raise AssertionError("what comes last is begun with, or not there")


def _begun(
    options: SourceOptions, reader: LogReader, snapshot: StoredSnapshot | None, part: LogRange
) -> KeptService:
    from cluster.reader.replayed_log import ReplayedLog

    if snapshot is None:
        begin, app_version = 0, app_version_of(reader, 0, part.end)
    else:
        begin, app_version = snapshot.log_position, snapshot.app_version()
    log = ReplayedLog(reader, begin, part.start)
    replay = service_replay(options, reader, log, begin, snapshot, app_version)
    return KeptService(replay, log, part.start)
