"""numpy, or as much of it as a client needs where it is not installed.

A client alone has neither numpy nor numba: what members compile, it runs as Python, on the arrays below. They
are one-dimensional, and a slice of one is a copy. Every module that such a client imports has its ``np`` from
here.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
else:
    try:
        import numpy as np
    except ImportError:
        np = None


__all__ = ["np"]


class _Array:
    """What both kinds of array have."""

    @property
    def data(self) -> memoryview:
        return memoryview(self)  # type: ignore[arg-type]

    @property
    def size(self) -> int:
        return len(self)  # type: ignore[arg-type]

    def copy(self) -> Any:
        return type(self)(self)  # type: ignore[call-arg]


class _Bytes(_Array, bytearray):
    """As an array of uint8."""

    def tobytes(self) -> bytes:
        return bytes(self)

    def __getitem__(self, place: Any) -> Any:
        item = super().__getitem__(place)
        return _Bytes(item) if isinstance(place, slice) else item


class _Words(_Array, array):  # type: ignore[type-arg]
    """As an array of int64."""

    def __new__(cls, values: Iterable[int]) -> _Words:
        return super().__new__(cls, "q", values)  # type: ignore[return-value]

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, list):
            return _Words([self[row] for row in place])
        item = super().__getitem__(place)
        return _Words(item) if isinstance(place, slice) else item

    def _with(self, other: Any, operation: Callable[[int, int], int]) -> _Words:
        if isinstance(other, int):
            return _Words(operation(value, other) for value in self)
        return _Words(map(operation, self, other))

    def __add__(self, other: Any) -> _Words:
        return self._with(other, operator.add)

    def __sub__(self, other: Any) -> _Words:
        return self._with(other, operator.sub)

    def __and__(self, other: Any) -> _Words:
        return self._with(other, operator.and_)

    def sum(self) -> int:
        return sum(self)

    def max(self) -> int:
        return max(self)

    def argmax(self) -> int:
        return self.index(max(self))


def _dtype(declared: Any) -> SimpleNamespace:
    """Names and length of a record: a dict with its length, or a list of name, format and count."""
    if isinstance(declared, dict):
        return SimpleNamespace(names=tuple(declared["names"]), itemsize=declared["itemsize"])
    lengths = [int(kind.lstrip("<iu")) * (count[0] if count else 1) for _, kind, *count in declared]
    return SimpleNamespace(names=tuple(name for name, *_ in declared), itemsize=sum(lengths))


def _zeros(length: int, kind: type) -> _Bytes | _Words:
    return kind(length) if kind is _Bytes else kind([0] * length)


def _cumsum(values: Sequence[int]) -> _Words:
    sums, total = [], 0
    for value in values:
        total += value
        sums.append(total)
    return _Words(sums)


if not TYPE_CHECKING and np is None:
    np = SimpleNamespace(
        ndarray=_Bytes,
        uint8=_Bytes,
        int64=_Words,
        dtype=_dtype,
        zeros=_zeros,
        empty=_zeros,
        full=lambda length, value, kind: kind([value] * length),
        frombuffer=lambda data, kind: kind(data),
        fromiter=lambda values, kind, count: kind(values),
        cumsum=_cumsum,
        array=lambda values, kind=_Words: kind(values),
    )
