"""What the filters of a query leave of a batch read.

Spark checks every row again, so that leaving too much does no harm.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from spark_connector.log import SourceLog
from spark_connector.options.cluster_options import SourceOptions
from spark_connector.options.places import epoch_us
from spark_connector.planning import aligned
from spark_connector.schema import row_columns

MAX = 1 << 62  # above every position and time


class Pushed:
    """The least and, excluded, the greatest position and time in microseconds, and the values wanted."""

    def __init__(self, options: SourceOptions) -> None:
        self._position = self._timestamp = 0, MAX
        self._values: dict[str, frozenset[Any]] = {"entryType": frozenset(options.entry_types)}
        if options.sessions:
            self._values["clusterSessionId"] = frozenset(options.sessions)

    def add(self, condition: Filter) -> None:
        """Narrow by one more filter; one that says nothing here changes nothing."""
        match _column(condition):
            case "position":
                self._position = _cut(self._position, condition, _integer)
            case "timestamp":
                self._timestamp = _cut(self._timestamp, condition, _microseconds)
            case "entryType" | "clusterSessionId" as name:
                values = wanted_values(condition)
                if values is not None:
                    self._values[name] = values & self._values.get(name, values)

    def options(self, options: SourceOptions) -> SourceOptions:
        """The options of the tasks."""
        types, sessions = self._values["entryType"], self._values.get("clusterSessionId", ())
        return replace(options, entry_types=tuple(sorted(types)), sessions=tuple(sorted(sessions)))

    def range(self, log: SourceLog, start: int, end: int) -> tuple[int, int]:
        """The part of ``[start, end)`` that may hold rows; its beginning need not be that of an entry."""
        least, below = self._position
        begin, until = max(start, aligned(least)), min(end, aligned(below))
        least, below = self._timestamp
        if least > 0:
            begin = max(begin, _or(log.first_entry("timestamp", least, end), end))
        if below < MAX:
            until = min(until, _or(log.first_entry("timestamp", below, end), end))
        is_empty = begin >= until or frozenset() in self._values.values()
        return (start, start) if is_empty else (begin, until)


def _column(condition: Filter) -> str | None:
    """The column that a filter is on; None for one on a field of a column, such as ``decoded.id``."""
    match getattr(condition, "attribute", ()):
        case (name,):
            return row_columns([name])[0]
    return None


def _cut(bounds: tuple[int, int], condition: Filter, number: Callable[[Any], int | None]) -> tuple[int, int]:
    value = number(getattr(condition, "value", None))
    if value is None:
        return bounds
    least, below = bounds
    match condition:
        case EqualTo() | EqualNullSafe():
            return max(least, value), min(below, value + 1)
        case GreaterThan():
            return max(least, value + 1), below
        case GreaterThanOrEqual():
            return max(least, value), below
        case LessThan():
            return least, min(below, value)
        case LessThanOrEqual():
            return least, min(below, value + 1)
    return bounds


def wanted_values(condition: Filter) -> frozenset[Any] | None:
    """The values that a filter leaves of its column; None where it does not say."""
    match condition:
        case EqualTo(value=value) | EqualNullSafe(value=value) if value is not None:
            return frozenset([value])
        case In(value=values):
            return frozenset(value for value in values if value is not None)
    return None


def _integer(value: Any) -> int | None:
    return value if type(value) is int else None


def _microseconds(value: Any) -> int | None:
    return epoch_us(value) if isinstance(value, datetime) and value.tzinfo is not None else None


def _or(found: int | None, default: int) -> int:
    return default if found is None else found
