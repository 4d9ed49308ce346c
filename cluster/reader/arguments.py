"""What a caller gives a reader, checked: paths, positions, and which rows and columns of a range."""

import operator
import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from cluster.errors import ConfigurationError
from cluster.protocol.frame import FRAME_ALIGNMENT

Path = str | os.PathLike[str]


def path_of(name: str, path: Path | None) -> str | None:
    """Raises ConfigurationError for what is no path."""
    return None if path is None else _path(name, path)


def _path(name: str, path: Path) -> str:
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ConfigurationError(f"{name} is {path!r}, expected the path of a directory")
    return os.fspath(path)


def paths_of(name: str, paths: Path | Sequence[Path] | None) -> str | list[str] | None:
    """Of one directory or of several. Raises ConfigurationError for what is neither."""
    if paths is None or isinstance(paths, str | os.PathLike):
        return path_of(name, paths)
    if not isinstance(paths, Sequence) or not paths:
        raise ConfigurationError(f"{name} is {paths!r}, expected the path of a directory, or several")
    return [_path(name, path) for path in paths]


def start_of(name: str, position: int) -> int:
    """Where entries may begin. Raises ConfigurationError for other values."""
    begin = end_of(name, position)
    if begin < 0 or begin % FRAME_ALIGNMENT:
        raise ConfigurationError(
            f"{name} is {position}, expected the position or endPosition of an entry, "
            f"a multiple of {FRAME_ALIGNMENT}"
        )
    return begin


def end_of(name: str, position: int) -> int:
    """Of a range, which any whole number ends. Raises ConfigurationError for what is none."""
    try:
        return operator.index(position)
    except TypeError:
        raise ConfigurationError(f"{name} is {position!r}, expected a whole number") from None


class Selection(NamedTuple):
    """Names of columns and of entry types, all where None, and how many rows a batch has at most."""

    columns: tuple[str, ...] | None
    entry_types: tuple[str, ...] | None
    rows_max: int | None

    @classmethod
    def of(
        cls, columns: Iterable[str] | None, entry_types: Iterable[str] | None, rows_max: int | None = None
    ) -> Self:
        """An iterator is read here once, since each block of the range asks again.

        Raises ConfigurationError.
        """
        if rows_max is not None and end_of("rows_per_batch", rows_max) < 1:
            raise ConfigurationError(f"rows_per_batch is {rows_max}, expected 1 or more")
        return cls(_names("columns", columns), _names("entry_types", entry_types), rows_max)


def _names(name: str, values: Iterable[str] | None) -> tuple[str, ...] | None:
    if values is None:
        return None
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ConfigurationError(f"{name} is {values!r}, expected names in a list")
    return tuple(values)
