"""Which payloads are JSON objects of the columns of ``decode``: the kernel's verdicts in words."""

import functools
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cluster.log import json_objects as kernel
from spark_connector.decoding.fixed_fields import byte_ranges


class Columns(NamedTuple):
    """A struct as the kernel takes it; ``said`` has path and type of each field, for messages."""

    nodes: np.ndarray
    fields: np.ndarray
    names: bytes
    said: tuple[str, ...]


def failures_of(payloads: pa.Array, struct: pa.StructType) -> dict[int, str]:
    """Why, for the index of each payload that is no object of ``struct``."""
    columns = _columns(struct)
    starts, lengths, data = byte_ranges(payloads)
    verdicts, fields = kernel.judge(data, starts, lengths, columns.nodes, columns.fields, columns.names)
    failed = np.flatnonzero(verdicts != kernel.FITS)
    return {i: _why(verdicts[i], columns.said[fields[i]]) for i in failed.tolist()}


def _why(verdict: int, field: str) -> str:
    if verdict == kernel.OTHER_TYPE:
        return f"{field} has a value of another type"
    if verdict == kernel.TWICE:
        return f"{field} occurs twice"
    return "not a JSON object" if verdict == kernel.NO_OBJECT else "not UTF-8"


@functools.lru_cache(8)
def _columns(struct: pa.StructType) -> Columns:
    nodes: list[list[int]] = []
    fields: list[list[int]] = []
    names = bytearray()
    said: list[str] = []

    def add(arrow_type: pa.DataType, path: str) -> int:
        node = len(nodes)
        nodes.append([])
        if pa.types.is_struct(arrow_type):
            nodes[node] = [kernel.STRUCT, len(fields), arrow_type.num_fields]
            at = len(fields)
            for field in arrow_type:
                name = field.name.encode()
                said.append(f"{path}{field.name} ({field.type})")
                fields.append([len(names), len(name), -1])
                names.extend(name)
            for i, field in enumerate(arrow_type):
                fields[at + i][2] = add(field.type, f"{path}{field.name}.")
        elif pa.types.is_list(arrow_type):
            nodes[node] = [kernel.LIST, add(arrow_type.value_type, path), 0]
        else:
            nodes[node] = _leaf(arrow_type)
        return node

    add(struct, "")
    shape = (-1, kernel.FIELD_WORDS)
    return Columns(
        np.array(nodes, np.int64), np.array(fields, np.int64).reshape(shape), bytes(names), (*said, "")
    )


def _leaf(arrow_type: pa.DataType) -> list[int]:
    kinds = pa.types
    if kinds.is_integer(arrow_type):
        return [kernel.INTEGER, arrow_type.bit_width, 0]
    if kinds.is_decimal(arrow_type):
        return [kernel.DECIMAL, arrow_type.precision, arrow_type.scale]
    if kinds.is_timestamp(arrow_type):
        return [kernel.TIME if arrow_type.tz else kernel.LOCAL_TIME, 0, 0]
    if kinds.is_floating(arrow_type):
        return [kernel.REAL, 0, 0]
    return [kernel.BOOLEAN if kinds.is_boolean(arrow_type) else kernel.STRING, 0, 0]
