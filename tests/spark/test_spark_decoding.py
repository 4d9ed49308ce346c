"""Option decode in Spark: the columns that it parses, rows of all kinds of entries, and both modes."""

import struct

import numpy as np
import pytest

from tests.spark.logs import open_log
from tests.spark.sbe_orders import ORDERS, schema_file

PAYLOADS = [b'{"id": 1, "tags": ["a", "b"]}', b"no JSON", b'{"id": 2}']


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    written, session = open_log(tmp_path_factory.mktemp("decoded") / "member-0")
    values = np.array([(3, 0.5)], [("id", "<i8"), ("price", "<f8")])
    orders = [struct.pack("<4H", 8, 2, 7, 0) + struct.pack("<Q", number) for number in range(2)]
    written.ends = []
    for payloads in (PAYLOADS, [values.tobytes()], orders):
        written.ends.append(written.position)
        written.messages(session, payloads)
    written.ends.append(written.commit())
    yield written
    written.stop()


def rows(spark, log, part, decode, columns="entryType,decoded", **options):
    given = {"clusterDir": str(log.directory), "decode": decode, "columns": columns, **options}
    if part is not None:
        given["startingOffsets"] = f'{{"position": {log.ends[part]}}}'
        given["endingOffsets"] = f'{{"position": {log.ends[part + 1]}}}'
    return spark.read.format("cluster").options(**given).load()


def decoded(frame):
    return [row[-1] for row in frame.collect()]


def test_each_format_makes_its_column(spark, log, tmp_path):
    objects = rows(spark, log, 0, "json:id INT, tags ARRAY<STRING>")
    assert objects.schema["decoded"].dataType.simpleString() == "struct<id:int,tags:array<string>>"
    assert decoded(objects) == [(1, ["a", "b"]), None, (2, None)]
    assert decoded(rows(spark, log, 1, "dtype:[('id', '<i8'), ('price', '<f8')]")) == [(3, 0.5)]
    orders = rows(spark, log, 2, f"sbe:{schema_file(tmp_path, ORDERS % 'littleEndian')}")
    assert [row[0] for row in orders.select("decoded.Cancel.orderId").collect()] == [0, 1]
    assert decoded(rows(spark, log, 0, "arrow:id INT")) == [None, None, None]
    every = rows(spark, log, None, "json:id INT", columns="decoded,entryType,position").collect()
    assert [row[0] for row in every] == [None, None, (1,), None, (2,), None, None, None]


def test_failfast_names_the_payload(spark, log):
    strict = rows(spark, log, 0, "json:id INT", decodeMode="failfast")
    with pytest.raises(Exception, match=r"a payload does not decode as json, at position \d+: "):
        strict.collect()


def test_a_stream_has_the_column_and_a_schema_may_name_it(spark, log, tmp_path, capfd):
    options = {"clusterDir": str(log.directory), "startingOffsets": "earliest", "decode": "json:id INT"}
    stream = (
        spark.readStream.format("cluster")
        .options(**options)
        .schema("DECODED STRUCT<id: INT>, position BIGINT")
    )
    query = (
        stream.load()
        .writeStream.format("memory")
        .queryName("decoded")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = spark.sql("SELECT DECODED.id FROM decoded WHERE DECODED IS NOT NULL ORDER BY position").collect()
    assert [row[0] for row in found] == [1, 2]
