"""Payloads as columns: what option ``decode`` names, and the struct column ``decoded`` that comes of it.

    json:id BIGINT, name STRING      each payload is a JSON object
    arrow:id BIGINT, name STRING     each payload is an Arrow IPC stream; ``decoded`` is the array of its rows
    dtype:[('id', '<i8')]            each payload is one value of a structured numpy dtype
    sbe:orders.xml                   each payload is a message of an SBE schema; one struct for each message

Decoders are made on the driver and travel to the tasks; a whole Arrow batch is decoded at once. Of JSON and
Arrow it is Spark that parses the columns, and they come back as the type of ``decoded``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cluster.errors import ConfigurationError
from spark_connector.decoding.decoded import DECODED, Decoded, check_field_names
from spark_connector.values import wrong_value

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

    from spark_connector.decoding.fixed_fields import FixedFields
    from spark_connector.decoding.sbe_schema import SbeSchema

PERMISSIVE, FAILFAST = DECODE_MODES = ("PERMISSIVE", "FAILFAST")
FORMATS = ("json", "arrow", "dtype", "sbe")
ROWS_PER_BYTE_MAX = 8  # of an Arrow stream: rows of nulls take no bytes there, and many here
FAILURE_LENGTH_MAX = 200

_EXPECTED = "json:COLUMNS, arrow:COLUMNS, dtype:DTYPE or sbe:FILE"
_JSON_TYPES = "BOOLEAN, numbers, STRING, TIMESTAMP, ARRAY and STRUCT"


class Decoding(NamedTuple):
    """The value of option ``decode``."""

    format: str
    text: str


Decode = Callable[["pa.Array"], Decoded]


def parse_decode(name: str, value: str) -> Decoding:
    """Format and what follows it. A numpy dtype is looked at; a file, or Spark's types, are not."""
    format, colon, text = value.strip().partition(":")
    format, text = format.strip().lower(), text.strip()
    if format not in FORMATS or not colon or not text:
        raise wrong_value(name, value, _EXPECTED)
    if format == "dtype":
        parse_dtype(name, text)
    elif format != "sbe":
        _check_typed(name, value, format, text)
    return Decoding(format, text)


_QUOTED = re.compile(r"`[^`]*`|'[^']*'|\"[^\"]*\"")


def _check_typed(name: str, value: str, format: str, text: str) -> None:
    """Spark parses the columns, and its words about one without a type do not name the option."""
    unquoted = _QUOTED.sub(lambda quoted: "q" * len(quoted[0]), text)
    begin, depth = 0, 0
    for end, character in enumerate(f"{unquoted},"):
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            if len(re.findall(r"[^\s:]+", unquoted[begin:end])) < 2:
                expected = f"a type for each column, as in {format}:id BIGINT, name STRING"
                raise wrong_value(name, value, f"{expected}; {text[begin:end].strip()!r} has none")
            begin = end + 1


def parse_dtype(name: str, text: str) -> np.dtype[Any]:
    """A structured dtype, as the literal that ``numpy.dtype`` takes or in its short form ``i8,f8``."""
    try:
        literal = ast.literal_eval(text) if text[0] in "[{" else text
        dtype = np.dtype(literal)
    except (TypeError, ValueError, SyntaxError, KeyError, MemoryError, RecursionError) as error:
        expected = f"a dtype of numpy such as [('id', '<i8')]; {error}"
        raise wrong_value(name, f"dtype:{text}", expected) from None
    if not dtype.names:
        raise wrong_value(name, f"dtype:{text}", "a dtype with fields such as [('id', '<i8')]")
    check_field_names("option decode", dtype.names)
    for field in dtype.names:
        kind = dtype[field]
        if kind.kind not in "biufS" or (kind.itemsize > 8 and kind.kind != "S") or kind.itemsize == 0:
            expected = "fields of booleans, integers and floats up to 8 bytes, and S"
            raise wrong_value(name, f"dtype:{text}", f"{expected}; field {field} is {kind}")
    return dtype


