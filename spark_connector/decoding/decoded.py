"""What every decoder of payloads makes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from cluster.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

DECODED = "decoded"


class Decoded(NamedTuple):
    """A column as long as the payloads; ``failures`` has why for the index of each that did not decode."""

    column: pa.Array
    failures: dict[int, str]


def check_field_names(where: str, names: Iterable[str]) -> None:
    """Raise ConfigurationError for names that cannot be those of a struct's fields in Spark's SQL."""
    seen = set()
    for name in names:
        if not (name.isidentifier() and name.isascii()) or name.lower() in seen:
            raise ConfigurationError(f"{where}: {name!r} cannot be a column's name, or occurs twice")
        seen.add(name.lower())
