"""A Delta table by its path or its name: made, opened, read, and written to exactly once.

Two guards keep a batch from going in twice, each enough for its own kind of repetition:

- *The same batch again* (a crash between Delta's commit and Spark's): every commit names the query and the
  batch (``txnAppId``, ``txnVersion``), and Delta skips a version that it has recorded.
- *The same rows in other batches* (a new checkpoint over an old table): a table remembers how far in the Log
  its rows come from, and entries up to there are left out. That is sound because batches take the Log in
  order and each goes in whole.

Every commit also says, as ``userMetadata``, how far in the Log it goes: a position token, which
``jobs.history`` finds a version by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from cluster.errors import ConfigurationError
from jobs.schemas import SPARK, WRITER, TableLayout

if TYPE_CHECKING:
    from delta.tables import DeltaTable
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

T = TypeVar("T")
ATTEMPTS = 5  # at a commit that others exclude
_APP_ID = "spark.databricks.delta.write.txnAppId"
_VERSION = "spark.databricks.delta.write.txnVersion"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


class Commit(NamedTuple):
    """What a commit says of itself."""

    application: str  # who writes; lives as long as a checkpoint
    batch: int  # Delta skips those of one application that it has, and all below
    token: str  # position token: the table then has what the Log says before it


def is_name(table: str) -> bool:
    """Whether ``table`` is a name of Spark's catalog; else it is a path, which always has a slash."""
    return "/" not in table


def exists(spark: SparkSession, table: str) -> bool:
    """Whether the catalog has the name, or the path is that of a Delta table."""
    from delta.tables import DeltaTable

    return spark.catalog.tableExists(table) if is_name(table) else DeltaTable.isDeltaTable(spark, table)


def delta_table(spark: SparkSession, table: str) -> DeltaTable:
    """The Delta table that is there."""
    from delta.tables import DeltaTable

    return DeltaTable.forName(spark, table) if is_name(table) else DeltaTable.forPath(spark, table)


def read(spark: SparkSession, table: str, version: int | None = None) -> DataFrame:
    """The rows of a table, of its newest version or of another one that is still there."""
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    return reader.table(table) if is_name(table) else reader.load(table)


def latest_version(spark: SparkSession, table: str) -> int:
    """The number of a table's latest version."""
    (commit,) = delta_table(spark, table).history(1).collect()
    return int(commit.version)


def open_table(spark: SparkSession, table: str, layout: TableLayout) -> int | None:
    """Make ``table``, or add lacking columns; how far its rows go, or None. Raises ConfigurationError."""
    if not exists(spark, table):
        _make(spark, table, layout)
        return None
    _check_writer(spark, table)
    _add_columns(spark, table, layout)
    progress = read(spark, table).agg({layout.progress: "max"}).first()
    assert progress is not None
    known_to: int | None = progress[0]
    return known_to


def _make(spark: SparkSession, table: str, layout: TableLayout) -> None:
    from delta.tables import DeltaTable

    builder = DeltaTable.createIfNotExists(spark).comment(layout.comment).addColumns(layout.schema)
    builder = builder.clusterBy(layout.key)
    builder = builder.tableName(table) if is_name(table) else builder.location(table)
    for name, value in {**layout.properties, WRITER: SPARK}.items():
        builder = builder.property(name, value)
    builder.execute()


def _check_writer(spark: SparkSession, table: str) -> None:
    """Refuse a table that is not Spark's to write, though Spark may read it."""
    (detail,) = delta_table(spark, table).detail().collect()
    writer = detail.properties.get(WRITER, SPARK)
    if writer != SPARK:
        raise ConfigurationError(f"table {table} is kept by {writer}; expected one that Spark keeps")


def _add_columns(spark: SparkSession, table: str, layout: TableLayout) -> None:
    """Give a table of an earlier release what it lacks."""
    there, wanted = (
        {field.name: field.dataType for field in schema}
        for schema in (read(spark, table).schema, layout.schema)
    )
    if layout.lacking(table, there, wanted, lambda kind: kind.simpleString()):
        writer = spark.createDataFrame([], layout.schema).write.format("delta").mode("append")
        writer = writer.option("mergeSchema", "true")
        _save(writer, table)


def _save(writer: DataFrameWriter, table: str) -> None:
    writer.saveAsTable(table) if is_name(table) else writer.save(table)


def overwrite(rows: DataFrame, table: str, token: str) -> None:
    """Put ``rows`` in the place of all others in one commit that says how far in the Log they go."""
    writer = rows.write.format("delta").mode("overwrite").option("userMetadata", token)
    _save(writer, table)


def retried(commit: Callable[[], T]) -> T:
    """What ``commit`` returns, which is made again when another one excluded it.

    A merge and an OPTIMIZE exclude each other when they touch the same files; whichever is later fails. So
    does a commit that began before the table's schema, properties or protocol changed.
    """
    from delta import exceptions

    excluded = (
        exceptions.ConcurrentAppendException,
        exceptions.ConcurrentDeleteDeleteException,
        exceptions.ConcurrentDeleteReadException,
        exceptions.ConcurrentWriteException,
        exceptions.MetadataChangedException,
        exceptions.ProtocolChangedException,
    )
    for attempts_left in reversed(range(ATTEMPTS)):
        try:
            return commit()
        except excluded:
            if not attempts_left:
                raise
    raise AssertionError("one attempt at least")


def append(rows: DataFrame, table: str, commit: Commit) -> None:
    """Append ``rows`` in a commit of their own, once."""
    writer = rows.write.format("delta").mode("append").option("userMetadata", commit.token)
    writer = writer.option("txnAppId", commit.application).option("txnVersion", commit.batch)
    _save(writer, table)


class Missing(NamedTuple):
    """What becomes of rows whose key has no update."""

    condition: str  # in terms of ``t``
    values: dict[str, str]


def merge(
    updates: DataFrame,
    table: str,
    key: str,
    on_match: Mapping[str, str],
    commit: Commit,
    missing: Missing | None = None,
) -> None:
    """MERGE ``updates``, one row a ``key``, into ``table``, once.

    A new key is inserted as it is; for a known one ``on_match`` says what each column becomes, in terms of
    ``t`` (the table) and ``s`` (the update), and columns it does not name stay.
    """
    spark = updates.sparkSession
    updates = updates.persist()  # MERGE reads its source twice, and the batch would come from the log twice
    try:
        with _says(spark, commit):
            retried(lambda: _merge(updates, table, key, on_match, missing))
    finally:
        updates.unpersist()


def _merge(
    updates: DataFrame, table: str, key: str, on_match: Mapping[str, str], missing: Missing | None
) -> None:
    there = delta_table(updates.sparkSession, table).alias("t")
    merging = there.merge(updates.alias("s"), f"t.{key} = s.{key}").whenMatchedUpdate(set={**on_match})
    merging = merging.whenNotMatchedInsert(values={name: f"s.{name}" for name in updates.columns})
    if missing is not None:
        merging = merging.whenNotMatchedBySourceUpdate(missing.condition, {**missing.values})
    merging.execute()


@contextmanager
def _says(spark: SparkSession, commit: Commit) -> Iterator[None]:
    """What the session commits inside says so; MERGE takes no options of its own."""
    settings = dict(zip((_APP_ID, _VERSION, _USER_METADATA), map(str, commit)))
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(name)
