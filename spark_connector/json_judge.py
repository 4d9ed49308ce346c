"""Which payloads a JSON decoder refuses, told one by one: without a call of Arrow's reader for each.

Arrow's reader takes or refuses a whole run of objects. What refuses a run is found here. A judge refuses only
what that reader refuses alone, too. Of what it cannot tell, such as nesting beyond Python's, it says nothing:
that is left to the reader.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from json import JSONDecodeError, JSONDecoder, dumps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

Fits = Callable[[Any], bool]

_SPACE = " \t\n\r"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})([ T]([01][0-9]|2[0-3])(:[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?)?"
    r"(Z|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)?)?"
)
_DECIMAL = re.compile(r"[+-]?([0-9]*)\.?([0-9]*)([eE]([+-]?[0-9]{1,6}))?")


class _Real(str):
    """A number that is no integer, as its text: no string."""


# Objects are tuples of their pairs, so that a name that occurs twice is seen; arrays are lists.
_scan = JSONDecoder(object_pairs_hook=tuple, parse_float=_Real).raw_decode


def judge_of(struct: pa.StructType) -> Callable[[bytes], bool]:
    """Whether a payload may be an object of ``struct``; False is certain."""
    fits = _fits(struct)

    def may_fit(payload: bytes) -> bool:
        try:
            text = payload.decode()
            start = len(text) - len(text.lstrip(_SPACE))
            value, end = _scan(text, start)
        except JSONDecodeError:
            return "Inf" in text or "NaN" in text  # which are written in more ways than Python knows
        except UnicodeDecodeError:
            return False
        except (ValueError, RecursionError):
            return True
        if end < len(text) and text[end:].strip(_SPACE):
            return False
        return fits(value) and not (_SURROGATE.search(text) and _has_lone_surrogate(value))

    return may_fit


def _has_lone_surrogate(value: Any) -> bool:
    try:
        dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _fits(arrow_type: pa.DataType) -> Fits:
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_struct(arrow_type):
        return _struct({field.name: _fits(field.type) for field in arrow_type})
    if kinds.is_list(arrow_type):
        fits = _fits(arrow_type.value_type)
        return lambda value: value is None or (type(value) is list and all(map(fits, value)))
    if kinds.is_integer(arrow_type):
        bound = 1 << (arrow_type.bit_width - 1)
        return lambda value: value is None or (type(value) is int and -bound <= value < bound)
    if kinds.is_floating(arrow_type):
        return lambda value: value is None or type(value) in (int, float) or _is_real(value)
    if kinds.is_boolean(arrow_type):
        return lambda value: value is None or type(value) is bool
    if kinds.is_string(arrow_type):
        return lambda value: value is None or type(value) is str
    if kinds.is_timestamp(arrow_type):
        return lambda value: value is None or (type(value) is str and _is_time(value))
    return _decimal(arrow_type.precision, arrow_type.scale)


def _struct(by_name: dict[str, Fits]) -> Fits:
    get = by_name.get

    def fits(value: Any) -> bool:
        if type(value) is not tuple:
            return value is None
        seen = 0
        for name, member in value:
            fits_member = get(name)
            if fits_member is not None:
                if not fits_member(member):
                    return False
                seen += 1
        return seen < 2 or len({name for name, _ in value if name in by_name}) == seen

    return fits


def _is_real(value: Any) -> bool:
    """An exponent beyond a double's is refused, whatever type the column has."""
    found = _DECIMAL.fullmatch(value) if type(value) is _Real else None
    return found is not None and int(found[4] or 0) <= 308 + len(found[2])


def _is_time(text: str) -> bool:
    found = _TIME.fullmatch(text)
    if found is None:
        return False
    try:
        date(int(found[1]) or 4, int(found[2]), int(found[3]))  # the year 0 is a leap year, as 4
    except ValueError:
        return False
    return True


def _decimal(precision: int, scale: int) -> Fits:
    def fits(value: Any) -> bool:
        if value is None:
            return True
        if type(value) is not int and not isinstance(value, str):
            return False
        found = _DECIMAL.fullmatch(str(value))
        if found is None or not found[1] + found[2]:
            return False
        digits = (found[1] + found[2]).rstrip("0")
        point = len(found[1]) + int(found[4] or 0)
        whole = digits.lstrip("0")
        leading = len(digits) - len(whole)
        return not whole or (point - leading <= precision and len(digits) - point <= scale)

    return fits
