"""The files that ``cluster log export`` writes: each whole or not at all."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from cluster.errors import StorageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem


class Format(StrEnum):
    """Of an exported file."""

    arrow = "arrow"
    parquet = "parquet"
    csv = "csv"


class Partition(StrEnum):
    """What the entries of one folder have in common."""

    term = "term"
    type = "type"
    day = "day"


COLUMNS = {Partition.term: "leadershipTermId", Partition.type: "entryType", Partition.day: "day"}


def write_columns(
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    format: Format,
    partition: Partition | None,
    file: str,
) -> int:
    """Write a file or, by ``partition``, a folder; return the number of entries."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    count = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for batch in batches:
            count += batch.num_rows
            yield batch

    with _aside(file, is_folder=partition is not None) as (file_system, path):
        if partition is not None:
            _write_folder(counted(), schema, partition, file_system, path)
            return count
        with (
            file_system.open_output_stream(path) as out,
            pa.ipc.new_file(out, schema)
            if format is Format.arrow
            else pq.ParquetWriter(out, schema) as writer,
        ):
            for batch in counted():
                writer.write_batch(batch)
    return count


def _write_folder(
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    partition: Partition,
    file_system: FileSystem,
    path: str,
) -> None:
    """Parquet below ``COLUMN=VALUE`` folders, as Hive has them; the column is not in the files."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    day = pa.field("day", pa.string())
    if partition is Partition.day:
        schema = schema.append(day)
        batches = (
            batch.append_column(day, pc.strftime(batch.column("timestamp"), format="%Y-%m-%d"))
            for batch in batches
        )
    ds.write_dataset(
        pa.RecordBatchReader.from_batches(schema, batches),
        path,
        filesystem=file_system,
        format="parquet",
        partitioning=ds.partitioning(pa.schema([schema.field(COLUMNS[partition])]), flavor="hive"),
        max_partitions=100_000,
    )


def write_csv(rows: Iterable[dict[str, Any]], schema: pa.Schema, file: str) -> int:
    """Write a line of names, then one for each entry; return the number of entries."""
    count = 0
    with _aside(file) as (file_system, path), file_system.open_output_stream(path) as out:
        text = io.TextIOWrapper(out, encoding="utf-8", newline="")
        writer = csv.DictWriter(text, schema.names, extrasaction="ignore")
        writer.writeheader()
        for row in rows:
            writer.writerow(row)
            count += 1
        text.flush()
        text.detach()
    return count


@contextmanager
def _aside(file: str, *, is_folder: bool = False) -> Iterator[tuple[FileSystem, str]]:
    """Where to write what becomes ``file`` in the end; nothing is left of it where that fails.

    Raises StorageError, also for a folder in the place of ``file``.
    """
    from cluster.reader.file_systems import file_system_of, masked, written_aside

    file_system, path = file_system_of(file)
    try:
        with written_aside(file_system, path, is_folder=is_folder) as aside:
            yield file_system, aside
    except OSError as error:
        what = "writing failed" if error.errno is not None else f"writing failed: {error}"
        raise StorageError(masked(file), error.errno, what) from error
