"""What the tables look like: documented, laid out for their readers, opened as earlier releases left them."""

from __future__ import annotations

import pytest

from cluster.errors import ConfigurationError
from jobs.delta_table import Commit, append, delta_table, exists, open_table, read
from jobs.schemas import LOG, SESSIONS, TERMS, TIMERS
from spark_connector.schema import ROW_COLUMNS

pytestmark = pytest.mark.timeout(300)

LAYOUTS = [LOG, SESSIONS, TIMERS, TERMS]
COMMIT = Commit("a query", 0, "{}")


@pytest.fixture(scope="module")
def new(spark, tmp_path_factory) -> str:
    """A folder of new tables."""
    folder = tmp_path_factory.mktemp("new")
    for layout in LAYOUTS:
        open_table(spark, f"{folder}/{layout.name}", layout)
    return str(folder)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_every_column_of_a_table_is_explained_in_the_table(spark, new, layout):
    made = read(spark, f"{new}/{layout.name}").schema
    assert made == layout.schema
    assert all(len(field.metadata["comment"]) > 3 for field in made), "the comments are its documentation"


def test_the_table_of_the_log_has_the_columns_of_the_format():
    types = {field.name: field.dataType.simpleString().upper() for field in LOG.schema}
    assert types == {name: kind for name, (kind, _) in ROW_COLUMNS.items()}


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_a_table_is_laid_out_for_its_readers(spark, new, layout):
    detail = delta_table(spark, f"{new}/{layout.name}").detail().first()
    is_merged = layout is not LOG
    assert (detail.description, detail.clusteringColumns) == (layout.comment, [layout.key])
    assert ("delta.enableDeletionVectors" in detail.properties) == is_merged, "an append needs none"
    assert ("delta.enableChangeDataFeed" in detail.properties) == is_merged


@pytest.mark.slow
@pytest.mark.conformance("P-107")
def test_a_table_that_lacks_columns_gets_them_and_keeps_its_rows(spark, table):
    """As a table that an earlier release made is opened by one that has more to say."""
    old = spark.createDataFrame([(7, 96)], "correlationId BIGINT, lastPosition BIGINT")
    old.write.format("delta").save(table)

    assert open_table(spark, table, TIMERS) == 96
    assert open_table(spark, table, TIMERS) == 96

    assert set(read(spark, table).columns) == set(TIMERS.schema.names)
    (row,) = read(spark, table).collect()
    assert (row.correlationId, row.state, row.firings) == (7, None, None)
    assert read(spark, table).schema["firings"].metadata == TIMERS.schema["firings"].metadata
    assert delta_table(spark, table).history().count() == 2, "nothing is committed when nothing lacks"


def test_a_table_of_something_else_is_refused_by_name(spark, table):
    spark.range(3).write.format("delta").save(table)
    with pytest.raises(ConfigurationError, match=rf"{table} has no column clusterSessionId.*; it has id"):
        open_table(spark, table, SESSIONS)


def test_a_column_of_another_type_is_refused_by_name(spark, table):
    columns = "correlationId BIGINT, firings STRING, lastPosition BIGINT"
    spark.createDataFrame([], columns).write.format("delta").save(table)
    with pytest.raises(ConfigurationError, match=r"column firings of table .* is string; expected bigint"):
        open_table(spark, table, TIMERS)


@pytest.fixture
def schema(spark, tmp_path):
    """The name of an empty schema of Spark's catalog."""
    location = tmp_path / "warehouse"
    spark.sql(f"CREATE SCHEMA jobs_test LOCATION '{location}'")
    yield "jobs_test"
    spark.sql("DROP SCHEMA jobs_test CASCADE")


@pytest.mark.slow
def test_a_table_may_be_one_of_the_catalog_and_have_columns_of_its_user(spark, log, schema):
    from jobs.timers import timers_job

    name = f"{schema}.timers"
    assert open_table(spark, name, TIMERS) is None
    noted = spark.createDataFrame([(-1, "mine")], "correlationId BIGINT, note STRING")
    noted.write.format("delta").mode("append").option("mergeSchema", "true").saveAsTable(name)
    timers_job().update(log, name, COMMIT, [])
    append(read(spark, name).limit(0), name, Commit("another", 0, "{}"))

    assert spark.table(name).where("note IS NULL").count() == timers_job().rows(log).count() > 0
    assert spark.table(name).count() == read(spark, name, version=2).count()
    assert open_table(spark, name, TIMERS) == spark.table(name).agg({"lastPosition": "max"}).first()[0]


@pytest.mark.slow
def test_a_path_may_have_any_character(spark, tmp_path):
    path = str(tmp_path / "it's a table, 100%")
    assert open_table(spark, path, TERMS) is None
    assert open_table(spark, path, TERMS) is None
    assert exists(spark, path) and not list(tmp_path.glob("it's a table, 100%25"))
