"""Rows that go in by the sink and come out of the source: the same, in each form that the sink takes."""

import zlib
from datetime import date
from decimal import Decimal

import pytest

from tests.spark.clusters import running_clusters

NAMES = ("eu", "us")
LENGTHS = (0, 1, 31, 32, 1343, 1344, 1345, 9000, 70_000)

pytestmark = pytest.mark.conformance("P-98")


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory):
    """A cluster of one member for each name."""
    with running_clusters(tmp_path_factory.mktemp("clusters"), NAMES) as found:
        yield found


def payloads(log):
    """Of the session messages, in the log's order."""
    found = log.where("entryType = 'SESSION_MESSAGE'").select("position", "payload").collect()
    return [bytes(row.payload) for row in sorted(found, key=lambda row: row.position)]


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("BINARY", "payload"),
        ("STRING", "PayLoad"),
        pytest.param("BINARY", "PayLoad", marks=pytest.mark.slow),
        pytest.param("STRING", "payload", marks=pytest.mark.slow),
    ],
)
def test_a_stream_comes_out_as_it_went_in(spark, endpoints, tmp_path, kind, column):
    """A file of rows goes through the sink as a stream, and the source hands out what a query reads."""
    where = endpoints["eu"]
    log = spark.read.format("cluster").option("endpoints", where)
    before = len(payloads(log.load()))
    texts = ["", "ä€𝄞", "line\nline\x00", *("x" * length for length in LENGTHS)]
    rows = texts if kind == "STRING" else [bytes(range(256)), *(b"\xff" * length for length in LENGTHS)]
    frame = spark.createDataFrame([(row,) for row in rows], f"{column} {kind}").coalesce(1)
    frame.write.parquet(str(tmp_path / "rows"))
    query = (
        spark.readStream.schema(frame.schema)
        .parquet(str(tmp_path / "rows"))
        .writeStream.format("cluster")
        .options(endpoints=where, checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    sent = [row.encode() if kind == "STRING" else row for row in rows]
    assert payloads(log.load())[before:] == sent


def test_rows_with_keys_come_out_of_the_cluster_of_their_key(spark, endpoints):
    """Columns of ``routeBy`` stand beside ``payload`` in any order, of any type that has a text, or NULL."""
    named = {f"endpoints.{name}": place for name, place in endpoints.items()}
    log = spark.read.format("cluster").options(**named)
    messages = log.load().where("entryType = 'SESSION_MESSAGE'").select("clusterName", "position", "payload")
    before = {(row.clusterName, row.position) for row in messages.collect()}
    day, price = date(2026, 1, 2), Decimal("1.50")
    rows = [
        (None if number % 7 == 0 else number % 10, day, b"%d" % number, f"c{number % 3}", price)
        for number in range(300)
    ]
    schema = "account BIGINT, day DATE, payload BINARY, customer STRING, price DECIMAL(10,2)"
    writer = spark.createDataFrame(rows, schema).coalesce(1).write.format("cluster").mode("append")
    writer.options(**named, routeBy="customer,account,day,price").save()

    def target(customer, account):
        text = "\x1f".join([customer, "" if account is None else str(account), "2026-01-02", "1.50"])
        return NAMES[zlib.crc32(text.encode()) % len(NAMES)]

    expected = {name: [row[2] for row in rows if target(row[3], row[0]) == name] for name in NAMES}
    messages = log.load().where("entryType = 'SESSION_MESSAGE'").select("clusterName", "position", "payload")
    found = sorted(messages.collect(), key=lambda row: row.position)
    for name in NAMES:
        came = [
            row.payload for row in found if row.clusterName == name and (name, row.position) not in before
        ]
        assert came == expected[name] and came, name
