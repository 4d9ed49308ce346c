"""What a key of a configuration is, and the kinds of value that one has, as they are written in TOML."""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

UNIT_NEEDED_NS = 1_000_000  # who writes less than a millisecond without a unit means another unit
DURATION_NS_MAX = 1 << 62  # a moment and a duration together fit into 64 bits
NS_OF_UNIT = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
BYTES_OF_UNIT = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _parse_duration(value: object) -> object:
    """Nanoseconds of ``"10s"``, ``"200ms"``, ``"50us"``, ``"7ns"`` or of a plain, large number."""
    text = str(value).strip() if isinstance(value, int | str) and not isinstance(value, bool) else ""
    match = re.fullmatch(r"(-?\d{1,30})(ns|us|ms|s)?", text)
    if match is None:
        raise PydanticCustomError("duration", 'expected a duration such as "10s", "200ms", "50us" or "7ns"')
    duration_ns = int(match[1]) * NS_OF_UNIT[match[2] or "ns"]
    if match[2] is None and 0 < duration_ns < UNIT_NEEDED_NS:
        raise PydanticCustomError("duration", f'expected a unit, as in "{duration_ns}s" or "{duration_ns}ns"')
    if duration_ns > DURATION_NS_MAX:
        raise PydanticCustomError("duration", "expected a duration of at most 2^62 ns")
    return duration_ns


def _parse_size(value: object) -> object:
    """Bytes of ``"64m"``, ``"128k"``, ``"1g"`` or of a plain number of bytes."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = re.fullmatch(r"(\d{1,30})([kmg]?)", value.strip().lower()) if isinstance(value, str) else None
    if match is None:
        raise PydanticCustomError("size", 'expected a size in bytes such as "64m", "128k" or 4096')
    return int(match[1]) * BYTES_OF_UNIT[match[2]]


def _parse_free(value: object) -> object:
    """As a size, or ``"auto"``."""
    if isinstance(value, str) and value.strip().lower() == "auto":
        return "auto"
    length = _parse_size(value)
    if not isinstance(length, int) or not 0 <= length <= 1 << 62:
        raise PydanticCustomError("size", "expected auto, or a size of at most 2^62 bytes")
    return length


def _parse_version(value: object) -> object:
    """A semantic version as the protocol has it: major << 16 | minor << 8 | patch."""
    match = re.fullmatch(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})", value) if isinstance(value, str) else None
    if match is None or any(int(part) > 255 for part in match.groups()):
        raise PydanticCustomError("version", 'expected a version such as "0.0.1", each part at most 255')
    return int(match[1]) << 16 | int(match[2]) << 8 | int(match[3])


def _parse_lines(value: object) -> object:
    """A list, or the same as one string with ``|`` between."""
    return value.split("|") if isinstance(value, str) else value


def _parse_names(value: object) -> object:
    return [name.strip() for name in value.split(",")] if isinstance(value, str) else value


def duration_text(duration_ns: int) -> str:
    """The text of a duration, in the largest unit that it is a multiple of."""
    unit = max((u for u, ns in NS_OF_UNIT.items() if duration_ns % ns == 0), key=NS_OF_UNIT.__getitem__)
    return f"{duration_ns // NS_OF_UNIT[unit]}{unit}"


def value_text(field_name: str, value: Any) -> str:
    """The value of a key as people read it."""
    if field_name.endswith("_ns") and isinstance(value, int):
        return duration_text(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


Duration = Annotated[int, BeforeValidator(_parse_duration)]
Size = Annotated[int, BeforeValidator(_parse_size)]
Free = Annotated[int | Literal["auto"], BeforeValidator(_parse_free)]
Version = Annotated[int, BeforeValidator(_parse_version)]
Members = Annotated[list[str], BeforeValidator(_parse_lines)]
Names = Annotated[list[str], BeforeValidator(_parse_names)]
ServiceModes = Annotated[
    list[Literal["auto", "process", "inline", "external"]], BeforeValidator(_parse_names)
]


def key(default: Any, *, reloadable: bool = False, **bounds: Any) -> Any:
    """One key and its default, as TOML may have it. ``reloadable``: it changes without a restart."""
    declared = {"reloadable": reloadable, "default": default, "bounds": bounds}
    return Field(default, validate_default=True, json_schema_extra=declared, **bounds)


def duration(default: int | str, **rest: Any) -> Any:
    """A key whose value is a duration, of more than 0 unless there are other bounds."""
    if not rest.keys() & {"ge", "le"}:
        rest["gt"] = 0
    return key(default, **rest)


def is_reloadable(field: FieldInfo) -> bool:
    """As the key was declared."""
    extra: Any = field.json_schema_extra
    return bool(extra["reloadable"])


def reloadable_of(model: type[BaseModel]) -> frozenset[str]:
    """The fields that change without a restart."""
    return frozenset(name for name, field in model.model_fields.items() if is_reloadable(field))


def same_key(model: type[BaseModel], field_name: str, *, reloadable: bool = False) -> Any:
    """The key that another configuration has too: the same default and bounds."""
    declared: Any = model.model_fields[field_name].json_schema_extra
    return key(declared["default"], reloadable=reloadable, **declared["bounds"])


def do_not_fit(text: str) -> PydanticCustomError:
    """What a validator raises of keys that are right each by itself."""
    return PydanticCustomError("together", "{text}", {"text": text})


def key_of(field_name: str) -> str:
    """The key of a field: its unit stands in the value."""
    return field_name.removesuffix("_ns")
