"""The ``cluster-snapshot`` format: what members keep in snapshots (``snapshot_rows.py``), as a batch.

A task reads the snapshots that all members have of one service at one log position.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark_connector.columns import given_columns, record_batches, struct_type
from spark_connector.options.directory_options import SnapshotOptions
from spark_connector.snapshots.snapshot_copies import snapshots_of, warn_of_silent
from spark_connector.snapshots.snapshot_rows import SNAPSHOT_COLUMNS, snapshot_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from cluster.reader.snapshots import StoredSnapshot


class SnapshotDataSource(DataSource):
    """``spark.read.format("cluster-snapshot")``."""

    @classmethod
    def name(cls) -> str:
        return "cluster-snapshot"

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._parsed = SnapshotOptions.parse(options)

    def schema(self) -> StructType:
        return struct_type(SNAPSHOT_COLUMNS)

    def reader(self, schema: StructType) -> SnapshotReader:
        return SnapshotReader(self._parsed, given_columns(schema, SNAPSHOT_COLUMNS))


@dataclass(frozen=True, slots=True)
class SnapshotsOfMembers(InputPartition):
    """What one task reads: those of one service at one log position, in the order of the members."""

    snapshots: tuple[StoredSnapshot, ...]


class SnapshotReader(DataSourceReader):
    """Plans and reads. A task raises LogDamaged for a snapshot that is not whole, and fails for a member that
    answered when it was planned and does not now.
    """

    def __init__(self, options: SnapshotOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Raises NotAClusterDirectory, LogDamaged, and TimedOut when no member answers."""
        wanted = self._options
        with closing(snapshots_of(wanted)) as snapshots:
            found = snapshots.listed()
            warn_of_silent(snapshots)
        found = [one for one in found if not wanted.service_ids or one.service_id in wanted.service_ids]
        if wanted.is_latest and found:
            found = [one for one in found if one.log_position == found[-1].log_position]
        groups = groupby(found, key=lambda one: (one.log_position, one.service_id))
        # Spark asks for one at least.
        return [SnapshotsOfMembers(tuple(group)) for _, group in groups] or [SnapshotsOfMembers(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SnapshotsOfMembers)
        return record_batches(self._rows(partition.snapshots), SNAPSHOT_COLUMNS, self._columns)

    def _rows(self, planned: tuple[StoredSnapshot, ...]) -> Iterator[dict[str, Any]]:
        if planned:
            with closing(snapshots_of(self._options)) as snapshots:
                yield from snapshot_rows(planned, snapshots)
