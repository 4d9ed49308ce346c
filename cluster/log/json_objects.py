"""Which payloads are JSON objects of given columns, judged one by one in a pass over their bytes.

Arrow's reader takes or refuses a run of objects as a whole. Here each payload is judged by itself: its bytes
are one object, in RapidJSON's grammar as Arrow configures it (numbers may be ``NaN``, ``Inf`` and
``Infinity``), and where it has a column, the value is of the column's type, or null. The rest is looked at by
its grammar alone.

Columns are a table of nodes, the root first, and one of fields:

    node     kind, first, count     STRUCT: its fields; LIST: first is the element's node;
                                    INTEGER: first is its bits; DECIMAL: precision and scale
    field    name offset, name length, node
"""

import numpy as np
from numba import types

from cluster.log.kernel import kernel, routine
from cluster.log.memory import BYTES, BYTES_OUT, WORDS, WORDS_OUT, get_u8, put_u8

STRUCT, LIST, INTEGER, REAL, BOOLEAN, STRING, TIME, LOCAL_TIME, DECIMAL = range(9)
NODE_WORDS = FIELD_WORDS = 3
FITS, NO_OBJECT, NO_UTF_8, OTHER_TYPE, TWICE = range(5)  # the last two with 8 times the field beside
_OF_FIELD = 8
_OPEN_WORDS = 3  # of an object or array that has a column: node, number of the object, field

_EXPONENT_MAX = 308
_DIGITS_COUNTED = 17
_DECIMAL_DIGITS_MAX = 38
_SYNTAX, _ENCODING = -1, -2


@routine
def _space_end(data, at, end):  # type: ignore[no-untyped-def]
    while at < end:
        byte = get_u8(data, at)
        if byte != 32 and byte != 10 and byte != 13 and byte != 9:
            break
        at += 1
    return at


@routine
def _is_text(data, at, end, text):  # type: ignore[no-untyped-def]
    """Whether the bytes from ``at`` are ``text``, up to eight characters, the last one in the lowest byte."""
    length = 0
    rest = text
    while rest:
        length += 1
        rest >>= 8
    if end - at < length:
        return False
    i = 0
    while i < length and get_u8(data, at + i) == (text >> (8 * (length - 1 - i))) & 0xFF:
        i += 1
    return i == length


@routine
def _is_digit(data, at, end):  # type: ignore[no-untyped-def]
    return at < end and 48 <= get_u8(data, at) <= 57


@routine
def _digits_end(data, at, end):  # type: ignore[no-untyped-def]
    while _is_digit(data, at, end):
        at += 1
    return at


@routine
def _hex4(data, at, end):  # type: ignore[no-untyped-def]
    """The value of four hexadecimal digits, or -1."""
    if end - at < 4:
        return -1
    value = 0
    for i in range(4):
        byte = get_u8(data, at + i)
        if 48 <= byte <= 57:
            value = value * 16 + byte - 48
        elif 65 <= byte <= 70 or 97 <= byte <= 102:
            value = value * 16 + (byte & 0xDF) - 55
        else:
            return -1
    return value


@routine
def _escape_end(data, at, end):  # type: ignore[no-untyped-def]
    """The end of the escape whose backslash is before ``at``, or an error; half a surrogate pair is one."""
    if at >= end:
        return _SYNTAX
    byte = get_u8(data, at)
    if byte != 117:  # u
        is_known = byte == 34 or byte == 47 or byte == 92 or byte == 98  # " / \ b
        return at + 1 if is_known or byte == 102 or byte == 110 or byte == 114 or byte == 116 else _SYNTAX
    code = _hex4(data, at + 1, end)
    if code < 0 or 0xDC00 <= code < 0xE000:
        return _SYNTAX
    if code < 0xD800 or code >= 0xE000:
        return at + 5
    if not _is_text(data, at + 5, end, 0x5C75):  # \u
        return _SYNTAX
    low = _hex4(data, at + 7, end)
    return at + 11 if 0xDC00 <= low < 0xE000 else _SYNTAX


