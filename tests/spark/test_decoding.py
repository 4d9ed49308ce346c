"""Option decode: payloads as a struct column, a whole batch at once, and what does not decode."""

import datetime as dt
import io
import json
import pickle
import random
import struct
import time
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_type

from cluster.errors import ConfigurationError
from spark_connector.data_source import ClusterDataSource
from spark_connector.decoding import json_judge
from spark_connector.decoding.decoders import (
    ArrowDecoder,
    JsonDecoder,
    decoded_type,
    decoder_of,
    parse_decode,
)
from spark_connector.decoding.fixed_fields import fields_of_dtype
from spark_connector.decoding.sbe_schema import read_sbe_schema
from spark_connector.options.cluster_options import SourceOptions
from spark_connector.source.decoded_column import DecodedColumn
from spark_connector.source.readers import ClusterBatchReader
from tests.spark.logs import open_log
from tests.spark.sbe_orders import ORDERS, schema_file

PRICES = np.dtype([("id", "<i8"), ("price", ">f8"), ("size", "<u4"), ("is_bid", "?"), ("venue", "S4")])


def binary(payloads):
    return pa.array(payloads, pa.binary())


def decode(option, payloads, arrow_type):
    made = pickle.loads(pickle.dumps(decoder_of(parse_decode("decode", option), from_arrow_type(arrow_type))))
    column, failures = made(binary(payloads))
    assert column.type == arrow_type and len(column) == len(payloads)
    column.validate(full=True)
    assert [i for i, value in enumerate(column.to_pylist()) if value is None] == sorted(failures)
    return column.to_pylist(), failures


def test_no_payload_makes_an_empty_column(tmp_path):
    path = schema_file(tmp_path)
    for option, arrow_type in (
        ("json:id BIGINT", TRADE),
        ("arrow:id BIGINT", pa.list_(TRADE)),
        (f"dtype:{PRICES.descr}", fields_of_dtype(PRICES).arrow_type),
        (f"sbe:{path}", arrow_type_of(path)),
    ):
        assert decode(option, [], arrow_type) == ([], {})


# ---- JSON

TRADE = pa.struct(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("l", pa.list_(pa.int32())),
    ]
)


def test_json_objects_become_structs():
    rows, failures = decode(
        "json:whatever Spark parsed",
        [
            b'{"id": 1, "name": "a\xc3\xa4\\n", "at": "2026-01-01T01:00:00+01:00", "l": [1, 2], "more": {}}',
            b'  {"name": null}',
            b'{\n"id": -5\n}',
        ],
        TRADE,
    )
    assert failures == {}
    assert rows[0]["at"].isoformat() == "2026-01-01T00:00:00+00:00" and rows[0]["l"] == [1, 2]
    assert [(row["id"], row["name"]) for row in rows] == [(1, "aä\n"), (None, None), (-5, None)]


NO_TRADES = [
    b"", b" ", b"null", b"[]", b"7", b'{"id": 1', b'{"id": "x"}', b'{"id": 1.5}', b'{"id": 1}{"id": 2}',
    b'{"id": 1}\n{"id": 2}', b'{"name": "\xff"}', b'{"id": 1, "id": 2}', b'{"id":', b'{"id": 3}, "i": 0',
    b'{}}\n{"i": 9, "d": {}', b"{", b"}", b"\x00", b'{"at": "yesterday"}', b'{"id": 99999999999999999999}',
]  # fmt: skip


def test_what_is_no_such_object_is_null_and_harms_no_other():
    chosen = random.Random(1)
    payloads = [
        chosen.choice(NO_TRADES) if chosen.random() < 0.1 else b'{"id": %d}' % number
        for number in range(2000)
    ]
    rows, failures = decode("json:id BIGINT", payloads, TRADE)
    for payload, row in zip(payloads, rows, strict=True):
        assert (row is None) == (payload in NO_TRADES), payload
        assert row is None or row["id"] == json.loads(payload)["id"]
    assert set(failures) == {i for i, payload in enumerate(payloads) if payload in NO_TRADES}


def ipc(table, batch_rows=2):
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table, max_chunksize=batch_rows)
    return sink.getvalue()


def ipc_row(schema, *values):
    batch = pa.record_batch([[value] for value in values], schema=pa.schema(schema))
    return ipc(pa.Table.from_batches([batch]))


