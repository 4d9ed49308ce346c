"""Reading one task's range of the log as Arrow: what runs on an executor."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from cluster.errors import ClusterError, DataLoss, LogPurged
from cluster.protocol.token import identity_text
from spark_connector.log import (
    IDLE_INTERVAL_S,
    LAG_TIMEOUT_S,
    forget_reader,
    open_reader,
    pass_over,
    report_warnings,
)
from spark_connector.offsets import Offset, check_cluster
from spark_connector.options.cluster_options import SourceOptions
from spark_connector.source.pushed_out import pushed_out
from spark_connector.task import spare_imports_to_the_collector

if TYPE_CHECKING:
    from cluster.log.entry_filter import EntryFilter
    from cluster.reader import LogReader
    from spark_connector.source.decoded_column import DecodedColumn


@dataclass(frozen=True, slots=True)
class LogRange(InputPartition):
    """One task's share: the entries whose first frame starts in ``[start, end)``."""

    cluster: str | None  # the identity of the log that was planned
    start: int
    end: int
    known: int  # a position at or before ``start`` where an entry begins: where the whole micro-batch does


def read_range(
    options: SourceOptions,
    columns: tuple[str, ...],
    log_range: LogRange,
    decoded: DecodedColumn | None = None,
) -> Iterator[pa.RecordBatch]:
    """The range's entries as record batches with ``columns``, in the user's spelling, all of one schema.
    Where ``decoded`` is one of them, it is made as the argument says.

    Raises DataLoss when the log here is not the one that was planned, does not reach as far, or, where that
    is a failure, was purged after the range's start.
    """
    if log_range.start == log_range.end:
        return
    from cluster.log.entry_filter import EntryFilter
    from spark_connector.source.decoded_column import RowMaker

    maker = RowMaker(columns, decoded)
    entry_filter = EntryFilter(options.entry_types, options.sessions, options.template_ids)
    reader = open_checked(options, entry_filter, log_range)
    start, known = log_range.start, log_range.known
    try:
        while start < log_range.end:
            try:
                for batch in reader.batches(
                    reader.boundary_at_or_after(start, known=known, is_committed=True),
                    log_range.end,
                    columns=maker.needed,
                    rows_per_batch=options.rows_per_batch,
                    is_committed=True,
                ):
                    yield from pushed_out(maker.rows(batch))
                report_warnings(options, entry_filter)
                maker.report()
                spare_imports_to_the_collector()
                return
            except LogPurged as error:  # it begins after all that was read
                pass_over(error, options)
                start = known = error.start_position
    except Exception:
        forget_reader(options, entry_filter)  # a broken connection or file is not for the next task
        raise


def open_checked(options: SourceOptions, entry_filter: EntryFilter | None, log_range: LogRange) -> LogReader:
    """The reader of the log that was planned; one of an earlier query, of another log, is opened again."""
    try:
        reader = open_reader(options, entry_filter)
        _check(reader, log_range, options.cluster_dirs is None)
    except ClusterError:
        forget_reader(options, entry_filter)
        reader = open_reader(options, entry_filter)
        _check(reader, log_range, options.cluster_dirs is None, timeout_s=LAG_TIMEOUT_S)
    return reader


def _check(reader: LogReader, log_range: LogRange, is_remote: bool, timeout_s: float = 0.0) -> None:
    """Compare with what was planned.

    A member that runs may lag the one that the driver asked, and has the time-out to catch up. Members over
    the network wait by themselves until they have it all.
    """
    identity = reader.identity
    cluster = None if identity is None else identity_text(*identity)
    check_cluster(Offset(log_range.cluster, log_range.end, from_position=log_range.start), cluster)
    deadline_s = time.monotonic() + timeout_s
    while not is_remote and (end := reader.end_position()) < log_range.end:
        if not reader.is_live or time.monotonic() >= deadline_s:
            raise DataLoss(
                f"the log of cluster {cluster} ends at position {end} here, "
                f"but up to {log_range.end} was planned"
            )
        time.sleep(IDLE_INTERVAL_S)
