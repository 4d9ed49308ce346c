"""Columns that are declared once: their types for Spark and for Arrow, and the comments that explain them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

Columns = Mapping[str, tuple[str, str]]  # a name's type in SQL, and its comment
ROWS_AT_ONCE = 4096
BYTES_AT_ONCE = 8 << 20  # of values that are bytes; a row may have more of them


def struct_type(columns: Columns) -> StructType:
    """The schema with all of the columns, each with its comment."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    return StructType(
        [
            StructField(field.name, from_arrow_type(field.type), metadata={"comment": columns[field.name][1]})
            for field in arrow_schema(columns)
        ]
    )


def given_columns(schema: StructType, columns: Columns) -> tuple[str, ...]:
    """The columns of a given schema, in its order. Raises ConfigurationError for others, or other types."""
    known = {field.name: field.dataType for field in struct_type(columns)}
    for field in schema.fields:
        if (expected := known.get(field.name)) != field.dataType:
            wanted = f"one of {', '.join(columns)}" if expected is None else expected.simpleString().upper()
            raise ConfigurationError(
                f"column {field.name} {field.dataType.simpleString().upper()}: expected {wanted}"
            )
    return tuple(schema.fieldNames())


def arrow_schema(columns: Columns) -> pa.Schema:
    """The same schema in Arrow's words."""
    import pyarrow as pa

    types_by_name = {
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "BOOLEAN": pa.bool_(),
        "STRING": pa.string(),
        "BINARY": pa.binary(),
        "TIMESTAMP": pa.timestamp("us", "UTC"),
    }
    return pa.schema(
        [
            pa.field(name, types_by_name[type_name], metadata={"comment": comment})
            for name, (type_name, comment) in columns.items()
        ]
    )


def record_batches(
    rows: Iterable[dict[str, Any]], columns: Columns, names: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Rows, null in what they lack, as record batches with the columns ``names``."""
    import pyarrow as pa

    schema = arrow_schema({name: columns[name] for name in names})
    some: list[dict[str, Any]] = []
    length = 0
    for row in rows:
        some.append(row)
        length += sum(len(value) for value in row.values() if isinstance(value, bytes))
        if len(some) >= ROWS_AT_ONCE or length >= BYTES_AT_ONCE:
            yield pa.RecordBatch.from_pylist(some, schema)
            some, length = [], 0
    if some:
        yield pa.RecordBatch.from_pylist(some, schema)
