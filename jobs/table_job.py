"""What one table is kept by, in words of Spark and of Arrow: for ``jobs.keeping`` and ``jobs.delta_rs``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from jobs.delta_table import Commit, Missing, append, merge
from jobs.schemas import TableLayout
from spark_connector.columns import arrow_schema
from spark_connector.schema import ROW_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Found = list[dict[str, Any]]  # entries that stand for what only snapshots say
Entries = Iterator["pa.RecordBatch"]
Known = Callable[[], "pa.Table"]  # the rows that the table has


class FromSnapshots(Protocol):
    """What finds, for one batch after another, entries that stand for what only snapshots say."""

    def __call__(self, is_first: bool, end: int) -> Found:
        """Entries of snapshots up to position ``end``; ``is_first``: the first batch of an empty table."""


@dataclass(frozen=True, slots=True)
class TableJob:
    """One table: what it looks like, what it needs of the Log, and how entries go in.

    Without ``reduced`` entries are appended as they are. Else it makes rows of Arrow's entries, with those
    that the table has where it is to know them; Spark merges ``merged``, by default ``rows``. ``on_match``
    says what the rows become that the table has, and those whose key has no row, as
    ``jobs.delta_table.merge``. Until they are reduced, Arrow's entries are in memory as ``kept`` makes them.
    """

    name: str
    layout: TableLayout
    rows: Callable[[DataFrame], DataFrame]  # what a table holds that is made of these entries alone
    columns: tuple[str, ...] = ()  # of the Log that it needs; () for all of them
    entry_types: tuple[str, ...] = ()  # that it needs; () for all of them
    reduced: Callable[[Entries, Known], pa.Table] | None = None
    on_match: Callable[[Found], tuple[dict[str, str], Missing | None]] = lambda found: ({}, None)
    from_snapshots: Callable[[dict[str, str]], FromSnapshots] | None = None  # with the options of the source
    merged: Callable[[DataFrame, str], DataFrame] | None = None  # of entries, for the table
    kept: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda batch: batch

    @property
    def progress(self) -> str:
        """The column of the Log that the table's own progress is compared with."""
        return "endPosition" if self.reduced is None else "position"

    def update(self, entries: DataFrame, table: str, commit: Commit, found: Found) -> None:
        """Take a batch's ``entries`` by Spark; those that were ``found`` in snapshots are among them."""
        if self.reduced is None:
            append(entries, table, commit)
            return
        rows = self.rows(entries) if self.merged is None else self.merged(entries, table)
        on_match, missing = self.on_match(found)
        merge(rows, table, self.layout.key, on_match, commit, missing)

    @property
    def schema(self) -> pa.Schema:
        """Of the entries that it needs."""
        import pyarrow as pa

        columns = {name: (ROW_COLUMNS[name], "") for name in self.columns or ROW_COLUMNS}
        return pa.schema([field.remove_metadata() for field in arrow_schema(columns)])

    def share(self, batch: pa.RecordBatch, begin: int) -> pa.RecordBatch:
        """What it needs of a batch of entries, from log position ``begin`` on."""
        import pyarrow as pa
        import pyarrow.compute as pc

        is_wanted = pc.greater_equal(batch["position"], begin)
        if self.entry_types:
            is_wanted = pc.and_(is_wanted, pc.is_in(batch["entryType"], pa.array(self.entry_types)))
        return batch.select(self.columns or ROW_COLUMNS).filter(is_wanted)
