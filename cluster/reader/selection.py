"""Which rows and columns a reader makes of a range of the log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Self


class Selection(NamedTuple):
    """Names of columns and of entry types, all where None, and how many rows a batch has at most."""

    columns: tuple[str, ...] | None
    entry_types: tuple[str, ...] | None
    rows_max: int | None

    @classmethod
    def of(
        cls, columns: Iterable[str] | None, entry_types: Iterable[str] | None, rows_max: int | None = None
    ) -> Self:
        """An iterator is read here once, since each block of the range asks again."""
        return cls(
            None if columns is None else tuple(columns),
            None if entry_types is None else tuple(entry_types),
            rows_max,
        )
