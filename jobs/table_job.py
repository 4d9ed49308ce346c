"""What one table is kept by, in words of Spark and of Arrow: for ``jobs.keeping`` and ``jobs.delta_rs``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobs.delta_table import Commit, Missing, append, merge, read
from jobs.schemas import PENDING, SNAPSHOT, TableLayout
from spark_connector.columns import arrow_schema, struct_type
from spark_connector.schema import ROW_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from jobs.reductions import Reduction

Found = list[dict[str, Any]]  # entries that stand for what only snapshots say
Entries = Iterator["pa.RecordBatch"]
# Finds those of each batch: is it the first of an empty table, and up to which position.
FromSnapshots = Callable[[bool, int], Found]


@dataclass(frozen=True, slots=True)
class TableJob:
    """One table: what it looks like, what it needs of the Log, and how entries go in.

    Without ``reduction`` entries are appended as they are. Else its rows are merged: ``on_match`` says what
    the rows become that the table has, and those whose key has no row, as ``jobs.delta_table.merge``.
    """

    name: str
    layout: TableLayout
    columns: tuple[str, ...] = ()  # of the Log that it needs; () for all of them
    entry_types: tuple[str, ...] = ()  # that it needs; () for all of them
    reduction: Reduction | None = None
    is_cumulative: bool = False  # the rows that the table has are reduced, too, as parts
    on_match: Callable[[Found], tuple[dict[str, str], Missing | None]] = lambda found: ({}, None)
    from_snapshots: Callable[[dict[str, str]], FromSnapshots] | None = None  # with the options of the source

    @property
    def progress(self) -> str:
        """The column of the Log that the table's own progress is compared with."""
        return "endPosition" if self.reduction is None else "position"

    def update(self, entries: DataFrame, table: str, commit: Commit, found: Found) -> None:
        """Take a batch's ``entries`` by Spark; those that were ``found`` in snapshots are among them."""
        if self.reduction is None:
            append(entries, table, commit)
            return
        known = read(entries.sparkSession, table) if self.is_cumulative else None
        on_match, missing = self.on_match(found)
        merge(self.rows(entries, known), table, self.layout.key, on_match, commit, missing)

    def rows(self, entries: DataFrame, known: DataFrame | None = None) -> DataFrame:
        """What a table holds that is made of ``entries`` alone, or of ``known``, rows of it, and of them.

        The entries of each partition are reduced where they are, and what comes of that in one task.
        """
        if (reduction := self.reduction) is None:
            return entries
        from pyspark import cloudpickle
        from pyspark.sql import functions as f

        import jobs

        cloudpickle.register_pickle_by_value(jobs)  # executors need not have the package
        if self.entry_types:
            entries = entries.where(f.col("entryType").isin(*self.entry_types, SNAPSHOT, PENDING))
        payload_length = f.octet_length("payload").alias("bytes")
        parts = entries.select(*(payload_length if name == "payload" else name for name in self.columns))
        if reduction.partial is not None:
            parts = parts.mapInArrow(reduction.parts_of, struct_type(reduction.parts))
        if known is not None:
            parts = known.select(*reduction.parts).unionByName(parts)
        whole = parts.repartition(1)
        return whole.mapInArrow(lambda parts: iter(reduction.rows_of(parts).to_batches()), self.layout.schema)

    @property
    def schema(self) -> pa.Schema:
        """Of the entries that it needs."""
        import pyarrow as pa

        columns = {name: ROW_COLUMNS[name] for name in self.columns or ROW_COLUMNS}
        return pa.schema([field.remove_metadata() for field in arrow_schema(columns)])

    def share(self, batch: pa.RecordBatch, begin: int) -> pa.RecordBatch:
        """What it needs of a batch of entries, from log position ``begin`` on."""
        import pyarrow as pa
        import pyarrow.compute as pc

        is_wanted = pc.greater_equal(batch["position"], begin)
        if self.entry_types:
            is_wanted = pc.and_(is_wanted, pc.is_in(batch["entryType"], pa.array(self.entry_types)))
        return batch.select(self.columns or ROW_COLUMNS).filter(is_wanted)
