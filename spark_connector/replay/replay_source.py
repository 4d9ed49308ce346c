"""The ``cluster-replay`` format: a service and the log once more, compared with what members have saved.

    |── interval ──|── interval ──|── interval ──|    a task each
    nothing        snapshot       snapshot            to begin with, and to compare with at the end of the
                                                      interval before

A deterministic service saves at the end of an interval, byte for byte, what members have saved there. So the
history is replayed in parallel, and each task proves its part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from cluster.errors import ClusterError, DataLoss
from spark_connector.columns import given_columns, record_batches, struct_type
from spark_connector.options.directory_options import ReplayOptions
from spark_connector.replay.replay_begin import snapshot_positions
from spark_connector.replay.replay_columns import NOT_COMPARED, REPLAY_COLUMNS
from spark_connector.replay.service_replay import app_version_of, event_row, service_replay
from spark_connector.snapshots.snapshot_copies import snapshots_of, warn_of_silent

if TYPE_CHECKING:
    import pyarrow as pa

    from cluster.reader import LogReader
    from cluster.reader.member_snapshots import SilentMember
    from cluster.reader.replayed_log import ReplayInterval
    from cluster.reader.snapshots import StoredSnapshot
    from cluster.service.replay import Saved, ServiceReplay
    from spark_connector.snapshots.snapshot_copies import Snapshots

SHOWN_BYTES = 100


class ReplayDataSource(DataSource):
    """``spark.read.format("cluster-replay")``."""

    @classmethod
    def name(cls) -> str:
        return "cluster-replay"

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._parsed = ReplayOptions.parse(options)

    def schema(self) -> StructType:
        return struct_type(REPLAY_COLUMNS)

    def reader(self, schema: StructType) -> ReplayReader:
        return ReplayReader(self._parsed, given_columns(schema, REPLAY_COLUMNS))


@dataclass(frozen=True, slots=True)
class ReplayTask(InputPartition):
    """What one task replays; None of a log without entries."""

    interval: ReplayInterval | None


class ReplayReader(DataSourceReader):
    """Plans by the snapshots that are there, and replays."""

    def __init__(self, options: ReplayOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Raises NotAClusterDirectory, LogDamaged, LogPurged, and TimedOut when no member answers."""
        from cluster.reader.replayed_log import replay_intervals

        options = self._options
        with _log_of(options) as reader:
            start, end = reader.earliest_position(), reader.end_position()
        with closing(snapshots_of(options, options.service_id)) as snapshots:
            positions = list(snapshot_positions(snapshots, start))
            warn_of_silent(snapshots)
        intervals = replay_intervals(start, end, positions, is_whole=options.is_whole)
        # Spark asks for one at least.
        return [ReplayTask(interval) for interval in intervals] or [ReplayTask(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ReplayTask)
        rows = iter(()) if partition.interval is None else replay_rows(self._options, partition.interval)
        return record_batches(rows, REPLAY_COLUMNS, self._columns)


def _log_of(options: ReplayOptions) -> LogReader:
    from cluster.reader import LogReader

    if options.endpoints is None:
        return LogReader.open(dir=options.cluster_dir, archive_dir=options.archive_dir)
    settings = options.client_settings()
    if options.request_timeout_ms is not None:
        settings["timeout_s"] = options.request_timeout_ms / 1000
    return LogReader.open(endpoints=options.endpoints, **settings)


def replay_rows(options: ReplayOptions, interval: ReplayInterval) -> Iterator[dict[str, Any]]:
    """The wanted rows of an interval, in order. Raises ClusterError with the interval."""
    where = {"beginPosition": interval.begin, "endPosition": interval.end}
    try:
        with (
            _log_of(options) as reader,
            closing(snapshots_of(options, options.service_id)) as snapshots,
            closing(CopiesOnce(snapshots)) as copies,
        ):
            rows = _all_rows(options, interval, reader, copies)
            wanted = (row for row in rows if row["kind"] in options.kinds)
            for number, row in enumerate(wanted):
                yield {**where, "number": number, **row}
    except ClusterError as error:
        what = f"the replay of {options.service} from position {interval.begin} to {interval.end}"
        raise ClusterError(f"{what} failed: {error}") from error


class CopiesOnce:
    """The snapshots that a task needs, to begin with and to compare with; each is fetched once."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self._begun: dict[int, tuple[StoredSnapshot, Iterator[StoredSnapshot]]] = {}

    def first(self, position: int) -> StoredSnapshot:
        """One of those at a position; it stays until ``at`` goes on from it. Raises as ``at``."""
        if position not in self._begun:
            copies = self._snapshots.copies(position)
            if (copy := next(copies, None)) is None:
                raise DataLoss(f"the snapshot at position {position} is gone since the replay was planned")
            self._begun[position] = copy, copies
        return self._begun[position][0]

    def at(self, position: int) -> Iterator[StoredSnapshot]:
        """All members' at a position, one after the other. Raises DataLoss when they are gone, TimedOut."""
        self.first(position)
        copy, others = self._begun.pop(position)
        return chain([copy], others)

    @property
    def silent(self) -> list[SilentMember]:
        """The members that have not answered so far."""
        return list(self._snapshots.silent)

    def close(self) -> None:
        """Delete what was fetched and not used."""
        self._begun.clear()


def _all_rows(
    options: ReplayOptions, interval: ReplayInterval, reader: LogReader, snapshots: CopiesOnce
) -> Iterator[dict[str, Any]]:
    from cluster.service.replay import Saved

    replay = _replay(options, interval, reader, snapshots)
    to_compare = list(interval.compared) if "SNAPSHOT" in options.kinds else []
    for event in replay.run(interval.end):
        if isinstance(event, Saved):
            if event.position in to_compare:
                to_compare.remove(event.position)
                yield from _compared(replay, snapshots, event.position, event)
            if event.position < interval.end:
                yield from _state(event.state, event.position)
        else:
            yield event_row(event)
    for position in to_compare:
        yield from _compared(replay, snapshots, position, None)
    if "STATE" in options.kinds:
        yield from _state(replay.state(), interval.end)


def _replay(
    options: ReplayOptions, interval: ReplayInterval, reader: LogReader, snapshots: CopiesOnce
) -> ServiceReplay:
    """The service as it is at the beginning, by the first copy of the snapshot there that can be read."""
    from cluster.reader.replayed_log import ReplayedLog
    from cluster.reader.snapshots import UNREADABLE

    app_version = _app_version(interval, reader, snapshots)
    unreadable: ClusterError | None = None
    for start in snapshots.at(interval.begin) if interval.is_from_snapshot else (None,):
        try:
            log = ReplayedLog(reader, interval.begin, interval.end)
            return service_replay(options, reader, log, interval.begin, start, app_version)
        except UNREADABLE as error:
            unreadable = error
    assert unreadable is not None, "there is one copy at least"
    raise unreadable


def _app_version(interval: ReplayInterval, reader: LogReader, snapshots: CopiesOnce) -> int:
    """Of the application that saved what is compared, else of the log's first leadership term."""
    saved = [*interval.compared, *([interval.begin] if interval.is_from_snapshot else [])]
    if saved:
        return snapshots.first(saved[0]).app_version()
    return app_version_of(reader, interval.begin, interval.end)


def _state(records: Iterable[bytes], position: int) -> Iterator[dict[str, Any]]:
    return ({"kind": "STATE", "position": position, "payload": record} for record in records)


def _compared(
    replay: ServiceReplay, snapshots: CopiesOnce, position: int, saved: Saved | None
) -> Iterator[dict[str, Any]]:
    """A row a member's snapshot, also of a member that does not answer; ``saved``: by the replay, or None."""
    for stored in snapshots.at(position):
        difference = _difference(stored, saved)
        yield {
            "kind": "SNAPSHOT",
            "position": position,
            "clusterTime": stored.timestamp,
            "memberId": stored.member_id,
            "directory": stored.directory,
            "isEqual": not difference if replay.compares_snapshots else None,
            "message": difference or None,
        }
    for member in snapshots.silent:
        yield {
            "kind": "SNAPSHOT",
            "position": position,
            "memberId": member.member_id,
            "directory": member.endpoint,
            "message": f"{NOT_COMPARED}{member}",
        }


def _difference(stored: StoredSnapshot, saved: Saved | None) -> str:
    from cluster.reader.snapshots import UNREADABLE

    if saved is None:
        return "the log asks for no snapshot here"
    try:
        for number, (there, here) in enumerate(zip_longest(stored.open(), saved.records)):
            if there != here:
                return f"record {number} is {_shown(there)}, the replay saves {_shown(here)}"
    except UNREADABLE as error:
        raise ClusterError(f"the snapshot of {stored.member} cannot be compared: {error}") from error
    return ""


def _shown(record: bytes | None) -> str:
    if record is None:
        return "none"
    return f"{record[:SHOWN_BYTES]!r}" + ("…" if len(record) > SHOWN_BYTES else "")
