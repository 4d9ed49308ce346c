"""Rows for several clusters: where each goes, and what becomes of a task for all of them."""

import threading
import time
import zlib

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cluster.errors import BatchRegistered, ClientClosed, ConfigurationError, LocalProtocolError
from spark_connector.data_source import ClusterDataSource
from spark_connector.many_clusters.routing import Routing
from spark_connector.many_clusters.sinks import RoutedRows
from spark_connector.sink.writers import RowsCommitted
from tests.spark.played import PlayedClient

NAMES = ("asia", "eu", "us")
SCHEMA = StructType([StructField("customer", LongType()), StructField("payload", StringType())])


@pytest.fixture
def clients(monkeypatch):
    """The session with each cluster."""
    played = {}

    def connect(endpoints, **settings):
        played[endpoints] = client = PlayedClient()
        client.settings = settings
        return client

    monkeypatch.setattr("cluster.client.ClusterClient.connect", connect)
    return played


def options(**more):
    given = {f"endpoints.{name}": f"{name}:9000" for name in NAMES}
    return {**given, "routeby": "customer", "deliverymode": "at-least-once", **more}


def batch(customers, first=0):
    payloads = [f"{customer}:{number}" for number, customer in enumerate(customers, first)]
    return pa.record_batch({"customer": pa.array(customers), "payload": pa.array(payloads)})


def target(customer):
    return NAMES[zlib.crc32(str(customer).encode()) % 3]


def test_a_key_goes_to_one_cluster_in_the_order_of_its_rows(clients):
    writer = ClusterDataSource(options()).streamWriter(SCHEMA, overwrite=False)
    customers = [number * 7 % 50 for number in range(400)]
    done = writer.write(iter([batch(customers[:150]), batch([], 150), batch(customers[150:], 150)]))

    expected = {name: [] for name in NAMES}
    for number, customer in enumerate(customers):
        expected[target(customer)].append(f"{customer}:{number}".encode())
    assert {place.removesuffix(":9000"): client.log for place, client in clients.items()} == expected
    assert done == RoutedRows({n: RowsCommitted(len(expected[n]), 96 * len(expected[n])) for n in NAMES})
    assert all(client.was_closed for client in clients.values())


def test_a_cluster_without_rows_meets_no_session(clients):
    writer = ClusterDataSource(options()).streamWriter(SCHEMA, overwrite=False)
    assert writer.write(iter([batch([5, 5])])).parts[target(5)].rows == 2
    assert list(clients) == [f"{target(5)}:9000"]


def test_the_names_and_not_their_order_in_the_options_say_where_a_key_goes():
    schema = StructType([StructField("Payload", StringType()), StructField("customer", LongType())])
    rows = pa.record_batch({"Payload": pa.array(["a", "b"]), "customer": pa.array([1, 2])})
    found = [
        {name: part.column(0).to_pylist() for name, part in Routing(names, ["CUSTOMER"], schema).split(rows)}
        for names in (NAMES, NAMES[::-1])
    ]
    assert found[0] == found[1] and sum(map(len, found[0].values())) == 2


def test_keys_of_any_plain_type_are_text_and_null_is_empty():
    schema = StructType(
        [
            StructField("a", StringType()),
            StructField("b", BinaryType()),
            StructField("payload", StringType()),
        ]
    )
    rows = pa.record_batch(
        {
            "a": pa.array(["x", None, ""]),
            "b": pa.array([b"\xff", b"y", b"y"]),
            "payload": pa.array(["1", "2", "3"]),
        }
    )
    where = {}
    for name, part in Routing(NAMES, ("a", "b"), schema).split(rows):
        where |= dict.fromkeys(part.column(0).to_pylist(), name)
    keys = {"1": b"x\x1f\xff", "2": b"\x1fy", "3": b"\x1fy"}
    assert where == {row: NAMES[zlib.crc32(key) % 3] for row, key in keys.items()}


def test_a_time_goes_to_one_cluster_whatever_the_time_zone_of_the_session_is():
    schema = StructType([StructField("at", TimestampType()), StructField("payload", StringType())])
    found = []
    for zone in ("UTC", "Asia/Kathmandu", "America/New_York"):
        times = pa.array(range(0, 100_000_000, 1_000_000), pa.timestamp("us", zone))
        rows = pa.record_batch({"at": times, "payload": pa.array(map(str, range(100)))})
        parts = Routing(NAMES, ("at",), schema).split(rows)
        found.append({name: part.column(0).to_pylist() for name, part in parts})
    assert found[0] == found[1] == found[2] and found[0].keys() == set(NAMES)