ROW = [("id", pa.int64()), ("name", pa.string()), *((f"c{i}", pa.float64()) for i in range(10))]
OBJECT = b'{"id": 7, "name": "seven"%s}' % b"".join(b', "c%d": %d.25' % (i, i) for i in range(10))
AN_ORDER = struct.pack("<4H", 26, 1, 7, 1) + struct.pack("<QB6sxqh", 8, 1, b"ABC", 5, -3)
GOOD_AND_BAD = {
    "json": (
        OBJECT,
        OBJECT.replace(b"7", b'"7"'), OBJECT.replace(b"7", b"7.5"), OBJECT.replace(b"9.25", b'"9"'),
        OBJECT[:-1], OBJECT.replace(b"seven", b"Information")[:-1], OBJECT.replace(b"seven", b"\\ud800"),
        OBJECT.replace(b"seven", b"\xff"), OBJECT + b"]", OBJECT.replace(b"7", b"[" * 500 + b"]" * 500),
        OBJECT.replace(b"9.25", b"1e999"), OBJECT.replace(b"c9", b"id"), b"[1]", b"",
    ),
    "arrow": (
        ipc_row(ROW[:2], 7, "seven"),
        ipc_row([("id", pa.string()), ROW[1]], "x", "seven"), ipc_row(ROW[:1], 7),
        ipc_row(ROW[:2], 7, "seven")[:60], b"text", b"\xff\xff\xff\xff\xff\xff\xff\x7ftext", b"",
    ),
    "dtype": (bytes(PRICES.itemsize), b"", b"x", bytes(1000)),
    "sbe": (AN_ORDER, AN_ORDER[:-1], b"x", b"", AN_ORDER.replace(b"\7", b"\x08", 1), b"\xff" * 40),
}  # fmt: skip