@routine
def _character_end(data, at, end):  # type: ignore[no-untyped-def]
    """The end of the UTF-8 character of several bytes at ``at``, or an error."""
    lead = get_u8(data, at)
    length = 2 + (lead >= 0xE0) + (lead >= 0xF0)
    if lead < 0xC2 or lead > 0xF4 or end - at < length:
        return _ENCODING
    for i in range(1, length):
        if get_u8(data, at + i) & 0xC0 != 0x80:
            return _ENCODING
    second = get_u8(data, at + 1)
    if (lead == 0xE0 and second < 0xA0) or (lead == 0xED and second >= 0xA0):
        return _ENCODING
    if (lead == 0xF0 and second < 0x90) or (lead == 0xF4 and second >= 0x90):
        return _ENCODING
    return at + length


@routine
def _string_end(data, at, end):  # type: ignore[no-untyped-def]
    """The place after the quote that closes a string, or an error; and whether the string has escapes."""
    has_escapes = False
    while at < end:
        byte = get_u8(data, at)
        if byte == 34:
            return at + 1, has_escapes
        if byte < 32:
            return _SYNTAX, has_escapes
        if byte == 92:
            has_escapes = True
            at = _escape_end(data, at + 1, end)
        elif byte >= 128:
            at = _character_end(data, at, end)
        else:
            at += 1
        if at < 0:
            return at, has_escapes
    return _SYNTAX, has_escapes


@routine
def _plain(data, at, end, scratch):  # type: ignore[no-untyped-def]
    """Put a valid string's bytes into ``scratch`` without escapes; returns how many."""
    to = 0
    while at < end:
        byte = get_u8(data, at)
        at += 1
        if byte != 92:
            put_u8(scratch, to, byte)
            to += 1
            continue
        byte = get_u8(data, at)
        at += 1
        if byte != 117:
            for escape, meant in ((98, 8), (102, 12), (110, 10), (114, 13), (116, 9)):
                if byte == escape:
                    byte = meant
                    break
            put_u8(scratch, to, byte)
            to += 1
            continue
        code = _hex4(data, at, end)
        at += 4
        if 0xD800 <= code < 0xDC00:
            code = 0x10000 + ((code - 0xD800) << 10) + _hex4(data, at + 2, end) - 0xDC00
            at += 6
        if code < 0x80:
            put_u8(scratch, to, code)
            to += 1
            continue
        more = 1 + (code >= 0x800) + (code >= 0x10000)
        put_u8(scratch, to, (0xFF00 >> (more + 1)) & 0xFF | code >> (6 * more))
        for i in range(more):
            put_u8(scratch, to + 1 + i, 0x80 | (code >> (6 * (more - 1 - i)) & 0x3F))
        to += 1 + more
    return to


@routine
def _number_end(data, at, end):  # type: ignore[no-untyped-def]
    """The end of the number at ``at``, or an error; and whether it is an integer."""
    if at < end and get_u8(data, at) == 45:
        at += 1
    begin = at
    if _is_text(data, at, end, 0x4E614E):  # NaN
        return at + 3, False
    if _is_text(data, at, end, 0x496E66):  # Inf
        if at + 3 == end or get_u8(data, at + 3) != 105:
            return at + 3, False
        return at + 8 if _is_text(data, at + 3, end, 0x696E697479) else _SYNTAX, False  # inity
    if not _is_digit(data, at, end):
        return _SYNTAX, False
    at = at + 1 if get_u8(data, at) == 48 else _digits_end(data, at, end)
    point, is_integer = at, True
    if at < end and get_u8(data, at) == 46:
        is_integer = False
        at = _digits_end(data, at + 1, end)
        if at == point + 1:
            return _SYNTAX, False
    if at == end or get_u8(data, at) | 32 != 101:  # e
        return at, is_integer
    bound = _EXPONENT_MAX + _counted(data, begin, point, at)
    at += 1
    is_small = at < end and get_u8(data, at) == 45
    if at < end and (get_u8(data, at) == 43 or is_small):
        at += 1
    if not _is_digit(data, at, end):
        return _SYNTAX, False
    exponent = 0
    while _is_digit(data, at, end):
        exponent = min(exponent * 10 + get_u8(data, at) - 48, 1 << 31)
        at += 1
    return _SYNTAX if exponent > bound and not is_small else at, False