def test_an_application_leaves_room_for_that_of_its_names():
    given = options(txnversion="1", deliverymode="exactly-once")
    ClusterDataSource({**given, "txnappid": "a" * 247}).writer(SCHEMA, overwrite=False)
    with pytest.raises(ConfigurationError, match=r"^option txnAppId is 'a+': lane: .* 257 bytes"):
        ClusterDataSource({**given, "txnappid": "a" * 248}).writer(SCHEMA, overwrite=False)


def test_the_payload_may_be_the_key(clients):
    schema = StructType([StructField("payload", StringType())])
    writer = ClusterDataSource(options(routeby="payload")).streamWriter(schema, overwrite=False)
    writer.write(iter([pa.record_batch({"payload": pa.array(["a", "b", "c", "d"])})]))
    assert sorted(row for client in clients.values() for row in client.log) == [b"a", b"b", b"c", b"d"]


def test_a_batch_that_one_cluster_has_as_a_whole_goes_on_with_the_others(clients, monkeypatch):
    writer = ClusterDataSource(options()).streamWriter(SCHEMA, overwrite=False)

    def registered(self, payloads):
        raise BatchRegistered("batch 3 is registered")

    known = target(5)
    original = PlayedClient.offer_batch
    monkeypatch.setattr(
        PlayedClient,
        "offer_batch",
        lambda self, rows: (registered if self is clients.get(f"{known}:9000") else original)(self, rows),
    )
    parts = writer.write(iter([batch([5, 6, 7, 8, 9])])).parts
    assert parts[known] == RowsCommitted(0, -1, is_registered=True)
    others = [customer for customer in (5, 6, 7, 8, 9) if target(customer) != known]
    assert sum(part.rows for part in parts.values()) == len(others) > 0


def test_an_error_names_the_cluster(clients):
    writer = ClusterDataSource(options()).streamWriter(SCHEMA, overwrite=False)
    rows = pa.record_batch({"customer": pa.array([5]), "payload": pa.array([None], pa.string())})
    with pytest.raises(LocalProtocolError, match=f"cluster {target(5)}: row 0 of the task has no payload"):
        writer.write(iter([rows]))


def test_an_error_of_no_cluster_names_none(clients):
    writer = ClusterDataSource(options(deliverymode="exactly-once")).streamWriter(SCHEMA, overwrite=False)
    with pytest.raises(
        ConfigurationError, match=r"^outside a task: sql\.streaming\.queryId of the task is None"
    ):
        writer.write(iter([batch([5])]))


def test_a_session_that_ends_while_spark_computes_rows_is_that_of_its_cluster(clients):
    """Whichever cluster had rows last."""
    writer = ClusterDataSource(options()).streamWriter(SCHEMA, overwrite=False)
    ended = threading.Event()

    def end():
        ended.set()
        raise ClientClosed("the session has ended")

    def slow():
        yield batch([5])
        yield batch([8])
        while len(clients) < 2 or not all(client.log for client in clients.values()):
            time.sleep(0.001)  # the rows are fetched ahead
        clients[f"{target(5)}:9000"].on_poll = end
        assert ended.wait(timeout=30)

    assert target(5) != target(8)
    with pytest.raises(ClientClosed, match=f"cluster {target(5)}: the session has ended"):
        writer.write(slow())


@pytest.mark.parametrize(
    ("given", "schema", "message"),
    [
        (
            {"routeby": None},
            SCHEMA,
            "option routeBy is not given; expected columns that say",
        ),
        (
            {"routeby": "region"},
            SCHEMA,
            "routeBy names column 'region'; the rows have customer, payload",
        ),
        ({}, StructType([*SCHEMA, StructField("more", LongType())]), "takes column payload alone"),
        ({}, StructType([SCHEMA["customer"]]), "needs column payload"),
        ({"endpoints": "a:1"}, SCHEMA, "option endpoints names no cluster, others name asia, eu, us"),
        ({"clusterdir.eu": "/d"}, SCHEMA, "cluster eu: option clusterDir is for a read"),
        (
            {},
            StructType([SCHEMA["payload"], StructField("customer", ArrayType(LongType()))]),
            "'customer', of type array; expected a plain value",
        ),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_sent(given, schema, message):
    made = {name: value for name, value in options(**given).items() if value is not None}
    with pytest.raises(ConfigurationError) as caught:
        ClusterDataSource(made).streamWriter(schema, overwrite=False)
    assert message in str(caught.value)


def test_a_route_without_clusters_is_refused():
    with pytest.raises(ConfigurationError, match="option routeBy goes with endpoints"):
        ClusterDataSource({"endpoints": "a:1", "routeBy": "customer"}).streamWriter(SCHEMA, overwrite=False)
