"""The source's two readers: the log as a stream of micro-batches, and a range of it as a batch.

They run on the driver and decide; tasks read (``reading.py``). The end of a micro-batch is decided
here, always at the end of an entry and never past the commit position, so that Spark can write it
down before anything is read, and a micro-batch that runs again is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from cluster.errors import ConfigurationError, LogPurged
from spark_connector.log import SourceLog, forget_reader, warn
from spark_connector.offsets import Offset, batch_range, check_cluster
from spark_connector.options.cluster_options import SourceOptions
from spark_connector.options.places import EARLIEST, LATEST, NamedPlace
from spark_connector.planning import PlanLimits, plan
from spark_connector.source.admission import Admission, EntryCount, Room, end_within
from spark_connector.source.lag import lag
from spark_connector.source.pushdown import Pushed
from spark_connector.source.reading import LogRange, read_range
from spark_connector.source.resolving import resolve, resolve_start

if TYPE_CHECKING:
    from cluster.reader.group_reports import GroupReports
    from spark_connector.source.decoded_column import DecodedColumn


class ClusterBatchReader(DataSourceReader):
    """One range of the log, ``[startingOffsets, endingOffsets)``, by default all that is recorded."""

    def __init__(
        self, options: SourceOptions, columns: tuple[str, ...], decoded: DecodedColumn | None = None
    ) -> None:
        self._options = options
        self._columns = columns
        self._decoded = decoded
        self._pushed = Pushed(options)

    def partitions(self) -> list[InputPartition]:
        options = self._options
        forget_reader(options)  # of an earlier query: another log may be there now
        try:
            return self._planned(SourceLog(options))
        finally:
            forget_reader(options)  # the worker of Spark that plans serves reads of other logs, too

    def _planned(self, log: SourceLog) -> list[InputPartition]:
        options = self._options
        recorded_end = log.recorded_end()
        named_end = options.end() or NamedPlace("endingOffsets", LATEST)
        end = resolve(log, named_end, recorded_end)
        start = resolve_start(log, options, EARLIEST, recorded_end)
        if start > end:
            begins = options.start(EARLIEST).option
            raise ConfigurationError(
                f"option {begins} is position {start}, after {named_end.option}, which is {end}"
            )
        begin, until = self._pushed.range(log, start, end)
        # Spark asks for one range at least.
        ranges = _ranges(options.plan_limits, log.cluster, begin, until, known=start)
        return ranges or [LogRange(log.cluster, start, start, start)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogRange)
        return read_range(self._pushed.options(self._options), self._columns, partition, self._decoded)

    def add_filter(self, condition: Filter) -> None:
        """Read no more than a filter of the query leaves."""
        self._pushed.add(condition)


class FilteringBatchReader(ClusterBatchReader):
    """Takes the filters of the query. Spark refuses it unless ``spark.sql.python.filterPushdown.enabled``."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """All of them, for Spark to check again, are left, as some are taken in part."""
        for condition in filters:
            self.add_filter(condition)
        return filters


class ClusterStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The log by micro-batches. Spark makes several; the one that plans keeps its few notes."""

    remarks: tuple[str, ...] = ()  # lines of ``remarks.py``, for the one that plans to log

    def __init__(
        self, options: SourceOptions, columns: tuple[str, ...], decoded: DecodedColumn | None = None
    ) -> None:
        self._options = options
        self._columns = columns
        self._decoded = decoded
        self._log: SourceLog | None = None
        self._waiting = EntryCount()
        self._admission = Admission(options, self._waiting)
        self._initial: Offset | None = None  # Spark asks twice, and must hear the same
        self._available_now: int | None = None  # where a query with Trigger.AvailableNow ends
        self._latest: tuple[int, int] | None = None  # commit position, and end of the newest micro-batch
        self._planned: Offset | None = None  # the end that was made last: its history need not be checked
        self._reports: GroupReports | None = None

    @property
    def cluster(self) -> str | None:
        """The identity of the log; None while it has no entry."""
        return self._source_log().cluster

    def prepareForTriggerAvailableNow(self) -> None:
        self._available_now = self._source_log().committed_end()

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            log = self._source_log()
            start = resolve_start(log, self._options, LATEST, self._tip(log))
            self._initial = Offset(log.cluster, start, term=log.term_before(start))
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark hands this back to ``latestOffset``; Trigger.Once hands ``ReadAllAvailable`` instead."""
        if self._options.max_entries_per_trigger is not None:
            return ReadMaxRows(self._options.max_entries_per_trigger)
        return ReadMaxBytes(self._options.max_bytes_per_trigger)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch; ``start`` untouched when there is nothing to read."""
        return self.advance(start, self.look(start), self.room(limit))

    def room(self, limit: ReadLimit) -> Room:
        """What a micro-batch may hold. Spark's ``limit`` says no more than whether the options count."""
        if isinstance(limit, ReadAllAvailable):
            return Room(None, None)
        return Room(self._options.max_entries_per_trigger, self._options.max_bytes_per_trigger)

    def look(self, start: dict[str, Any]) -> int:
        """How far the log goes now, after ``start`` if there is anything to read. Raises DataLoss."""
        last = Offset.from_json(start)
        log = self._source_log()
        check_cluster(last, log.cluster)
        tip = self._tip(log)
        self._latest = tip, last.position
        # Also where there is news: that is how the log learns that it lags no longer.
        log.check_not_beyond(last.position, tip, waits=self._available_now is not None)
        if tip <= last.position:
            log.rest()
        if self._available_now is not None and last.position >= self._available_now:
            self._report(last.position)  # Spark commits no last batch of such a query, and ends its process
            self.stop()
        return tip

    def advance(self, start: dict[str, Any], tip: int, room: Room, among: int = 1) -> dict[str, Any]:
        """As ``latestOffset``, of a log that goes to ``tip``, with its part of the ``room`` among so many."""
        last = Offset.from_json(start)
        log = self._source_log()
        if tip <= last.position:
            return start
        if room.is_bounded and not self._is_due(log, last.position, tip):
            log.rest()
            return start
        begin = min(log.retained(last.position), tip)
        end = end_within(log, begin, tip, room, among)
        self._latest = tip, end
        term = log.term_before(end)
        if term != last.term:  # else the last one's history is this one's
            log.check_history(last)
        cluster = check_cluster(last, log.cluster)
        self._planned = Offset(cluster, end, begin, self._options.plan_limits, term)
        return self._planned.to_json()

    def _is_due(self, log: SourceLog, begin: int, tip: int) -> bool:
        """Whether there is enough for a micro-batch. More is not waited for where none comes, or at a gap."""
        is_final = self._available_now is not None or begin < log.start_position
        return is_final or self._admission.is_due(log, begin, tip)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For the query's progress, ``sources[].latestOffset``: how far the log is, and the lag."""
        if self._latest is None:
            return None
        tip, end = self._latest
        log = self._source_log()
        try:
            return lag(log, end, tip, self._waiting)
        except LogPurged as error:
            if self._options.fail_on_data_loss:
                raise
            return lag(log, min(error.start_position, tip), tip, self._waiting)  # what is left

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a micro-batch: the same whenever, wherever and with whatever options it is planned."""
        end_offset = Offset.from_json(end)
        begin, until = self.batch(start, end_offset)
        limits = end_offset.limits or self._options.plan_limits
        return _ranges(limits, end_offset.cluster, begin, until, known=begin)

    def batch(self, start: dict[str, Any], end: Offset) -> tuple[int, int]:
        """The positions ``[from, to)`` of a micro-batch. Raises DataLoss where it is of another history."""
        if end != self._planned:  # it was planned before a restart
            self._source_log().check_history(end)
        return batch_range(Offset.from_json(start), end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogRange)
        return read_range(self._options, self._columns, partition, self._decoded)

    def commit(self, end: dict[str, Any]) -> None:
        """Report for the consumer group, if there is one: others keep no log, and drop none."""
        self._report(Offset.from_json(end).position)

    def _report(self, position: int) -> None:
        if self._options.consumer_group is not None:
            self._reports = self._reports or _group_reports(self._options)
            self._reports.reached(position)

    def stop(self) -> None:
        """The query ends."""
        if self._reports is not None:
            self._reports.close()

    def _source_log(self) -> SourceLog:
        if self._log is None:
            self._log = SourceLog(self._options)
            for line in self.remarks:
                warn(line, whose="")  # of several clusters they hold for all
        return self._log

    def _tip(self, log: SourceLog) -> int:
        """Where the stream ends for now."""
        tip = log.committed_end()
        return tip if self._available_now is None else min(tip, self._available_now)


def _group_reports(options: SourceOptions) -> GroupReports:
    """The reports of a query; one that fails fails no trigger, and is logged once."""
    from cluster.reader.group_reports import GroupReports

    assert options.endpoints is not None and options.consumer_group is not None
    context = copy_context()  # a thread of its own reports, of the same cluster

    def say(line: str) -> None:
        context.run(warn, line)

    return GroupReports(options.consumer_group, options.endpoints, say, **options.client_settings())


class RefusedStreamReader(DataSourceStreamReader):
    """Raises the reason on a stream's first question: PySpark 4.2 buries what ``streamReader()`` raises."""

    def __init__(self, error: ConfigurationError) -> None:
        self._error = error

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise self._error

    initialOffset = latestOffset = partitions = read = _refuse


def _ranges(
    limits: PlanLimits, cluster: str | None, start: int, end: int, *, known: int
) -> list[InputPartition]:
    ranges = plan(start, end, **limits._asdict())
    return [LogRange(cluster, begin, until, known) for begin, until in ranges]