@routine
def _counted(data, begin, point, end):  # type: ignore[no-untyped-def]
    """How many digits after the point RapidJSON counts when it looks for an exponent that is too big."""
    is_zero = get_u8(data, begin) == 48
    significant, counted = point - begin - 1, 0
    for i in range(point + 1, end):
        if significant == _DIGITS_COUNTED:
            break
        counted += 1
        is_zero = is_zero and get_u8(data, i) == 48
        significant += not is_zero
    return counted


@routine
def _is_integer_of(data, at, end, bits):  # type: ignore[no-untyped-def]
    """Whether the integer in the bytes is one of so many bits, with a sign."""
    is_negative = get_u8(data, at) == 45
    at += is_negative
    if end - at > 19:
        return False
    bound = 2 * ((1 << (bits - 2)) - 1) + 1
    value = 0  # of the digits before
    for i in range(at, end):
        digit = get_u8(data, i) - 48
        if value > bound // 10 or (value == bound // 10 and digit > bound % 10 + is_negative):
            return False
        value = value * 10 + digit if i + 1 < end else value
    return True


@routine
def _two_digits(data, at, end):  # type: ignore[no-untyped-def]
    """The value of two digits, or a number that no part of a time has."""
    if not (_is_digit(data, at, end) and _is_digit(data, at + 1, end)):
        return 100
    return (get_u8(data, at) - 48) * 10 + get_u8(data, at + 1) - 48


@routine
def _is_time(data, at, end, may_have_zone):  # type: ignore[no-untyped-def]
    """Whether the bytes are a date of ISO 8601, or a time of microseconds at most, with or without a zone."""
    if end - at < 10 or get_u8(data, at + 4) != 45 or get_u8(data, at + 7) != 45:
        return False
    century, year = _two_digits(data, at, end), _two_digits(data, at + 2, end)
    month, day = _two_digits(data, at + 5, end), _two_digits(data, at + 8, end)
    if century == 100 or year == 100 or not 1 <= month <= 12 or day < 1:
        return False
    days = 30 + ((month + (month >> 3)) & 1)
    if month == 2:
        days = 28 + (year % 4 == 0 and (year != 0 or century % 4 == 0))
    if day > days:
        return False
    at += 10
    if at == end:
        return True
    if get_u8(data, at) != 32 and get_u8(data, at) != 84:  # T
        return False
    if _two_digits(data, at + 1, end) > 23:
        return False
    at += 3
    if at < end and get_u8(data, at) == 58:
        if _two_digits(data, at + 1, end) > 59:
            return False
        at += 3
        if at < end and get_u8(data, at) == 58:
            if _two_digits(data, at + 1, end) > 59:
                return False
            at += 3
            if at < end and get_u8(data, at) == 46:
                after = _digits_end(data, at + 1, end)
                if not 1 <= after - at - 1 <= 6:
                    return False
                at = after
    if at == end:
        return True
    if not may_have_zone:
        return False
    sign = get_u8(data, at)
    if sign == 90:  # Z
        return at + 1 == end
    if (sign != 43 and sign != 45) or _two_digits(data, at + 1, end) > 23:
        return False
    at += 3
    if at < end and get_u8(data, at) == 58:
        at += 1
        if at == end:
            return False
    return at == end or (_two_digits(data, at, end) <= 59 and at + 2 == end)