def decoded_type(decoding: Decoding) -> str:
    """The type of ``decoded`` in Spark's SQL. Reads the file of an SBE schema; raises ConfigurationError."""
    if decoding.format == "json":
        return f"STRUCT<{decoding.text}>"
    if decoding.format == "arrow":
        return f"ARRAY<STRUCT<{decoding.text}>>"
    return _layout(decoding).sql_type


def _layout(decoding: Decoding) -> FixedFields | SbeSchema:
    """Where the fields of a dtype or an SBE schema lie. Raises ConfigurationError."""
    if decoding.format == "dtype":
        from spark_connector.decoding.fixed_fields import fields_of_dtype

        return fields_of_dtype(parse_dtype("decode", decoding.text))
    from spark_connector.decoding.sbe_schema import read_sbe_schema

    return read_sbe_schema(decoding.text)


def decoder_of(decoding: Decoding, spark_type: DataType) -> Decode:
    """What decodes payloads to ``spark_type``, made on the driver. Raises ConfigurationError."""
    if decoding.format in ("json", "arrow"):
        from pyspark.sql.pandas.types import to_arrow_type
        from pyspark.sql.types import ArrayType, StructType

        is_json = decoding.format == "json"
        row_type = spark_type if is_json or not isinstance(spark_type, ArrayType) else spark_type.elementType
        if not isinstance(row_type, StructType) or isinstance(spark_type, ArrayType) == is_json:
            raise ConfigurationError(
                f"column {DECODED} is {spark_type.simpleString()}; decode={decoding.format} makes "
                f"{'a struct' if is_json else 'an array of structs'}"
            )
        arrow_type = to_arrow_type(row_type, timezone="UTC")
        _check_types(arrow_type, is_json, DECODED)
        return JsonDecoder(arrow_type) if is_json else ArrowDecoder(arrow_type)
    layout = _layout(decoding)
    made = layout.sql_type
    if spark_type.simpleString().lower() != made.lower():
        raise ConfigurationError(
            f"column {DECODED} is {spark_type.simpleString()}; decode={decoding.format} makes {made}"
        )
    return layout.decode


def _check_types(arrow_type: pa.DataType, is_json: bool, where: str) -> None:
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_struct(arrow_type) or kinds.is_list(arrow_type):
        fields = [arrow_type.field(i) for i in range(arrow_type.num_fields)]
        for i, field in enumerate(fields):
            if field.name in (other.name for other in fields[:i]):
                raise ConfigurationError(f"{where}.{field.name} occurs twice; expected each name once")
            if not field.nullable:
                raise ConfigurationError(
                    f"{where}.{field.name} is declared NOT NULL; every column is nullable"
                )
            _check_types(field.type, is_json, f"{where}.{field.name}")
    elif is_json and not (
        kinds.is_boolean(arrow_type)
        or kinds.is_integer(arrow_type)
        or kinds.is_floating(arrow_type)
        or kinds.is_decimal(arrow_type)
        or kinds.is_string(arrow_type)
        or kinds.is_timestamp(arrow_type)
    ):
        raise ConfigurationError(f"{where} is {arrow_type}; decode=json makes {_JSON_TYPES}")


