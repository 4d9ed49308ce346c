"""Places in the log as options name them: an offset, where a leadership term begins, a time.

Pure: ``resolving.py`` looks in the log where they are.
"""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from cluster.errors import ConfigurationError
from spark_connector.offsets import Offset
from spark_connector.values import wrong_value

EARLIEST = Offset(None, -2)  # the numbers are Kafka's, and accepted in {"position": n}
LATEST = Offset(None, -1)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class TermBegin:
    """The first entry of a leadership term."""

    leadership_term_id: int


@dataclass(frozen=True, slots=True)
class Instant:
    """The first entry of a time or later; ``text`` is the time as it was given."""

    epoch_us: int
    text: str


@dataclass(frozen=True, slots=True)
class GroupBegin:
    """Where the consumer group of the read is; where the log begins, for a group without a report."""


GROUP = GroupBegin()

Place = Offset | TermBegin | Instant | GroupBegin


class NamedPlace(NamedTuple):
    """A place, and the option that names it."""

    option: str
    place: Place


def parse_offsets(name: str, value: str) -> Place:
    """A place in the log, ``EARLIEST`` or ``LATEST``, or an offset as in a checkpoint."""
    return _place(name, value, {"earliest": EARLIEST, "latest": LATEST, "group": GROUP})


def parse_end(name: str, value: str) -> Place:
    """As ``parse_offsets``, of where a read ends: no begin of the log, and no group."""
    place = _place(name, value, {"latest": LATEST})
    if place == EARLIEST:
        raise _no_place(name, value, "latest")
    return place


def _place(name: str, value: str, named: dict[str, Place]) -> Place:
    text = value.strip()
    if text.lower() in named:
        return named[text.lower()]
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if isinstance(given, dict) and "v" in given:
        return _place_of_offset(name, given)
    if _is_term(given):
        return TermBegin(given["term"])
    if not _is_position(given):
        raise _no_place(name, value, ", ".join(named))
    return Offset(given.get("cluster"), given["position"])


def _no_place(name: str, value: str, words: str) -> ConfigurationError:
    return wrong_value(name, value, f'{words}, {{"position": n}}, {{"term": n}} or an offset of a checkpoint')


def parse_instant(name: str, value: str) -> Instant:
    """Milliseconds since 1970, as Kafka's source takes them, or a time of ISO 8601 with its zone."""
    text = value.strip()
    if re.fullmatch(r"[0-9]{1,15}", text):
        return Instant(1000 * int(text), text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None or time < _EPOCH:
        expected = "milliseconds since 1970, or a time with its zone such as 2026-11-22T09:30:00Z"
        raise wrong_value(name, value, expected)
    return Instant(epoch_us(time), text)


def epoch_us(time: datetime) -> int:
    """Microseconds since 1970 of a time with its zone."""
    return (time - _EPOCH) // _MICROSECOND


def _place_of_offset(name: str, given: dict[str, Any]) -> Offset:
    try:
        offset = Offset.from_json(given)
    except ConfigurationError as error:
        raise ConfigurationError(f"option {name}: {error}") from None
    return Offset(offset.cluster, offset.position, term=offset.term)


def _is_position(given: Any) -> bool:
    """Whether ``given`` is a position, with or without the cluster whose log it is of, and nothing else."""
    return (
        isinstance(given, dict)
        and given.keys() <= {"cluster", "position"}
        and isinstance(given.get("cluster"), str | None)
        and type(position := given.get("position")) is int
        and EARLIEST.position <= position < 1 << 62
    )


def _is_term(given: Any) -> bool:
    return (
        isinstance(given, dict)
        and given.keys() == {"term"}
        and type(term_id := given["term"]) is int
        and 0 <= term_id < 1 << 62
    )
