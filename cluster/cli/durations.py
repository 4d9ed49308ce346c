"""Options that are a duration, a number with its unit as 500ms, 10s, 2m, 1h or 1d; or a time, so long ago."""

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import typer

from cluster.errors import ConfigurationError

TIMES = "90s, 10m, 2h, 1d ago, or 2026-01-31T12:00:00Z"
SECONDS_OF_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")


def seconds_of(text: str, unit: str = "s") -> float | None:
    """What ``text`` means, in seconds; a number alone counts ``unit``. None: it is no duration."""
    found = DURATION.fullmatch(text)
    return None if found is None else float(found[1]) * SECONDS_OF_UNIT[found[2] or unit]


def duration_parser(example: str, least: str = "0s", unit: str = "s") -> Callable[[str | float], float]:
    """Reads a duration of a command line, of at least ``least``, in seconds."""

    def parse(value: str | float) -> float:
        seconds = value if isinstance(value, float) else seconds_of(value, unit)
        if seconds is None or seconds < (seconds_of(least) or 0):
            raise typer.BadParameter(f"{value}: expected a duration such as {example}, at least {least}")
        return seconds

    return parse


def duration_option(*names: str, help: str, default: str, least: str = "0s", unit: str = "s") -> Any:
    """An option of so many seconds, ``default`` unless given, at least ``least``."""
    parser = duration_parser(default, least, unit)
    return typer.Option(*names, help=help, parser=parser, metavar="TIME", show_default=default)


def time_of(option: str, text: str) -> datetime:
    """When ``text`` means: how long ago, or a date with its time. Raises ConfigurationError."""
    if not text.isdigit() and (seconds := seconds_of(text)) is not None:
        with suppress(OverflowError):
            return datetime.now(UTC) - timedelta(seconds=seconds)
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{option} is {text!r}; expected how long ago, as 90s, 10m, 2h or 1d, or a time as "
            "2026-01-31T12:00:00Z"
        ) from None
    return given if given.tzinfo else given.astimezone()
