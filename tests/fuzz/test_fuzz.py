"""A slice of what strangers may send, and a longer run with the faults: FUZZ_SECONDS a target."""

from __future__ import annotations

import os

import pytest

from cluster.errors import ClusterError
from tests.fuzz import __main__ as fuzzer
from tests.fuzz.__main__ import ALL, Broken, feed_once, fuzz
from tests.fuzz.targets import Function

SECONDS = float(os.environ.get("FUZZ_SECONDS", "20"))


@pytest.mark.parametrize("name", ALL)
def test_a_slice_of_bytes_breaks_nothing(name):
    assert fuzz(name, 1) >= 100


@pytest.mark.faults
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", ALL)
def test_no_bytes_break_anything_for_a_while(name):
    assert fuzz(name, int.from_bytes(os.urandom(4)), seconds=SECONDS) > 0


def careless(data: bytes) -> int:
    """Looks at a length before it has looked whether it is there."""
    if data[:2] != b"ok":
        raise ClusterError("not ok")
    return data[2 + data[2]]


def test_a_decoder_that_is_careless_is_found_and_the_input_repeats_it(monkeypatch):
    monkeypatch.setitem(ALL, "careless", lambda: Function(careless, [b"ok\2abc"]))
    with pytest.raises(Broken, match="IndexError") as broken:
        fuzz("careless", 1)
    command = str(broken.value).rpartition("python -m tests.fuzz ")[2].split()
    with pytest.raises(Broken, match="IndexError"):
        fuzzer.main(command)


def test_one_input_again_is_fed_as_it_is():
    feed_once("messages", b"anything")
