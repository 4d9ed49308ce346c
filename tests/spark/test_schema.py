"""Columns of the row: pruning by a narrower schema, and what a sink takes."""

import pytest
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cluster.errors import ConfigurationError
from cluster.log.columns import FRAME_SCHEMA, ROW_SCHEMA
from spark_connector import columns, register
from spark_connector.data_source import ClusterDataSource
from spark_connector.schema import (
    FRAME_COLUMNS,
    ROW_COLUMNS,
    check_sink_schema,
    ddl,
    row_columns,
    wanted_columns,
)
from tests.archive.logs import a_log
from tests.archive.members import write_member


def schema(*fields):
    return StructType([StructField(*field) for field in fields])


def refusal(check, *fields):
    with pytest.raises(ConfigurationError) as refused:
        check(schema(*fields))
    return str(refused.value)


def test_a_narrower_schema_names_the_columns_in_its_own_order():
    wanted = schema(("payload", BinaryType()), ("timestamp", TimestampType()), ("position", LongType()))

    assert wanted_columns(wanted) == ("payload", "timestamp", "position")


@pytest.mark.conformance("P-13")
def test_names_compare_without_case_and_keep_the_users_spelling():
    wanted = wanted_columns(schema(("ENDPOSITION", LongType()), ("clusterSessionID", LongType())))

    assert wanted == ("ENDPOSITION", "clusterSessionID")
    assert row_columns(wanted) == ("endPosition", "clusterSessionId")


def test_a_column_that_the_log_does_not_have_is_refused_with_the_names_near_it():
    assert refusal(wanted_columns, ("endPositions", LongType())) == (
        "the log has no column 'endPositions'; did you mean endPosition, position?"
    )
    assert "it has position, endPosition" in refusal(wanted_columns, ("zzz", LongType()))


def test_a_column_of_another_type_is_refused():
    assert "position of the log is BIGINT, the schema says INT" in refusal(
        wanted_columns, ("position", IntegerType())
    )


def test_a_column_that_must_not_be_null_is_refused():
    assert "every column is nullable" in refusal(wanted_columns, ("position", LongType(), False))


@pytest.mark.parametrize("again", ["position", "Position"])
def test_a_column_given_twice_is_refused(again):
    assert "occurs twice" in refusal(wanted_columns, ("position", LongType()), (again, LongType()))


@pytest.mark.conformance("P-78")
@pytest.mark.parametrize("payload_type", [BinaryType(), StringType()])
@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize("name", ["payload", "Payload"])
def test_a_sink_takes_payload_as_bytes_or_text(payload_type, nullable, name):
    check_sink_schema(schema((name, payload_type, nullable)))


@pytest.mark.conformance("P-78")
def test_a_sink_without_payload_with_more_than_it_or_of_another_type_is_refused():
    assert "needs column payload" in refusal(check_sink_schema, ("value", StringType()))
    assert "takes column payload alone" in refusal(
        check_sink_schema, ("payload", StringType()), ("key", StringType())
    )
    assert "column payload is BIGINT" in refusal(check_sink_schema, ("payload", LongType()))


def test_columns_of_the_frame_are_there_with_their_option():
    assert "'termId'; includeFrameHeader=true adds it" in refusal(wanted_columns, ("termId", IntegerType()))
    wanted = schema(("TermId", IntegerType()), ("position", LongType()))
    assert wanted_columns(wanted, has_frame_header=True) == ("TermId", "position")


@pytest.mark.conformance("P-71")
def test_the_columns_are_those_of_arrow():
    assert list(ROW_COLUMNS) == ROW_SCHEMA.names
    assert list(FRAME_COLUMNS) == FRAME_SCHEMA.names
    assert {FRAME_COLUMNS[field.name][0]: str(field.type) for field in FRAME_SCHEMA} == {
        "INT": "int32",
        "BIGINT": "int64",
    }


def source(**options):
    return ClusterDataSource({"endpoints": "0=a:9000", **options})


@pytest.mark.conformance("P-75")
def test_the_option_columns_is_the_schema_of_the_rows():
    chosen = source(columns="endposition, payload")

    assert chosen.schema() == ddl(["endposition", "payload"])
    assert chosen.schema().startswith("endposition BIGINT COMMENT 'position after the entry, excluded: what ")
    rows = schema(("endposition", LongType()), ("payload", BinaryType()))
    assert chosen.reader(rows)._columns == ("endposition", "payload")
    assert chosen.streamReader(rows)._columns == ("endposition", "payload")
    assert source().schema() == ddl(ROW_COLUMNS)
    assert source(includeFrameHeader="true").schema() == ddl([*ROW_COLUMNS, *FRAME_COLUMNS])


def test_describe_says_what_each_column_means(spark, tmp_path):
    write_member(tmp_path, a_log(3))
    register(spark)
    spark.sql(
        f"CREATE TEMPORARY VIEW described USING cluster "
        f"OPTIONS (clusterDir '{tmp_path}', includeFrameHeader 'true')"
    )
    try:
        comments = {row["col_name"]: row["comment"] for row in spark.sql("DESCRIBE described").collect()}
    finally:
        spark.catalog.dropTempView("described")
    assert comments == {name: said for name, (_, said) in (ROW_COLUMNS | FRAME_COLUMNS).items()}
    assert comments["position"].startswith("where the entry's first frame starts")


@pytest.mark.parametrize(
    "options, says",
    [
        ({"columns": "position,payloads"}, "did you mean payload"),
        ({"columns": "position,Position"}, "a column occurs twice: position, Position"),
        ({"columns": "position,,payload"}, "option columns is 'position,,payload'; expected a comma list"),
        ({"columns": "termId"}, "'termId'; includeFrameHeader=true adds it"),
        ({"includeFrameHeader": "1"}, "option includeFrameHeader is '1'; expected true or false"),
    ],
)
def test_columns_that_cannot_be_are_refused_when_the_source_is_made(options, says):
    with pytest.raises(ConfigurationError) as refused:
        source(**options).schema()
    assert says in str(refused.value)


def test_columns_by_option_and_by_a_schema_that_differs_are_refused():
    with pytest.raises(ConfigurationError, match="columns is payload, the schema has position: give one"):
        source(columns="payload").reader(schema(("position", LongType())))


def test_rows_are_cut_into_batches_by_their_number_and_by_their_bytes(monkeypatch):
    """A batch of 4096 messages of a megabyte would not fit into the memory of a task."""
    monkeypatch.setattr(columns, "ROWS_AT_ONCE", 3)
    monkeypatch.setattr(columns, "BYTES_AT_ONCE", 100)
    taken = []

    def numbered(lengths):
        for number, length in enumerate(lengths):
            taken.append(number)
            yield {"position": number, "payload": bytes(length), "encodedPrincipal": None}

    def cut(*lengths):
        batches = list(columns.record_batches(numbered(lengths), ROW_COLUMNS, ("position", "payload")))
        assert [row["position"] for made in batches for row in made.to_pylist()] == [*range(len(lengths))]
        return [made.num_rows for made in batches]

    assert cut(1, 1, 1, 1) == [3, 1]
    assert cut(99, 1, 99, 2, 1) == [2, 2, 1]
    assert cut(500, 500, 0) == [1, 1, 1]
    assert cut() == []
    taken.clear()
    next(columns.record_batches(numbered([60] * 9), ROW_COLUMNS, ("position",)))
    assert taken == [0, 1], "also of values that no column wants"
