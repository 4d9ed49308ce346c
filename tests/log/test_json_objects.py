"""Which payloads are JSON objects of given columns; beside Arrow's reader in ``spark/test_decoding.py``."""

import json
import random

import numpy as np
import pytest

from cluster.log.json_objects import (
    FITS,
    INTEGER,
    LIST,
    NO_OBJECT,
    NO_UTF_8,
    OTHER_TYPE,
    STRING,
    STRUCT,
    TWICE,
    judge,
)

# id INTEGER, l LIST of STRUCT (id STRING)
NODES = np.array([[STRUCT, 0, 2], [INTEGER, 64, 0], [LIST, 3, 0], [STRUCT, 2, 1], [STRING, 0, 0]], np.int64)
FIELDS = np.array([[0, 2, 1], [2, 1, 2], [0, 2, 4]], np.int64)


def verdicts(payloads):
    lengths = np.array([len(payload) for payload in payloads], np.int64)
    data = np.frombuffer(b"".join(payloads), np.uint8)
    return judge(data, np.cumsum(lengths) - lengths, lengths, NODES, FIELDS, b"idl")


@pytest.mark.parametrize(
    ("payload", "verdict", "field"),
    [
        (b'{"id": 9223372036854775807, "l": [{"id": "1"}, null, {}], "x": 1.5}', FITS, 0),
        (b'{"id": 9223372036854775808}', OTHER_TYPE, 0),
        (b'{"id": 1, "l": [{"id": "1"}, {"id": 2}]}', OTHER_TYPE, 2),
        (b'{"l": [{}, []]}', OTHER_TYPE, 1),
        (b'{"l": [{"id": "1"}, {"id": "2"}], "id": 3}', FITS, 0),
        (b'{"l": [{"id": "1", "i\\u0064": "2"}]}', TWICE, 2),
        (b'{"x": {"id": true, "id": 1}}', FITS, 0),
        (b'{"x": "\xed\xa0\x80"}', NO_UTF_8, 0),
        (b'{"x": "\\udc00"}', NO_OBJECT, 0),
        (b"[]", NO_OBJECT, 0),
        (b"", NO_OBJECT, 0),
        (b'{"id": 1}, "y": 2', NO_OBJECT, 0),
    ],
)
def test_a_verdict_says_what_is_wrong_with_which_field(payload, verdict, field):
    found = verdicts([b'{"id": 1}', payload, b'{"id": 1}'])
    assert [list(column) for column in found] == [[FITS, verdict, FITS], [0, field, 0]]


def is_object(text):
    """By Python's parser, for texts without what it writes in another way."""
    try:
        value = json.loads(text.decode())
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        return False
    return type(value) is dict


@pytest.mark.parametrize("seed", range(4))
def test_every_cut_and_changed_text_is_judged_as_by_a_parser_of_json(seed):
    """What has no column; no byte outside of the payload is looked at."""
    chosen = random.Random(seed)
    whole = '{"a": [1, -2.5e3, {"b": null}, [], {}], "c\\n\\ud83d\\ude00ä€": true, "d": "\\\\"}'.encode()
    texts = [whole[:end] for end in range(len(whole) + 1)] + [whole[:end] + b"}" for end in range(len(whole))]
    pieces = [
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"0",
        b"-",
        b"\x1f",
        b"\xc3",
        b"\xff",
        b" ",
        b"u",
    ]
    for _ in range(300):
        at = chosen.randrange(len(whole))
        texts.append(whole[:at] + chosen.choice(pieces) + whole[at + chosen.randrange(3) :])
    found = verdicts(texts)[0] == FITS
    assert [*found] == [*map(is_object, texts)]
    assert 10 < found.sum() < len(texts) // 2