@dataclass(frozen=True, slots=True)
class JsonDecoder:
    """Objects as structs: a field that is missing is null, others are passed over."""

    struct: pa.StructType

    def __call__(self, payloads: pa.Array) -> Decoded:
        """Arrow's reader refuses a run of objects for one of them, so it is given those that are right."""
        import pyarrow as pa

        from spark_connector.decoding.json_judge import failures_of

        failures = failures_of(payloads, self.struct)
        if not failures:
            return Decoded(self._found(payloads, range(len(payloads)), failures), failures)
        is_right = np.ones(len(payloads), np.bool_)
        is_right[list(failures)] = False
        right = np.flatnonzero(is_right)
        column = self._found(payloads.take(pa.array(right)), right.tolist(), failures)
        return Decoded(column.take(pa.array(np.cumsum(is_right) - 1, pa.int64(), mask=~is_right)), failures)

    def _found(self, payloads: pa.Array, indexes: Sequence[int], failures: dict[int, str]) -> pa.Array:
        """The structs; what the reader refuses of what was thought right is null and goes to ``failures``."""
        import pyarrow as pa

        if not len(payloads):
            return pa.nulls(0, self.struct)
        try:
            return self._parse(payloads)
        except pa.ArrowException as error:
            if len(payloads) == 1:
                failures[indexes[0]] = str(error)
                return pa.nulls(1, self.struct)
        half = len(payloads) // 2
        halves = ((payloads.slice(0, half), indexes[:half]), (payloads.slice(half), indexes[half:]))
        return pa.concat_arrays([self._found(run, of, failures) for run, of in halves])

    def _parse(self, payloads: pa.Array) -> pa.Array:
        """Parse all at once, each in an object of ours with its number: so none takes another's place."""
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyarrow import json

        text = payloads.cast(pa.string())
        numbers = np.arange(len(text))
        written = pa.array(numbers).cast(pa.string())
        document = pc.binary_join_element_wise('{"i":', written, ',"d":', text, "}\n", "").cast(pa.binary())
        start, end = document.offset, document.offset + len(document)
        offsets = np.frombuffer(document.buffers()[1], np.int32)[[start, end]]
        buffer = document.buffers()[2].slice(int(offsets[0]), int(offsets[1] - offsets[0]))
        table = json.read_json(
            pa.BufferReader(buffer),
            read_options=json.ReadOptions(use_threads=False, block_size=buffer.size + 1),
            parse_options=json.ParseOptions(
                explicit_schema=pa.schema([("i", pa.int64()), ("d", self.struct)]),
                newlines_in_values=True,
                unexpected_field_behavior="ignore",
            ),
        ).combine_chunks()
        if not np.array_equal(table["i"].to_numpy(), numbers):
            raise pa.ArrowInvalid("not one JSON object")
        found = table["d"].combine_chunks()
        return found.chunk(0) if isinstance(found, pa.ChunkedArray) else found


@dataclass(frozen=True, slots=True)
class ArrowDecoder:
    """IPC streams as arrays of their rows; a stream has the wanted columns by name and type, and others."""

    struct: pa.StructType

    def __call__(self, payloads: pa.Array) -> Decoded:
        import pyarrow as pa

        failures: dict[int, str] = {}
        rows: list[pa.Array] = [pa.nulls(0, self.struct)]
        ends: list[int | None] = []
        end = 0
        for i, payload in enumerate(payloads):
            try:
                found = self._rows(payload.as_buffer())
            except (pa.ArrowException, OSError, KeyError, ValueError) as error:
                failures[i] = str(error)[:FAILURE_LENGTH_MAX]  # Arrow's words hold the value
                ends.append(None)
                continue
            rows += found
            ends.append(end)
            end += sum(map(len, found))
        offsets = pa.array([*ends, end], pa.int32())
        return Decoded(pa.ListArray.from_arrays(offsets, pa.concat_arrays(rows)), failures)

    def _rows(self, buffer: pa.Buffer) -> list[pa.Array]:
        import pyarrow as pa

        wanted = pa.schema(list(self.struct))
        found = []
        rows = 0
        with pa.ipc.open_stream(buffer) as stream:
            for batch in stream:
                rows += batch.num_rows
                if rows > ROWS_PER_BYTE_MAX * len(buffer):
                    raise pa.ArrowInvalid(f"{rows} rows in {len(buffer)} bytes")
                batch.validate(full=True)
                columns = batch.select(wanted.names).cast(wanted).columns
                found.append(pa.StructArray.from_arrays(columns, fields=list(wanted)))
        return found