@pytest.mark.parametrize("format", GOOD_AND_BAD)
def test_a_batch_with_payloads_that_do_not_decode_takes_three_times_as_long_as_a_good_one_at_most(
    tmp_path, format
):
    decoder = {
        "json": JsonDecoder(pa.struct(ROW)),
        "arrow": ArrowDecoder(pa.struct(ROW[:2])),
        "dtype": fields_of_dtype(PRICES).decode,
        "sbe": read_sbe_schema(schema_file(tmp_path)).decode,
    }[format]
    good, *all_bad = GOOD_AND_BAD[format]
    size = 64 if format == "arrow" else 1024

    def seconds(payloads, failed):
        begin = time.process_time()
        found = decoder(payloads)
        taken = time.process_time() - begin
        assert sorted(found.failures) == failed and found.column.null_count == len(failed)
        return taken

    all_good = binary([good] * size)
    for bad in all_bad:
        for failed in ([size // 3], list(range(0, size, 100)), list(range(size))):
            payloads = [good] * size
            for i in failed:
                payloads[i] = bad
            mixed = binary(payloads)
            seconds_of = [(seconds(all_good, []), seconds(mixed, failed)) for _ in range(3)]
            good_one, bad_one = map(min, zip(*seconds_of, strict=True))
            assert bad_one < 3 * good_one, (bad, len(failed), bad_one / good_one)


VALUES = [
    "1", "-0", "127", "128", "-129", "2147483648", "9223372036854775808", "1.5", "1.0", "1e2", "1e400",
    "0e400", "1.8e308", "0.0001e311", "1" * 310, "1" * 4400, "3.5e38", "NaN", "-NaN", "Inf", "-Infinity",
    "+1", "01", ".5", "5.", "1e", "true", "True", "null", "nul", '"x"', '""', '"1"', r'"\ud800"',
    r'"\udc00"', r'"\ud83d\ude00"', r'"\\ud800"', r'"\u0000"', '"a\nb"', r'"\x"', "[]", "[1]", "[1,]",
    "[1,2.5]", "[null]", "[[1]]", "{}", '{"a":1}', '{"a":1,"a":2}', '{"a":null,"a":null}', '{"q":1,"q":2}',
    '{"a":"x"}', "[" * 5000 + "]" * 5000, '"2026-01-02"', '"2026-01-02 03:04:05"', '"2026-01-02T03"',
    '"2026-01-02T03:04Z"', '"2026-01-02Z"', '"2026-01-02T03:04:05.1234567"', '"2026-01-02T03:04:05.123"',
    '"2026-01-02T24:00:00"', '"2026-02-29"', '"0000-02-29"', '"2026-1-2"', '"2026-01-02T03:04:05+0530"',
    '"2026-01-02T03:04:05+05"', '"2026-01-02T03Z"', '"2026-01-02T03:04:05-24:00"', '"2026-01-02t03:04:05"',
    '"2026-01-02T03:04:60Z"', '"2026-01-02T0304Z"', "12.345", "12.340", "1234.5", "99999", "123456",
    "0.001", "0.000", "1e3", "1e-3", '"+1.5"', '" 1"', '"."', '"1e5"', "0.0e5", "100000e-3", '"0x1"',
    '"1_0"', '"\u0661"', "1" * 39, "1e38",
]  # fmt: skip
COLUMNS = [
    pa.int8(), pa.int64(), pa.float64(), pa.float32(), pa.bool_(), pa.string(), pa.timestamp("us", "UTC"),
    pa.decimal128(5, 2), pa.decimal128(38, 0), pa.list_(pa.int32()), pa.struct([("a", pa.int32())]),
]  # fmt: skip


@pytest.mark.parametrize("column", COLUMNS, ids=str)
def test_what_is_taken_for_an_object_is_what_arrows_reader_takes_alone(column):
    decoder = JsonDecoder(pa.struct([("v", column)]))
    payloads = [
        b'{"%s":%s}' % (name, value.encode()) for value in VALUES for name in (b"v", b"w", b"\\u0076")
    ]
    payloads += [
        b' {"v":null,"v":null}\n',
        b'{"w":1,"w":1}',
        b'\x0c{"v":null}',
        b'{"v":null}\xc2\xa0',
        b'{"V":0}',
    ]

    def is_taken(payload):
        if column == pa.decimal128(5, 2) and payload in BEYOND_FIVE_DIGITS:
            return False
        try:
            return len(decoder._parse(binary([payload]))) == 1
        except pa.ArrowException:
            return False

    failures = decoder(binary(payloads)).failures
    assert [i not in failures for i in range(len(payloads))] == [*map(is_taken, payloads)]


BEYOND_FIVE_DIGITS = [
    b'{"%s":%s}' % (name, value)
    for value in (b"1234.5", b"99999", b"1e3", b'"1e5"')
    for name in (b"v", b"\\u0076")
]  # Arrow's reader makes decimals of them that DECIMAL(5,2) does not hold


def test_members_after_an_object_are_no_part_of_its_payload():
    payloads = [b'{"id": 1}', b'{"id": 2}, "more": 3', b'{"id": 4}, "more": {"d": 5}', b'{"id": 6}']
    rows, failures = decode("json:id BIGINT", payloads, IDS)
    assert [row and row["id"] for row in rows] == [1, None, None, 6]
    assert failures == dict.fromkeys((1, 2), "not a JSON object")


def test_a_decimal_is_none_that_its_type_does_not_hold():
    """Spark ends a query at such a value, whatever decodeMode says."""
    prices = pa.struct([("price", pa.decimal128(5, 2))])
    payloads = [b'{"price": %s}' % price for price in (b"999.99", b"1000", b'"1e3"', b"0.01e4", b"1e-100")]
    rows, failures = decode("json:price DECIMAL(5,2)", payloads, prices)
    assert [row and row["price"] for row in rows] == [Decimal("999.99"), None, None, Decimal("100.00"), None]
    assert set(failures.values()) == {"price (decimal128(5, 2)) has a value of another type"}


def test_a_time_without_a_zone_is_utc_and_a_local_time_has_none():
    texts = [b"2026-03-08T02:30:00", b"2026-03-08 02:30", b"2026-03-08T02:30:00-05:00", b"2026-03-08T02:30Z"]
    payloads = [b'{"at": "%s"}' % text for text in texts]
    half_past_two = dt.datetime(2026, 3, 8, 2, 30)
    for zone, expected in (("UTC", [0, 0, 5, 0]), (None, [0, 0, None, None])):
        at = pa.struct([("at", pa.timestamp("us", zone))])
        rows, _ = decode("json:at TIMESTAMP", payloads, at)
        hours = [
            row and (row["at"].replace(tzinfo=None) - half_past_two) / dt.timedelta(hours=1) for row in rows
        ]
        assert hours == expected


def test_what_arrows_reader_refuses_all_the_same_is_null_alone(monkeypatch):
    monkeypatch.setattr(json_judge, "failures_of", lambda payloads, struct: {3: "judged"})
    payloads = [b'{"id": %d}' % i for i in range(9)]
    payloads[5] = b'{"id": "x"}'
    rows, failures = decode("json:id BIGINT", payloads, IDS)
    assert [row and row["id"] for row in rows] == [0, 1, 2, None, 4, None, 6, 7, 8]
    assert failures[3] == "judged" and "changed from number to string" in failures[5]


# ---- numpy


def test_payloads_of_other_formats_are_told_from_json_objects_without_parsing_each(monkeypatch):
    parsed = []
    parse = JsonDecoder._parse
    monkeypatch.setattr(JsonDecoder, "_parse", lambda self, run: parsed.append(len(run)) or parse(self, run))
    others = [b"\x01\xff\x00", b"[1]", b"", b"text"]
    payloads = [others[i % 4] if i % 3 else b' {"id": %d}' % i for i in range(999)]
    rows, failures = decode("json:id BIGINT", payloads, TRADE)
    assert [row and row["id"] for row in rows] == [None if i % 3 else i for i in range(999)]
    assert failures == {i: "not a JSON object" for i in range(999) if i % 3}
    assert parsed == [333]

    rows, failures = decode("json:id BIGINT", others, TRADE)
    assert rows == [None] * 4 and failures == dict.fromkeys(range(4), "not a JSON object")


def test_values_of_a_dtype_become_structs_with_the_types_that_spark_has():
    values = np.array([(1, 2.5, 3, True, b"XNYS"), (-1, -0.5, 2**32 - 1, False, b"X")], PRICES)
    option = "dtype:" + str(PRICES.descr)
    assert decoded_type(parse_decode("decode", option)) == (
        "STRUCT<id:BIGINT,price:DOUBLE,size:BIGINT,is_bid:BOOLEAN,venue:BINARY>"
    )
    payloads = [values[0].tobytes(), b"short", values[1].tobytes(), values[1].tobytes() + b"!"]
    rows, failures = decode(option, payloads, fields_of_dtype(PRICES).arrow_type)
    assert rows[0] == {"id": 1, "price": 2.5, "size": 3, "is_bid": True, "venue": b"XNYS"}
    assert rows[2] == {"id": -1, "price": -0.5, "size": 2**32 - 1, "is_bid": False, "venue": b"X"}
    assert failures == {1: "5 bytes, expected 25", 3: "26 bytes, expected 25"}


@pytest.mark.parametrize(
    "code", ["i1", "u1", "<i2", ">i2", "u2", "i4", ">u4", ">i8", "<u8", "f2", "f4", ">f8"]
)
def test_each_number_keeps_its_value(code):
    dtype = np.dtype([("x", code)])
    kind = dtype["x"]
    info = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
    values = [info.min, 0, 1, info.max]
    payloads = [np.array([(value,)], dtype).tobytes() for value in values]
    rows, _ = decode(f"dtype:{dtype.descr}", payloads, fields_of_dtype(dtype).arrow_type)
    assert [row["x"] for row in rows] == [Decimal(int(v)) if code == "<u8" else v for v in values]


def test_bytes_of_a_dtype_keep_zeros_within_and_lose_those_at_the_end():
    values = [b"\1\0\2\3", b"\0\1\2\0", b"ab\0\0", b"\0\0\0\0"]
    dtype = np.dtype([("x", "S4")])
    rows, _ = decode(f"dtype:{dtype.descr}", [*values, b"?"], fields_of_dtype(dtype).arrow_type)
    assert rows == [*({"x": value} for value in np.array(values).tolist()), None]
    assert [row["x"] for row in rows[:-1]] == [b"\1\0\2\3", b"\0\1\2", b"ab", b""]


# ---- Arrow


def test_arrow_streams_become_arrays_of_their_rows():
    struct_type = pa.struct([("b", pa.string()), ("a", pa.int64())])
    table = pa.table({"a": pa.array([1, 2, 3], pa.int32()), "x": [0, 0, 0], "b": ["p", None, "q"]})
    payloads = [
        ipc(table),
        ipc(table)[:-40],
        b"",
        ipc(table.slice(0, 0)),
        ipc(table.select(["a"])),
        ipc(table),
    ]
    rows, failures = decode("arrow:b STRING, a BIGINT", payloads, pa.list_(struct_type))
    assert rows[0] == rows[5] == [{"b": "p", "a": 1}, {"b": None, "a": 2}, {"b": "q", "a": 3}]
    assert rows[3] == [] and {2, 4} <= set(failures) <= {1, 2, 4}


def test_what_an_arrow_stream_costs_and_says_is_bounded_by_its_bytes():
    """A column of nulls has a length and no bytes."""
    nulls, some = (ipc(pa.table({"a": pa.nulls(rows)}), rows) for rows in (1_000_000, 500))
    long = ipc(pa.table({"a": ["\x9b" * 10_000]}))
    column, failures = ArrowDecoder(pa.struct([("a", pa.int64())]))(binary([nulls, long, some]))
    assert column.is_valid().to_pylist() == [False, False, True] and len(column.values) == 500
    assert failures[0].startswith("1000000 rows in ") and failures[1].startswith("Failed to parse")
    assert len(failures[1]) <= 200


# ---- SBE


@pytest.mark.parametrize(("order", "mark"), [("littleEndian", "<"), ("bigEndian", ">")])
def test_sbe_messages_become_the_struct_of_their_message(tmp_path, order, mark):
    path = schema_file(tmp_path, ORDERS % order)
    header, body = mark + "4H", mark + "QB6sxq"
    whole = struct.pack(header, 26, 1, 7, 1) + struct.pack(body + "h", 2**64 - 1, 1, b"ABC", 5, -3)
    older = struct.pack(header, 24, 1, 7, 0) + struct.pack(body, 8, 0, b"ABCDEF", -(2**63))
    newer = struct.pack(header, 30, 1, 7, 2) + whole[8:] + b"more"
    cancel = struct.pack(header, 8, 2, 7, 0) + struct.pack(mark + "Q", 8)
    other = struct.pack(header, 8, 2, 8, 0) + struct.pack(mark + "Q", 8)
    unknown = struct.pack(header, 8, 3, 7, 0) + struct.pack(mark + "Q", 8)
    payloads = [whole, older, newer, cancel, other, unknown, whole[:-1], b"1234567"]
    rows, failures = decode(f"sbe:{path}", payloads, arrow_type_of(path))

    first = {"orderId": Decimal(2**64 - 1), "side": 1, "symbol": "ABC", "price": 5, "note": -3}
    assert rows[0] == rows[2] == {"Order": first, "Cancel": None}
    second = {"orderId": Decimal(8), "side": 0, "symbol": "ABCDEF", "price": None, "note": None}
    assert rows[1] == {"Order": second, "Cancel": None}
    assert rows[3] == {"Order": None, "Cancel": {"orderId": Decimal(8)}}
    assert failures == {
        4: "template 2 of schema 8 is not in schema 7",
        5: "template 3 of schema 7 is not in schema 7",
        6: "33 bytes, expected 34",
        7: "7 bytes, a header has 8",
    }


def arrow_type_of(path):
    return pa.struct([(m.name, m.block.arrow_type) for m in read_sbe_schema(path).messages])


ORDER_ID = '<field name="orderId" id="1" type="uint64"/><field name="side"'


@pytest.mark.parametrize(
    ("there", "instead", "said"),
    [
        ("messageSchema", "schema", "its root is schema, expected messageSchema"),
        ("</types>", "", "mismatched tag"),
        (
            'name="messageHeader"',
            'name="header"',
            "composite messageHeader, the message header, is not in it",
        ),
        (
            'type="Side"',
            'type="messageHeader"',
            "Order.side is a composite; taken are fields of primitive types",
        ),
        ('type="Side"', 'type="Sides"', "Order.side has type 'Sides'; taken are"),
        ('type="Side"', 'type="Side" presence="constant"', "Order.side is a constant"),
        ('primitiveType="char" length="6"', 'primitiveType="int8" length="6"', "an array of 6 int8"),
        (
            '<field name="note" id="5" type="int16" sinceVersion="1"/>',
            '<data name="note" id="5"/>',
            "note is a data",
        ),
        ('name="side"', 'name="orderid"', "Order: 'orderid' cannot be a column's name, or occurs twice"),
        ('offset="16"', 'offset="9"', "the offset of Order.price is 9, before 15"),
        ('id="2"><field', 'id="1"><field', "two of its messages have one id"),
        ('id="7"', 'id="seven"', "id of messageSchema  is 'seven', expected a number"),
        ('byteOrder="littleEndian"', 'byteOrder="middle"', "byteOrder is middle"),
    ],
)
def test_a_schema_with_more_is_refused_by_what_it_is(tmp_path, there, instead, said):
    assert there in ORDERS % "littleEndian"
    path = schema_file(tmp_path, (ORDERS % "littleEndian").replace(there, instead))
    with pytest.raises(ConfigurationError) as refused:
        read_sbe_schema(path)
    assert str(refused.value).startswith(f"option decode names {path}") and said in str(refused.value)


def test_a_schema_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"none\.xml: No such file"):
        ClusterDataSource({"endpoints": "0=a:1", "decode": f"sbe:{tmp_path}/none.xml"}).schema()


# ---- options and rows


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("xml:a INT", "expected json:COLUMNS, arrow:COLUMNS, dtype:DTYPE or sbe:FILE"),
        ("json", "expected json:COLUMNS"),
        (
            "json:id",
            "is 'json:id'; expected a type for each column, as in json:id BIGINT, name STRING; 'id' has",
        ),
        ("json:a INT, `b`, c INT", "'`b`' has none"),
        ("arrow:a: STRUCT<b: DECIMAL(4,2)>, c:", "as in arrow:id BIGINT, name STRING; 'c:' has none"),
        ("json:a INT,", "'' has none"),
        ("dtype:[('a', 'i3')]", "expected a dtype of numpy"),
        ("dtype:i8", "expected a dtype with fields"),
        ("dtype:[('a', 'M8[s]')]", "field a is datetime64[s]"),
        ("dtype:[('a b', 'i8')]", "'a b' cannot be a column's name"),
        ("dtype:[('a', 'i8'", "expected a dtype of numpy"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_can(value, said):
    with pytest.raises(ConfigurationError) as refused:
        parse_decode("decode", value)
    assert said in str(refused.value)


def test_columns_of_any_depth_have_their_types():
    text = "a: ARRAY<STRUCT<b: ARRAY<STRUCT<c INT, d: DECIMAL(4, 2)>>, e INT>>, `f, g` STRING COMMENT 'h, i'"
    assert parse_decode("decode", f"json: {text}").text == text


def test_a_type_that_a_format_does_not_make_is_refused():
    for option, arrow_type, said in (
        ("json:d DATE", pa.struct([("d", pa.date32())]), "decoded.d is date32"),
        ("json:d INT", pa.int32(), "decode=json makes a struct"),
        ("json:d INT, d INT", pa.struct([("d", pa.int32())] * 2), "decoded.d occurs twice"),
        (
            "arrow:l ARRAY<STRUCT<d: INT, d: INT>>",
            pa.list_(pa.struct([("l", pa.list_(pa.struct([("d", pa.int32())] * 2)))])),
            "decoded.l.*d occurs twice",
        ),
        ("arrow:d INT", pa.struct([("d", pa.int32())]), "makes an array of structs"),
        ("dtype:i8,i4", pa.struct([("f0", pa.int64())]), "decode=dtype makes STRUCT<f0:BIGINT,f1:INT>"),
        (
            "json:d INT",
            pa.struct([pa.field("d", pa.int32(), nullable=False)]),
            "decoded.d is declared NOT NULL",
        ),
    ):
        with pytest.raises(ConfigurationError, match=said):
            decoder_of(parse_decode("decode", option), from_arrow_type(arrow_type))
    with pytest.raises(ConfigurationError, match="option decode adds it"):
        ClusterDataSource({"endpoints": "0=a:1", "columns": "decoded"}).schema()


def test_what_does_not_decode_is_counted_by_its_task(tmp_path, capsys):
    log, session = open_log(tmp_path / "member-0")
    log.lines(session, 0, 2)
    log.messages(session, [struct.pack("<q", 5), b"line x"])
    log.commit()
    decode_ids = decoder_of(parse_decode("decode", "dtype:[('id', '<i8')]"), from_arrow_type(IDS))
    options = SourceOptions.parse({"clusterDir": str(log.directory), "decode": "dtype:[('id', '<i8')]"})
    reader = ClusterBatchReader(options, ("decoded",), DecodedColumn("dtype", "PERMISSIVE", decode_ids))
    (partition,) = reader.partitions()
    found = [value for batch in reader.read(partition) for value in batch.column(0).to_pylist()]
    log.stop()
    assert found == [None, None, None, None, {"id": 5}, None]
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .startswith("cluster source: 3 of 4 payloads did not decode as dtype, the first at position ")
    )


IDS = pa.struct([("id", pa.int64())])
