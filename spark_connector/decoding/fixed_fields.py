"""Fields at fixed places of a payload as the columns of a struct, by one gather of a whole Arrow batch."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from spark_connector.decoding.decoded import Decoded


@dataclass(frozen=True, slots=True)
class FixedField:
    """``dtype`` at ``offset``; ``null`` is the value that stands for none, NaN for every NaN."""

    name: str
    offset: int
    dtype: np.dtype[Any]
    null: float | int | bytes | None = None
    is_text: bool = False  # bytes up to the first 0, in UTF-8

    @property
    def sql_type(self) -> str:
        return _kind(self.dtype, self.is_text)[0]

    def column(self, block: np.ndarray, lengths: np.ndarray) -> pa.Array:
        """From rows of bytes; null where the row is too short to have it."""
        end = self.offset + self.dtype.itemsize
        raw = np.ascontiguousarray(block[:, self.offset : end])
        values = raw.reshape(-1).view(self.dtype) if len(raw) else np.empty(0, self.dtype)
        is_null = lengths < end
        if self.null is not None:
            is_null |= np.isnan(values) if self.null != self.null else values == self.null
        _, arrow_type, made = _kind(self.dtype, self.is_text)
        if self.is_text:
            return pa.array(_texts(values, is_null), arrow_type)
        if self.dtype.kind == "S":  # numpy's meaning: without zeros at the end; Arrow ends one at its first 0
            return pa.array(values.astype(object), arrow_type, mask=is_null)
        native = values.astype(made) if made is not None else values
        return pa.array(native, mask=is_null).cast(arrow_type)


@dataclass(frozen=True, slots=True)
class FixedFields:
    """``length`` bytes of fields."""

    fields: tuple[FixedField, ...]
    length: int

    @property
    def sql_type(self) -> str:
        return f"STRUCT<{','.join(f'{field.name}:{field.sql_type}' for field in self.fields)}>"

    @property
    def arrow_type(self) -> pa.StructType:
        return pa.struct([(f.name, _kind(f.dtype, f.is_text)[1]) for f in self.fields])

    def struct(self, block: np.ndarray, lengths: np.ndarray, is_there: np.ndarray) -> pa.StructArray:
        """From rows of ``length`` bytes, the first ``lengths`` a payload's; null where not ``is_there``."""
        columns = [field.column(block, lengths) for field in self.fields]
        return pa.StructArray.from_arrays(columns, fields=list(self.arrow_type), mask=pa.array(~is_there))

    def decode(self, payloads: pa.Array) -> Decoded:
        """Payloads of exactly ``length`` bytes."""
        starts, lengths, data = byte_ranges(payloads)
        is_right = lengths == self.length
        block = gathered(data, np.where(is_right, starts, 0), self.length)
        wrong = np.flatnonzero(~is_right)
        found = lengths[wrong].tolist()
        said = {length: f"{length} bytes, expected {self.length}" for length in set(found)}
        failures = {i: said[length] for i, length in zip(wrong.tolist(), found, strict=True)}
        return Decoded(self.struct(block, np.full(len(starts), self.length), is_right), failures)


def fields_of_dtype(dtype: np.dtype[Any]) -> FixedFields:
    """The fields of a structured dtype."""
    assert dtype.names is not None and dtype.fields is not None
    return FixedFields(
        tuple(FixedField(name, dtype.fields[name][1], dtype.fields[name][0]) for name in dtype.names),
        dtype.itemsize,
    )


def byte_ranges(payloads: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where each value of a binary array begins, its length, and the bytes of all."""
    offsets = np.frombuffer(payloads.buffers()[1], np.int32, len(payloads) + 1, 4 * payloads.offset)
    data = payloads.buffers()[2]
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64), content


def gathered(data: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    """``length`` bytes from each start, as rows; 0 beyond the end."""
    padded = np.concatenate([data, np.zeros(length, np.uint8)])
    return np.lib.stride_tricks.sliding_window_view(padded, length)[starts]


def _kind(dtype: np.dtype[Any], is_text: bool) -> tuple[str, pa.DataType, str | None]:
    """Types of Spark and Arrow for a field, and of numpy on the way: Spark has no unsigned ones."""
    if dtype.kind == "S":
        return ("STRING", pa.string(), None) if is_text else ("BINARY", pa.binary(), None)
    return {
        "b1": ("BOOLEAN", pa.bool_(), "?"),
        "i1": ("TINYINT", pa.int8(), "i1"),
        "i2": ("SMALLINT", pa.int16(), "i2"),
        "i4": ("INT", pa.int32(), "i4"),
        "i8": ("BIGINT", pa.int64(), "i8"),
        "u1": ("SMALLINT", pa.int16(), "i2"),
        "u2": ("INT", pa.int32(), "i4"),
        "u4": ("BIGINT", pa.int64(), "i8"),
        "u8": ("DECIMAL(20,0)", pa.decimal128(20, 0), "u8"),
        "f2": ("FLOAT", pa.float32(), "f4"),
        "f4": ("FLOAT", pa.float32(), "f4"),
        "f8": ("DOUBLE", pa.float64(), "f8"),
    }[f"{dtype.kind}{dtype.itemsize}"]


def _texts(values: np.ndarray, is_null: np.ndarray) -> list[str | None]:
    """Up to the first 0; what is no UTF-8 is replaced."""
    return [
        None if null else value.split(b"\0", 1)[0].decode(errors="replace")
        for value, null in zip(values.tolist(), is_null.tolist(), strict=True)
    ]
