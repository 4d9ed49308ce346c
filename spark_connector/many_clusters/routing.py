"""Which of several clusters a row goes to, by the values of some of its columns."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cluster.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

SEPARATOR = b"\x1f"  # between the values of a key


class Routing:
    """A key is the columns' values as text, in their order; its CRC-32 modulo the clusters, in the order of
    their names, is where its rows go: always the same one, while the names are the same.
    """

    def __init__(self, names: Sequence[str], route_by: Sequence[str], schema: StructType) -> None:
        """Raises ConfigurationError for a column that the rows lack, or whose values have no text."""
        self._names = sorted(names)
        columns = [name.lower() for name in schema.fieldNames()]
        self._payload = columns.index("payload") if "payload" in columns else -1
        self._keys = []
        for name in route_by:
            if name.lower() not in columns:
                rows = ", ".join(schema.fieldNames())
                raise ConfigurationError(f"option routeBy names column {name!r}; the rows have {rows}")
            self._keys.append(columns.index(name.lower()))
            kind = schema[self._keys[-1]].dataType
            if kind.typeName() in ("struct", "array", "map", "variant"):
                raise ConfigurationError(
                    f"option routeBy names column {name!r}, of type {kind.typeName()}; expected a plain value"
                )

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The payloads for each cluster that has some, in the rows' order."""
        import pyarrow as pa

        payloads = batch.select([self._payload])
        targets = np.fromiter(
            (zlib.crc32(key) % len(self._names) for key in self._key_of_rows(batch)), np.int64, batch.num_rows
        )
        for number, name in enumerate(self._names):
            rows = np.flatnonzero(targets == number)
            if len(rows):
                yield name, payloads.take(pa.array(rows))

    def _key_of_rows(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        columns = [_as_bytes(batch.column(index)) for index in self._keys]
        return map(SEPARATOR.join, zip(*columns, strict=True))


def _as_bytes(column: pa.Array) -> list[bytes]:
    """The values as text, empty for null; of a TIMESTAMP in UTC, whatever the session's time zone is."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        column = column.cast(pa.large_string()).cast(pa.large_binary())
    values: list[bytes] = column.fill_null(b"").to_pylist()
    return values
