"""Values of options, read from their texts: what is no such value is named with what was expected."""

import difflib
import re
from collections.abc import Callable, Iterable
from typing import Any

from cluster.errors import ConfigurationError

_MOST = (1 << 63) - 1  # what Spark has room for
_MOST_MS = (1 << 31) - 1
_MS_OF = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


Parse = Callable[[str, str], Any]  # of an option's name and its value


def wrong_value(name: str, value: str, expected: str) -> ConfigurationError:
    return ConfigurationError(f"option {name} is {value!r}; expected {expected}")


def parse_text(name: str, value: str) -> str:
    if not value.strip():
        raise wrong_value(name, value, "a text that is not empty")
    return value.strip()


def parse_flag(name: str, value: str) -> bool:
    flag = {"true": True, "false": False}.get(value.strip().lower())
    if flag is None:
        raise wrong_value(name, value, "true or false")
    return flag


def whole_number(least: int, most: int, expected: str) -> Parse:
    def parse(name: str, value: str) -> int:
        text = value.strip()
        if not re.fullmatch(r"[0-9]{1,19}", text) or not least <= int(text) <= most:
            raise wrong_value(name, value, expected)
        return int(text)

    return parse


parse_count = whole_number(1, _MOST, f"a whole number from 1 to {_MOST}")
# Of a time-out: no more than sockets take.
parse_milliseconds = whole_number(1, _MOST_MS, f"milliseconds, a whole number from 1 to {_MOST_MS}")
parse_version = whole_number(0, 10**18 - 1, "a whole number from 0 on")


def parse_size(name: str, value: str) -> int:
    """Bytes: a number alone, or with ``k``, ``m``, ``g``, ``t`` (powers of 1024), ``b`` may follow."""
    match = re.fullmatch(r"([0-9]{1,19})\s*([kmgt]?)b?", value.strip().lower())
    size = 0 if match is None else int(match[1]) << (10 * " kmgt".index(match[2] or " "))
    if not 0 < size <= _MOST:
        raise wrong_value(name, value, "a size in bytes such as 1048576, 512k, 64m or 1g")
    return size


def parse_duration(name: str, value: str) -> int:
    """Milliseconds: a number alone, or with one of Spark's units from ``ms`` to ``d`` after it."""
    match = re.fullmatch(r"([0-9]{1,12})\s*(ms|s|m|min|h|d)?", value.strip().lower())
    if match is None:
        raise wrong_value(name, value, "a time such as 500ms, 30s, 15m, 2h or 1d")
    return int(match[1]) * _MS_OF[match[2] or "ms"]


def one_of(*words: str) -> Parse:
    """A value that is one of these, in whichever case."""
    by_lower = {word.lower(): word for word in words}

    def parse(name: str, value: str) -> str:
        word = by_lower.get(value.strip().lower())
        if word is None:
            raise wrong_value(name, value, " or ".join(words))
        return word

    return parse


def some_of(*words: str) -> Parse:
    """A comma list of these, in whichever case: each once, in their order here."""

    def parse(name: str, value: str) -> tuple[str, ...]:
        wanted = [word.strip().upper() for word in value.split(",")]
        for word in wanted:
            if word not in words:
                raise wrong_value(name, value, f"a comma list of {', '.join(words)}{hint(word, words)}")
        return tuple(word for word in words if word in wanted)

    return parse


def hint(word: str, names: Iterable[str]) -> str:
    by_folded_name = {name.lower(): name for name in names}
    near = difflib.get_close_matches(word.lower(), by_folded_name, n=3, cutoff=0.6)
    return f"; did you mean {', '.join(by_folded_name[name] for name in near)}?" if near else ""


def checked_by(read: Callable[[str], Any]) -> Parse:
    """A text that is not empty and that ``read``, whose error is passed on under the option's name, takes."""

    def parse(name: str, value: str) -> str:
        text = parse_text(name, value)
        try:
            read(text)
        except ConfigurationError as error:
            raise ConfigurationError(f"option {name} is {value!r}: {error}") from None
        return text

    return parse


def parse_names(name: str, value: str) -> tuple[str, ...]:
    names = tuple(word.strip() for word in value.split(","))
    if not all(names):
        raise wrong_value(name, value, "a comma list of names")
    return names


def parse_directories(name: str, value: str) -> tuple[str, ...]:
    paths = tuple(path.strip() for path in value.split(","))
    if not all(paths) or len(set(paths)) < len(paths):
        raise wrong_value(name, value, "a directory, or a comma list of different ones")
    if any(re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", path) for path in paths):
        raise wrong_value(name, value, "directories on this host, without a scheme")
    return paths


def numbers(least: int, most: int, what: str) -> Parse:
    """A comma list of them: each once, ascending."""

    def parse(name: str, value: str) -> tuple[int, ...]:
        words = [word.strip() for word in value.split(",")]
        if not all(re.fullmatch(r"-?[0-9]{1,19}", word) and least <= int(word) <= most for word in words):
            raise wrong_value(name, value, f"a comma list of {what}")
        return tuple(sorted({int(word) for word in words}))

    return parse


parse_session_ids = numbers(-(1 << 63), (1 << 63) - 1, "session ids")
parse_template_ids = numbers(0, (1 << 16) - 1, "template ids from 0 to 65535")
