"""A batch goes into a Delta table once, whatever is repeated.

Two guards, each enough for its own kind of repetition:

- *The same batch again* (a crash between Delta's commit and Spark's): every write names the query and the
  batch (``txnAppId``, ``txnVersion``), and Delta skips a version that it has recorded.
- *The same rows in other batches* (a new checkpoint over an old table): a table remembers how far in the log
  its rows come from, and entries up to there are left out. That is sound because batches take the log in
  order and each goes in whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_APP_ID = "spark.databricks.delta.write.txnAppId"
_VERSION = "spark.databricks.delta.write.txnVersion"

TABLE_PROPERTIES = {"delta.enableDeletionVectors": "true"}


def open_table(
    spark: SparkSession,
    path: str,
    columns: str,
    *,
    cluster_by: str | None = None,
    properties: dict[str, str] | None = None,
    progress: str = "lastPosition",
) -> int | None:
    """Make the Delta table at ``path`` with ``columns`` (DDL) unless it is there.

    Returns how far in the log its rows come from, the largest of column ``progress``; None without rows.
    """
    from delta.tables import DeltaTable

    if DeltaTable.isDeltaTable(spark, path):
        (row,) = spark.sql(f"SELECT max({progress}) FROM {name_of(path)}").collect()
        known_to: int | None = row[0]
        return known_to
    clustering = f"CLUSTER BY ({cluster_by})" if cluster_by else ""
    pairs = ", ".join(
        f"'{key}' = '{value}'" for key, value in (TABLE_PROPERTIES | (properties or {})).items()
    )
    spark.sql(f"CREATE TABLE {name_of(path)} ({columns}) USING delta {clustering} TBLPROPERTIES ({pairs})")
    return None


def name_of(path: str) -> str:
    """The SQL name of the Delta table at ``path``."""
    return "delta.`{}`".format(path.replace("`", "``"))


def beyond(entries: DataFrame, position: int | None, column: str = "position") -> DataFrame:
    """The entries whose ``column`` is greater than ``position``; all of them when the table is empty."""
    return entries if position is None else entries.where(entries[column] > position)


def merge(
    updates: DataFrame,
    path: str,
    key: str,
    on_match: dict[str, str],
    transaction: tuple[str, int],
) -> None:
    """MERGE ``updates``, one row a ``key``, into the table at ``path``.

    A new key is inserted as it is; for a known one ``on_match`` says what each column becomes, in terms of
    ``t`` (the table) and ``s`` (the update), and columns it does not name stay.
    """
    spark = updates.sparkSession
    assignments = ", ".join(f"t.{column} = {value}" for column, value in on_match.items())
    updates = updates.persist()  # MERGE reads its source twice, and the batch would come from the log twice
    try:
        updates.createOrReplaceTempView("merge_updates")
        with _transaction(spark, *transaction):
            spark.sql(
                f"MERGE INTO {name_of(path)} t USING merge_updates s ON t.{key} = s.{key} "
                f"WHEN MATCHED THEN UPDATE SET {assignments} WHEN NOT MATCHED THEN INSERT *"
            )
    finally:
        updates.unpersist()


@contextmanager
def _transaction(spark: SparkSession, app_id: str, version: int) -> Iterator[None]:
    spark.conf.set(_APP_ID, app_id)
    spark.conf.set(_VERSION, str(version))
    try:
        yield
    finally:
        spark.conf.unset(_APP_ID)
        spark.conf.unset(_VERSION)


def query_id(batch: DataFrame) -> str:
    """The id of the streaming query that is handing over ``batch``.

    It lives as long as the checkpoint: a new checkpoint counts its batches from 0 again and must not pass
    for the old one, which Delta would take for a repetition.
    """
    found = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    assert found, "only a streaming query's batch has one"
    return str(found)