@routine
def _is_decimal(data, at, end, precision, scale):  # type: ignore[no-untyped-def]
    """Whether the bytes are a number that a decimal type holds, as Arrow's reader counts its digits.

    That reader takes more of them before the point than the type has, which Spark then fails at.
    """
    if at < end and (get_u8(data, at) == 43 or get_u8(data, at) == 45):
        at += 1
    digits, point = 0, -1  # so many before and after the point, and before it
    first, last = -1, 0  # the first, and the place after the last, that is not 0
    while at < end:
        byte = get_u8(data, at)
        if byte == 46 and point < 0:
            point = digits
        elif 48 <= byte <= 57:
            digits += 1
            if byte != 48:
                first = digits - 1 if first < 0 else first
                last = digits
        else:
            break
        at += 1
    if not digits:
        return False
    point = digits if point < 0 else point
    exponent = 0
    if at < end:
        if get_u8(data, at) | 32 != 101:
            return False
        at += 1
        is_small = at < end and get_u8(data, at) == 45
        if at < end and (get_u8(data, at) == 43 or is_small):
            at += 1
        if _digits_end(data, at, end) != end or not 1 <= end - at <= 6:
            return False
        for i in range(at, end):
            exponent = exponent * 10 + get_u8(data, i) - 48
        exponent = -exponent if is_small else exponent
    counted = digits - (first if 0 <= first < point else point)
    counted += max(exponent - (digits - point), 0)
    if counted > precision or digits - point - exponent > _DECIMAL_DIGITS_MAX:
        return False
    point += exponent
    return first < 0 or (point - first <= precision - scale and last - point <= scale)


@routine
def _field_of(data, at, length, fields, names, first, count, hint):  # type: ignore[no-untyped-def]
    """The field of a struct that has the name, or -1; names mostly come in the order of the columns."""
    for i in range(count):
        field = first + (hint + i) % count
        if fields[FIELD_WORDS * field + 1] != length:
            continue
        offset = fields[FIELD_WORDS * field]
        k = 0
        while k < length and get_u8(data, at + k) == get_u8(names, offset + k):
            k += 1
        if k == length:
            return field
    return -1


@routine
def _is_of_kind(data, at, end, kind, first, count, is_string):  # type: ignore[no-untyped-def]
    """Whether a string without escapes and quotes, or a number, is one of the column's type."""
    if kind == STRING:
        return is_string
    if kind == DECIMAL:
        return _is_decimal(data, at, end, first, count)
    if is_string:
        return (kind in (TIME, LOCAL_TIME)) and _is_time(data, at, end, kind == TIME)
    return kind == REAL


@routine
def _verdict(data, at, end, nodes, fields, names, seen, known, open_, scratch):  # type: ignore[no-untyped-def]
    depth = with_columns = 0  # open objects and arrays; the outermost of them have columns
    node, field = 0, 0  # of the value that comes; node -1 for any value
    is_value, is_after, is_opened = True, False, False
    at = _space_end(data, at, end)
    if at == end or get_u8(data, at) != 123:
        return NO_OBJECT
    while True:
        at = _space_end(data, at, end)
        if at == end:
            return FITS if is_after and not depth else NO_OBJECT
        byte = get_u8(data, at)
        if is_after or (is_opened and (byte == 125 or byte == 93)):
            if not depth:
                return NO_OBJECT
            opened = get_u8(open_, depth - 1)
            at += 1
            if byte == opened + 2:
                with_columns -= with_columns == depth
                depth -= 1
                is_after, is_opened = True, False
                continue
            if byte != 44 or is_opened:
                return NO_OBJECT
            is_after, is_value = False, opened == 91
            if is_value:
                node = -1
                if with_columns == depth:
                    place = _OPEN_WORDS * (depth - 1)
                    node, field = nodes[NODE_WORDS * known[place] + 1], known[place + 2]
            continue
        is_opened = False
        if not is_value:
            if byte != 34:
                return NO_OBJECT
            begin = at + 1
            at, has_escapes = _string_end(data, begin, end)
            if at < 0:
                return NO_OBJECT if at == _SYNTAX else NO_UTF_8
            node = -1
            if with_columns == depth:
                place = _OPEN_WORDS * (depth - 1)
                first, count = nodes[NODE_WORDS * known[place] + 1], nodes[NODE_WORDS * known[place] + 2]
                hint = field + 1 - first if first <= field < first + count else 0
                if has_escapes:
                    length = _plain(data, begin, at - 1, scratch)
                    found = _field_of(scratch, 0, length, fields, names, first, count, hint)
                else:
                    found = _field_of(data, begin, at - 1 - begin, fields, names, first, count, hint)
                if found >= 0:
                    field = found
                    if seen[field] == known[place + 1]:
                        return TWICE + _OF_FIELD * field
                    seen[field] = known[place + 1]
                    node = fields[FIELD_WORDS * field + 2]
            at = _space_end(data, at, end)
            if at == end or get_u8(data, at) != 58:
                return NO_OBJECT
            at += 1
            is_value = True
            continue
        wrong = OTHER_TYPE + _OF_FIELD * field
        kind = first = count = -1
        if node >= 0:
            kind, first, count = (
                nodes[NODE_WORDS * node],
                nodes[NODE_WORDS * node + 1],
                nodes[NODE_WORDS * node + 2],
            )
        if byte == 123 or byte == 91:
            if node >= 0:
                if kind != (STRUCT if byte == 123 else LIST):
                    return wrong
                place = _OPEN_WORDS * depth
                seen[seen.size - 1] += 1
                known[place], known[place + 1], known[place + 2] = node, seen[seen.size - 1], field
                with_columns += 1
                node = first
            put_u8(open_, depth, byte)
            depth += 1
            at += 1
            is_value, is_opened = byte == 91, True
            continue
        is_after = True
        if byte == 34:
            begin = at + 1
            at, has_escapes = _string_end(data, begin, end)
            if at < 0:
                return NO_OBJECT if at == _SYNTAX else NO_UTF_8
            if node < 0 or kind == STRING:
                continue
            if has_escapes:
                length = _plain(data, begin, at - 1, scratch)
                is_right = _is_of_kind(scratch, 0, length, kind, first, count, True)
            else:
                is_right = _is_of_kind(data, begin, at - 1, kind, first, count, True)
            if not is_right:
                return wrong
        elif byte == 110:  # null
            if not _is_text(data, at, end, 0x6E756C6C):
                return NO_OBJECT
            at += 4
        elif byte == 116 or byte == 102:  # true, false
            is_true = _is_text(data, at, end, 0x74727565)
            if not is_true and not _is_text(data, at, end, 0x66616C7365):
                return NO_OBJECT
            at += 4 if is_true else 5
            if node >= 0 and kind != BOOLEAN:
                return wrong
        else:
            begin = at
            at, is_integer = _number_end(data, at, end)
            if at < 0:
                return NO_OBJECT
            if kind == INTEGER:
                if not is_integer or not _is_integer_of(data, begin, at, first):
                    return wrong
            elif node >= 0 and not _is_of_kind(data, begin, at, kind, first, count, False):
                return wrong


@kernel(
    types.void(
        BYTES, WORDS, WORDS, WORDS, WORDS, BYTES, WORDS_OUT, WORDS_OUT, BYTES_OUT, BYTES_OUT, WORDS_OUT
    )
)
def _judge(data, starts, ends, nodes, fields, names, seen, known, open_, scratch, verdicts):  # type: ignore[no-untyped-def]
    for i in range(starts.size):
        verdicts[i] = _verdict(data, starts[i], ends[i], nodes, fields, names, seen, known, open_, scratch)


def judge(
    data: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
    nodes: np.ndarray,
    fields: np.ndarray,
    names: bytes,
) -> tuple[np.ndarray, np.ndarray]:
    """A verdict for each payload, and the field that it is about where it is OTHER_TYPE or TWICE.

    ``data`` has the bytes of all payloads. ``nodes`` and ``fields`` are int64, a row for each.
    """
    ends = starts + lengths
    assert not len(starts) or (starts.min() >= 0 and lengths.min() >= 0 and ends.max() <= data.size)
    assert nodes[0, 0] == STRUCT and nodes.shape[1] == NODE_WORDS and fields.shape[1] == FIELD_WORDS
    longest = int(lengths.max(initial=0))
    verdicts = np.empty(len(starts), np.int64)
    _judge(
        data, starts, ends, nodes.reshape(-1), fields.reshape(-1), np.frombuffer(names + b"\0", np.uint8),
        np.zeros(len(fields) + 1, np.int64), np.zeros(_OPEN_WORDS * len(nodes), np.int64),
        np.empty(longest + 1, np.uint8), np.empty(longest + 1, np.uint8), verdicts,
    )  # fmt: skip
    return verdicts % _OF_FIELD, verdicts // _OF_FIELD
